#include "client/cli/commands.h"

#include "client/cli/arguments.h"
#include "client/cli/output.h"
#include "client/cli/split_metrics.h"
#include "client/cli/split_model.h"
#include "client/cli/split_plan.h"
#include "client/cli/split_table.h"
#include "server/base/directory.h"
#include "server/base/machine.h"
#include "server/formats/manifest_text.h"
#include "server/tables/key_load.h"
#include "server/tables/table_plan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL_FILE "model.yaml"
#define ROW_BYTES_MAX 16777216u /* the most that the server's row_bytes_max may be */
#define NAME_BYTES_MAX EB_PARTS_NAME_BYTES_MAX
/* Files that are open beside those of the parts. */
#define OTHER_FILES 256

static const char usage[] =
    "Usage: embag split --parts P --out REPOSITORY2 [OPTION]... REPOSITORY/MODEL/VERSION\n"
    "Divides a version among P part servers: writes REPOSITORY2/MODEL/VERSION with a folder for\n"
    "each part and a manifest. Tables are read as a server would load them, with\n"
    "MODEL/model.yaml. The settings that still apply are written to REPOSITORY2/MODEL/model.yaml,\n"
    "unless that file exists. The version appears when it is complete.\n"
    "\n"
    "  --parts P              number of parts, 1 to 512\n"
    "  --out REPOSITORY2      repository to write to; created if it does not exist\n"
    "  --placement FILE       YAML file that places some tables, in the form\n"
    "                         tables: [{name: user_id, placement: rows}]\n"
    "                         The placement is everywhere, whole or rows; with whole, part: K\n"
    "                         names the part\n"
    "  --everywhere-below N   tables of fewer bytes lie everywhere (default 67108864). Of the\n"
    "                         others, the largest first, a table lies whole in the part with the\n"
    "                         fewest bytes if that part then exceeds its share by at most a\n"
    "                         tenth; otherwise its rows are divided\n"
    "  --everywhere-bytes-max N\n"
    "                         at most N bytes of such tables lie everywhere (default 1073741824).\n"
    "                         The smallest do; with --metrics, those with the most bags per byte\n"
    "  --metrics SOURCE       also takes into account how many rows and bags of each table are\n"
    "                         looked up. SOURCE is the URL http://HOST:8601/metrics of a server\n"
    "                         that has served the model for a while and has all its tables (a\n"
    "                         router, say); or a file with its metrics; or - for standard input.\n"
    "                         Tables that are not counted there are placed by their bytes. Not\n"
    "                         with --placement\n"
    "  --lineage NAME         versions of the same lineage may take each other's place\n"
    "  --salt HEX             16 hex digits that choose the parts of keys (default: random).\n"
    "                         The same input and salt give the same files\n"
    "  --threads N            threads that read and convert rows (default: one per CPU)\n"
    "  --dry-run              print the placement, and write nothing\n"
    "Exit status: 0; 1 if the version cannot be read or written; 2 for a usage error.\n";

struct options {
    uint64_t parts;
    const char *out;
    const char *placement;
    uint64_t everywhere_below;
    uint64_t everywhere_bytes_max;
    const char *metrics;
    const char *lineage;
    const char *salt_text;
    uint64_t salt;
    uint64_t threads;
    bool is_dry_run;
    const char *version;
};

#define AT(field) offsetof(struct options, field)
static const struct eb_flag flags[] = {
    {"parts", EB_FLAG_NUMBER, AT(parts), 1, EB_SPLIT_PARTS_MAX, NULL},
    {"out", EB_FLAG_TEXT, AT(out), 0, 0, NULL},
    {"placement", EB_FLAG_TEXT, AT(placement), 0, 0, NULL},
    {"everywhere-below", EB_FLAG_NUMBER, AT(everywhere_below), 0, UINT64_MAX, NULL},
    {"everywhere-bytes-max", EB_FLAG_NUMBER, AT(everywhere_bytes_max), 0, UINT64_MAX, NULL},
    {"metrics", EB_FLAG_TEXT, AT(metrics), 0, 0, NULL},
    {"lineage", EB_FLAG_TEXT, AT(lineage), 0, 0, NULL},
    {"salt", EB_FLAG_TEXT, AT(salt_text), 0, 0, NULL},
    {"threads", EB_FLAG_NUMBER, AT(threads), 1, 1024, NULL},
    {"dry-run", EB_FLAG_SWITCH, AT(is_dry_run), 0, 0, NULL},
    {"REPOSITORY/MODEL/VERSION", EB_FLAG_POSITIONAL, AT(version), 0, 0, NULL},
};
#undef AT

static const struct eb_command command = {"split", {usage}, flags, sizeof flags / sizeof flags[0]};

/* The paths of a split. */
struct split_paths {
    char *source;      /* absolute path of the version */
    char *config;      /* MODEL/model.yaml beside it */
    const char *model; /* names, in `source` */
    const char *version;
    char *out_model; /* REPOSITORY2/MODEL */
    char *out;       /* REPOSITORY2/MODEL/VERSION */
    char *hidden;    /* REPOSITORY2/MODEL/.VERSION.XXXXXX until it is complete */
};

/* A split in progress. */
struct splitting {
    const struct options *options;
    struct split_paths paths;
    struct eb_model_config config;
    struct eb_table_plan plan;
    struct eb_split_plan placement; /* its tables are parallel to those of `plan` */
    struct eb_parts_manifest manifest;
    struct eb_failure *failure;
};

/* ---- arguments ---- */

/* Returns what is wrong with the options together, or NULL. Sets options->salt. */
static const char *check_split_options(struct options *options)
{
    if (options->parts == 0) {
        return "--parts P is missing";
    }
    if (!options->out && !options->is_dry_run) {
        return "--out REPOSITORY2 is missing";
    }
    if (options->placement && options->metrics) {
        return "--placement and --metrics exclude each other";
    }
    if (options->salt_text &&
        (!eb_manifest_text_digest(options->salt_text, &options->salt) || options->salt == 0)) {
        return "--salt needs 16 hex digits in small letters, not all 0";
    }
    return NULL;
}

static bool draw_salt(struct options *options, struct eb_failure *failure)
{
    while (options->salt == 0) {
        if (getrandom(&options->salt, sizeof options->salt, 0) != sizeof options->salt) {
            return eb_failure_set(
                failure, "no random numbers (%s); give a --salt", strerror(errno));
        }
    }
    return true;
}

/* Returns text as printf would, which the caller frees; NULL with *failure set if out of memory. */
static __attribute__((format(printf, 2, 3))) char *print_path(
    struct eb_failure *failure, const char *format, ...)
{
    va_list values;
    char *text;
    va_start(values, format);
    if (vasprintf(&text, format, values) < 0) {
        eb_failure_set(failure, "out of memory");
        text = NULL;
    }
    va_end(values);
    return text;
}

static bool is_number(const char *name)
{
    return name[0] >= '1' && name[0] <= '9' && name[strspn(name, "0123456789")] == '\0';
}

/* Finds the names of model and version in the path of the version. */
static bool find_names(struct split_paths *paths, const char *given, struct eb_failure *failure)
{
    paths->source = realpath(given, NULL);
    if (!paths->source) {
        return eb_failure_set(failure,
            "%s: it cannot be opened (%s); expected "
            "REPOSITORY/MODEL/VERSION",
            given, strerror(errno));
    }
    char *slash = strrchr(paths->source, '/');
    paths->version = slash + 1;
    const char *end = slash;
    const char *begin = end;
    while (begin > paths->source && begin[-1] != '/') {
        begin--;
    }
    paths->model = strndup(begin, (size_t)(end - begin));
    if (!paths->model) {
        return eb_failure_set(failure, "out of memory");
    }
    return (is_number(paths->version) && paths->model[0] != '\0') ||
           eb_failure_set(
               failure, "%s: expected REPOSITORY/MODEL/VERSION, where VERSION is a number", given);
}

static bool make_paths(struct splitting *splitting)
{
    struct split_paths *paths = &splitting->paths;
    const struct options *options = splitting->options;
    const char *out = options->out ? options->out : ".";
    if (!find_names(paths, options->version, splitting->failure)) {
        return false;
    }
    paths->config = print_path(splitting->failure, "%s/../" MODEL_FILE, paths->source);
    paths->out_model = print_path(splitting->failure, "%s/%s", out, paths->model);
    paths->out = print_path(splitting->failure, "%s/%s/%s", out, paths->model, paths->version);
    paths->hidden =
        print_path(splitting->failure, "%s/%s/.%s.XXXXXX", out, paths->model, paths->version);
    return paths->config && paths->out_model && paths->out && paths->hidden;
}

static void free_paths(struct split_paths *paths)
{
    free(paths->source);
    free((void *)(uintptr_t)paths->model);
    free(paths->config);
    free(paths->out_model);
    free(paths->out);
    free(paths->hidden);
}

/* ---- placement ---- */

static bool list_tables(struct splitting *splitting)
{
    const struct eb_table_plan *plan = &splitting->plan;
    struct eb_split_plan *placement = &splitting->placement;
    *placement = (struct eb_split_plan){
        .parts = (uint32_t)splitting->options->parts,
        .everywhere_below = splitting->options->everywhere_below,
        .everywhere_bytes_max = splitting->options->everywhere_bytes_max,
        .count = plan->table_count,
        .tables = calloc(plan->table_count, sizeof *placement->tables),
    };
    if (!placement->tables) {
        return eb_failure_set(splitting->failure, "out of memory");
    }
    for (size_t i = 0; i < plan->table_count; i++) {
        const struct eb_planned_table *table = &plan->tables[i];
        placement->tables[i] = (struct eb_split_table){
            .name = table->name,
            .bytes = table->rows_bytes + table->index_bytes,
            .rows = table->tensor.dims[0],
        };
    }
    const char *given = splitting->options->placement;
    const char *metrics = splitting->options->metrics;
    if (metrics &&
        !eb_split_metrics_read(placement, metrics, splitting->paths.model, splitting->failure)) {
        return false;
    }
    return (!given || eb_split_plan_read(placement, given, splitting->failure)) &&
           eb_split_plan_place(placement, splitting->failure);
}

/* Returns the percentage, for printing. */
static double find_percent(double value, double sum)
{
    return sum > 0 ? 100 * value / sum : 0;
}

/* Prints the table's shares of all rows and bags that are looked up. */
static void print_table_shares(
    const struct eb_split_table *table, const struct eb_split_demand *sums)
{
    if (table->is_counted) {
        printf("%5.1f%% of rows %5.1f%% of bags  ",
            find_percent(table->rows_touched, sums->rows_touched),
            find_percent(table->bags, sums->bags));
    } else {
        printf("%-32s", "not counted");
    }
}

static void print_table_placement(
    const struct eb_split_table *table, const struct eb_split_demand *sums, bool has_metrics)
{
    char part[16] = "";
    if (table->placement == EB_PLACEMENT_WHOLE) {
        snprintf(part, sizeof part, " %" PRIu32, table->part);
    }
    printf(
        "%-40s %10s  ", eb_output_printable(table->name).bytes, eb_output_size(table->bytes).bytes);
    if (has_metrics) {
        print_table_shares(table, sums);
    }
    printf("%s%s\n", eb_placement_name(table->placement), part);
}

/* Prints what the parts have in sum and at most. */
static void print_part_shares(const struct eb_split_plan *placement, bool has_metrics)
{
    struct eb_split_demand most = {0, 0, 0};
    struct eb_split_demand sums = {0, 0, 0};
    for (uint32_t part = 0; part < placement->parts; part++) {
        const struct eb_split_demand *here = &placement->part_demands[part];
        most.bytes = here->bytes > most.bytes ? here->bytes : most.bytes;
        most.rows_touched =
            here->rows_touched > most.rows_touched ? here->rows_touched : most.rows_touched;
        most.bags = here->bags > most.bags ? here->bags : most.bags;
        sums.bytes += here->bytes;
        sums.rows_touched += here->rows_touched;
        sums.bags += here->bags;
    }
    printf("%" PRIu32 " part%s: %s on average, the largest has %s; everywhere: %s\n",
        placement->parts, placement->parts == 1 ? "" : "s",
        eb_output_size(sums.bytes / placement->parts).bytes, eb_output_size(most.bytes).bytes,
        eb_output_size(placement->everywhere_bytes).bytes);
    if (has_metrics) {
        printf("of what parts look up, the busiest has %.1f%% of the rows and %.1f%% of the bags; "
               "a share is %.1f%%\n",
            find_percent(most.rows_touched, sums.rows_touched), find_percent(most.bags, sums.bags),
            100.0 / placement->parts);
    }
}

static void print_placement(const struct eb_split_plan *placement, bool has_metrics)
{
    struct eb_split_demand sums = {0, 0, 0};
    for (size_t i = 0; i < placement->count; i++) {
        sums.rows_touched += placement->tables[i].rows_touched;
        sums.bags += placement->tables[i].bags;
    }
    for (size_t i = 0; i < placement->count; i++) {
        print_table_placement(&placement->tables[i], &sums, has_metrics);
    }
    print_part_shares(placement, has_metrics);
}

/* ---- writing ---- */

static bool fail_path(struct splitting *splitting, const char *path)
{
    return eb_failure_set(
        splitting->failure, "%s: it cannot be written (%s)", path, strerror(errno));
}

/* Creates a directory unless it exists. */
static bool make_split_directory(struct splitting *splitting, const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST || fail_path(splitting, path);
}

/* Writes all of a small file to the disk. */
static bool write_split_text(
    struct splitting *splitting, const char *path, const char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "wxe");
    if (!file) {
        return fail_path(splitting, path);
    }
    bool is_good = fwrite(text, 1, text_bytes, file) == text_bytes && fflush(file) == 0 &&
                   fsync(fileno(file)) == 0;
    is_good = is_good || fail_path(splitting, path);
    if (fclose(file) != 0 && is_good) {
        is_good = fail_path(splitting, path);
    }
    return is_good;
}

/* Makes the names in a directory last. */
static bool sync_directory(struct splitting *splitting, const char *path)
{
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_good = directory >= 0 && fsync(directory) == 0;
    is_good = is_good || fail_path(splitting, path);
    if (directory >= 0) {
        close(directory);
    }
    return is_good;
}

/* Calls `take` for the folder of each part. */
static bool walk_folders(
    struct splitting *splitting, bool (*take)(struct splitting *splitting, const char *path))
{
    uint32_t parts = splitting->placement.parts;
    bool is_good = true;
    for (uint32_t part = 0; is_good && part < parts; part++) {
        char name[EB_PART_FOLDER_BYTES];
        eb_part_folder_name(part, parts, name);
        char *path = eb_directory_join(splitting->paths.hidden, name, splitting->failure);
        is_good = path && take(splitting, path);
        free(path);
    }
    return is_good;
}

/* Begins the hidden directory with a folder for each part. */
static bool begin_version(struct splitting *splitting)
{
    struct split_paths *paths = &splitting->paths;
    if (access(paths->out, F_OK) == 0) {
        return eb_failure_set(splitting->failure,
            "%s: it exists already; remove it, or split into another repository", paths->out);
    }
    if (!make_split_directory(splitting, splitting->options->out) ||
        !make_split_directory(splitting, paths->out_model)) {
        return false;
    }
    if (!mkdtemp(paths->hidden)) {
        return fail_path(splitting, paths->hidden);
    }
    /* Like other directories, it may be read by everyone whom the umask does not exclude. */
    mode_t mask = umask(0);
    (void)umask(mask);
    return (chmod(paths->hidden, 0777 & ~mask) == 0 || fail_path(splitting, paths->hidden)) &&
           walk_folders(splitting, make_split_directory);
}

/* Deletes the files of a directory, and the directory. */
static bool remove_directory(struct splitting *splitting, const char *path)
{
    struct eb_directory listing;
    struct eb_failure failure;
    (void)splitting;
    if (!eb_directory_read(path, &listing, &failure)) {
        return true; /* It was not created. */
    }
    for (size_t i = 0; i < listing.count; i++) {
        char *file = eb_directory_join(path, listing.entries[i]->d_name, &failure);
        if (file) {
            (void)unlink(file);
        }
        free(file);
    }
    eb_directory_deinit(&listing);
    (void)rmdir(path);
    return true;
}

/* Deletes what a split that has failed has written. */
static void drop_version(struct splitting *splitting)
{
    (void)walk_folders(splitting, remove_directory);
    (void)remove_directory(splitting, splitting->paths.hidden);
}

/* Sets the key of the row for unknown keys, if the table has such a row. */
static bool describe_unknown_key(const struct eb_table_plan *plan,
    const struct eb_planned_table *planned, struct eb_parts_table *out, struct eb_failure *failure)
{
    struct eb_load_meter meter;
    struct eb_key_load load = {.plan = plan, .table = planned, .meter = &meter};
    if (!planned->is_keyed || planned->unknown_row < 0) {
        return true;
    }
    eb_load_meter_init(&meter, NULL, 0);
    out->has_unknown_key = true;
    return eb_key_load_read(&load, (uint64_t)planned->unknown_row, 1, &out->unknown_key, failure);
}

/* Describes one of the plan's tables for the manifest, with digests of 0. */
static bool describe_table(const struct eb_table_plan *plan, const struct eb_planned_table *planned,
    const struct eb_split_plan *placement, struct eb_parts_table *out, struct eb_failure *failure)
{
    const struct eb_split_table *placed = &placement->tables[planned - plan->tables];
    bool is_divided = placed->placement == EB_PLACEMENT_ROWS;
    *out = (struct eb_parts_table){
        .name = strdup(planned->name),
        .placement = placed->placement,
        .part = placed->placement == EB_PLACEMENT_WHOLE ? placed->part : 0,
        .is_keyed = planned->is_keyed,
        .has_unknown_row = planned->unknown_row >= 0,
        .unknown_row = planned->unknown_row >= 0 ? (uint64_t)planned->unknown_row : 0,
        .type = planned->type,
        .storage = planned->storage,
        .shape_count = planned->tensor.rank - 1,
        .rows_total = planned->tensor.dims[0],
        .digest_count = is_divided ? placement->parts : 1,
    };
    memcpy(out->shape, planned->tensor.dims + 1, out->shape_count * sizeof out->shape[0]);
    out->digests = calloc(out->digest_count, sizeof *out->digests);
    if (!out->name || !out->digests) {
        return eb_failure_set(failure, "out of memory");
    }
    return describe_unknown_key(plan, planned, out, failure);
}

static int compare_described(const void *left, const void *right)
{
    const struct eb_parts_table *a = left;
    const struct eb_parts_table *b = right;
    return strcmp(a->name, b->name);
}

/* Describes all tables in the manifest, whose digests are set later. Returns false with *failure
 * set if the manifest could not be read back: a table has a name that no file may have, say. */
static bool describe_tables(struct splitting *splitting)
{
    const struct eb_table_plan *plan = &splitting->plan;
    struct eb_parts_manifest *manifest = &splitting->manifest;
    for (size_t i = 0; i < plan->table_count; i++) {
        if (!describe_table(plan, &plan->tables[i], &splitting->placement,
                &manifest->tables[manifest->count++], splitting->failure)) {
            return false;
        }
    }
    qsort(manifest->tables, manifest->count, sizeof *manifest->tables, compare_described);
    size_t text_bytes;
    char *text = eb_parts_manifest_write(manifest, &text_bytes, splitting->failure);
    free(text);
    return text;
}

static bool write_split_manifest(struct splitting *splitting)
{
    size_t text_bytes;
    char *text = eb_parts_manifest_write(&splitting->manifest, &text_bytes, splitting->failure);
    char *path =
        text ? eb_directory_join(splitting->paths.hidden, EB_MANIFEST_NAME, splitting->failure)
             : NULL;
    bool is_good = path && write_split_text(splitting, path, text, text_bytes);
    free(path);
    free(text);
    return is_good;
}

/* Writes the files of one table, and sets its digests in the manifest. */
static bool write_table(struct splitting *splitting, size_t i, struct eb_progress_bar *bar)
{
    const struct eb_planned_table *planned = &splitting->plan.tables[i];
    const struct eb_split_table *placed = &splitting->placement.tables[i];
    const struct eb_parts_table *table =
        eb_parts_manifest_find(&splitting->manifest, planned->name);
    struct eb_split_job job = {
        .plan = &splitting->plan,
        .table = planned,
        .placement = placed->placement,
        .part = placed->part,
        .parts = splitting->placement.parts,
        .salt = splitting->options->salt,
        .directory = splitting->paths.hidden,
        .thread_count = (unsigned)splitting->options->threads,
        .bar = bar,
    };
    return eb_split_table(&job, table->digests, splitting->failure);
}

static bool write_tables(struct splitting *splitting)
{
    const struct eb_table_plan *plan = &splitting->plan;
    struct eb_progress_bar bar;
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->table_count; i++) {
        bytes += plan->tables[i].rows_bytes;
    }
    eb_progress_bar_init(&bar, splitting->options->version, bytes);
    bool is_good = true;
    for (size_t i = 0; is_good && i < plan->table_count; i++) {
        is_good = write_table(splitting, i, &bar);
    }
    eb_progress_bar_end(&bar);
    return is_good;
}

/* Writes model.yaml beside the version, unless it is there or there is nothing to say. */
static bool write_model(struct splitting *splitting)
{
    char *text = eb_split_model_write(&splitting->config, splitting->failure);
    char *path =
        text ? eb_directory_join(splitting->paths.out_model, MODEL_FILE, splitting->failure) : NULL;
    bool is_good = path;
    if (path && access(path, F_OK) == 0) {
        printf("%s: kept as it was\n", eb_output_printable(path).bytes);
    } else if (path && text[0] != '\0') {
        is_good = write_split_text(splitting, path, text, strlen(text));
    }
    free(path);
    free(text);
    return is_good;
}

/* Gives the complete version its name. */
static bool publish_split(struct splitting *splitting)
{
    struct split_paths *paths = &splitting->paths;
    if (!walk_folders(splitting, sync_directory) || !sync_directory(splitting, paths->hidden)) {
        return false;
    }
    if (rename(paths->hidden, paths->out) != 0) {
        return fail_path(splitting, paths->out);
    }
    return sync_directory(splitting, paths->out_model);
}

static bool write_version(struct splitting *splitting)
{
    struct eb_parts_manifest *manifest = &splitting->manifest;
    const char *lineage = splitting->options->lineage;
    manifest->parts = splitting->placement.parts;
    manifest->salt = splitting->options->salt;
    manifest->lineage = strdup(lineage ? lineage : "");
    manifest->tables = calloc(splitting->plan.table_count, sizeof *manifest->tables);
    if (!manifest->lineage || !manifest->tables) {
        return eb_failure_set(splitting->failure, "out of memory");
    }
    if (!describe_tables(splitting) || !begin_version(splitting)) {
        return false;
    }
    bool is_good = write_tables(splitting) && write_split_manifest(splitting) &&
                   write_model(splitting) && publish_split(splitting);
    if (!is_good) {
        drop_version(splitting);
    }
    return is_good;
}

/* ---- the whole ---- */

/* Allows as many open files as the parts need. */
static void allow_part_files(uint64_t parts)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < parts + OTHER_FILES) {
        limit.rlim_cur =
            parts + OTHER_FILES < limit.rlim_max ? parts + OTHER_FILES : limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* Opening a file reports what is missing. */
    }
}

static bool split_version(struct splitting *splitting)
{
    const struct options *options = splitting->options;
    struct eb_table_options tables = {
        .row_bytes_max = ROW_BYTES_MAX,
        .name_bytes_max = NAME_BYTES_MAX,
        .config = &splitting->config,
    };
    if (!make_paths(splitting) ||
        !eb_model_config_read(
            splitting->paths.config, NAME_BYTES_MAX, &splitting->config, splitting->failure) ||
        !eb_table_plan_read(
            splitting->paths.source, &tables, &splitting->plan, splitting->failure) ||
        !list_tables(splitting)) {
        return false;
    }
    allow_part_files(options->parts);
    if (!options->is_dry_run && !write_version(splitting)) {
        return false;
    }
    print_placement(&splitting->placement, options->metrics);
    return true;
}

int eb_split_command_main(int argument_count, char **arguments)
{
    struct options options = {
        .everywhere_below = EB_SPLIT_EVERYWHERE_BELOW,
        .everywhere_bytes_max = EB_SPLIT_EVERYWHERE_BYTES_MAX,
    };
    switch (eb_arguments_read(&command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: break;
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    const char *why = check_split_options(&options);
    if (why) {
        fprintf(stderr, "embag split: %s\n", why);
        return 2;
    }
    struct eb_failure failure;
    struct splitting splitting = {.options = &options, .failure = &failure};
    options.threads = options.threads > 0 ? options.threads : eb_machine_cpu_count("");
    bool is_good = draw_salt(&options, &failure) && split_version(&splitting);
    if (!is_good) {
        fprintf(stderr, "embag: %s\n", failure.text);
    }
    eb_parts_manifest_deinit(&splitting.manifest);
    eb_split_plan_deinit(&splitting.placement);
    free(splitting.placement.tables);
    eb_table_plan_deinit(&splitting.plan);
    eb_model_config_deinit(&splitting.config);
    free_paths(&splitting.paths);
    return is_good ? 0 : 1;
}
