#include "client/cli/commands.h"

#include "client/cli/arguments.h"
#include "client/cli/pack_table.h"
#include "server/base/machine.h"
#include "server/tables/scale_tensors.h"
#include "server/tables/worker_pool.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: embag pack [OPTION]... INPUT OUTPUT.embag\n"
    "       embag pack [OPTION]... --raw-values FILE --dim N --type T OUTPUT.embag\n"
    "Writes a packed table: rows as the server keeps them, with checksums and, for a keyed table,\n"
    "the index of its keys. INPUT is NAME.npy, NAME.safetensors or NAME.embag. If a table has\n"
    "several pieces, NAME-00000-of-00016.npy and so on, name any one; all of them are read.\n"
    "Raw files hold little-endian values and nothing else.\n"
    "\n"
    "  --tensor NAME          tensor to pack, if a safetensors file has several\n"
    "  --format F             fbgemm_int8, fbgemm_int8_f16, fbgemm_int4, fbgemm_int2,\n"
    "                         torchrec_int8, torchrec_int4 or torchrec_int2: INPUT has FBGEMM's\n"
    "                         fused rows, u8 of shape (rows, bytes), which become rows of codes;\n"
    "                         in torchrec_ formats scale and bias come first; or codes_int8,\n"
    "                         codes_int4 or codes_int2: INPUT has only codes\n"
    "  --scales S             with a codes_ format: f32 or f16 scale of each row. S is a file,\n"
    "                         NAME.npy or NAME.safetensors, or the name of a tensor of INPUT\n"
    "  --biases S             the same for the bias of each row (default: all are 0)\n"
    "  --dim N                values in a row of --raw-values or of codes; rows of torchrec_\n"
    "                         formats need it, since they are padded\n"
    "  --storage S            f32, f16, bf16, f8_e4m3, f8_e5m2, int8, int4 or int2: storage of\n"
    "                         the rows (default: as in INPUT); the table's type does not change\n"
    "  --max-error X          fail if a stored value is off by more than X\n"
    "  --keys FILE.npy        64-bit key of each row: makes the table keyed. FILE may also be any\n"
    "                         one of several pieces\n"
    "  --raw-values FILE      raw rows, one after the other, instead of INPUT\n"
    "  --type T               type of raw values: f32, f64, f16, bf16, f8_e4m3, f8_e5m2, i8 to\n"
    "                         i64 or u8 to u64\n"
    "  --raw-keys FILE        like --keys, but FILE holds raw 64-bit keys\n"
    "  --unknown-row R        row that stands for unknown ids\n"
    "  --split N              write N files of consecutive rows, TABLE-00000-of-0000N.embag and\n"
    "                         so on\n"
    "  --parts P --part K     pack only the rows r with r mod P = K\n"
    "  --threads N            threads that pack rows, up to 64 (default: as many as CPUs); the\n"
    "                         files do not depend on it\n"
    "Exit status: 0; 1 if the table could not be packed; 2 for a usage error.\n";

static const char *const storages[] = {
    "", "f32", "f16", "bf16", "f8_e4m3", "f8_e5m2", "int8", "int4", "int2", NULL};
static const enum eb_storage storage_numbers[] = {EB_STORAGE_UNSPECIFIED, EB_STORAGE_F32,
    EB_STORAGE_F16, EB_STORAGE_BF16, EB_STORAGE_F8_E4M3, EB_STORAGE_F8_E5M2, EB_STORAGE_INT8,
    EB_STORAGE_INT4, EB_STORAGE_INT2};

/* Types of raw values, and their storages. */
static const char *const raw_types[] = {"", "f32", "f64", "f16", "bf16", "f8_e4m3", "f8_e5m2", "i8",
    "u8", "i16", "u16", "i32", "u32", "i64", "u64", NULL};
static const enum eb_storage raw_storages[] = {EB_STORAGE_UNSPECIFIED, EB_STORAGE_F32,
    EB_STORAGE_F64, EB_STORAGE_F16, EB_STORAGE_BF16, EB_STORAGE_F8_E4M3, EB_STORAGE_F8_E5M2,
    EB_STORAGE_I8, EB_STORAGE_U8, EB_STORAGE_I16, EB_STORAGE_U16, EB_STORAGE_I32, EB_STORAGE_U32,
    EB_STORAGE_I64, EB_STORAGE_U64};

#define X(name, text, ...) text,
static const char *const formats[] = {
    "", EB_MODEL_FORMAT_LIST(X) EB_MODEL_CODES_LIST(X) NULL}; /* indexed by enum */
#undef X

/* The value of --part if it is not given. */
#define PART_UNKNOWN UINT64_MAX

struct options {
    struct eb_flag_rest files; /* INPUT and OUTPUT, or OUTPUT alone */
    const char *input;         /* `raw_values` if it is given */
    const char *output;
    const char *tensor;
    const char *scales; /* a file or a tensor, like `biases` */
    const char *biases;
    const char *keys;
    const char *raw_keys;
    const char *raw_values;
    const char *error_text;
    int storage;
    int format;
    int type; /* index of raw_types */
    uint64_t dim;
    struct eb_flag_integer unknown_row;
    uint64_t split;
    uint64_t parts;
    uint64_t part;
    uint64_t threads;
    double error_max;
};

#define AT(field) offsetof(struct options, field)
static const struct eb_flag flags[] = {
    {"tensor", EB_FLAG_TEXT, AT(tensor), 0, 0, NULL},
    {"storage", EB_FLAG_CHOICE, AT(storage), 0, 0, storages},
    {"format", EB_FLAG_CHOICE, AT(format), 0, 0, formats},
    {"dim", EB_FLAG_NUMBER, AT(dim), 1, UINT32_MAX, NULL},
    {"scales", EB_FLAG_TEXT, AT(scales), 0, 0, NULL},
    {"biases", EB_FLAG_TEXT, AT(biases), 0, 0, NULL},
    {"max-error", EB_FLAG_TEXT, AT(error_text), 0, 0, NULL},
    {"keys", EB_FLAG_TEXT, AT(keys), 0, 0, NULL},
    {"raw-values", EB_FLAG_TEXT, AT(raw_values), 0, 0, NULL},
    {"type", EB_FLAG_CHOICE, AT(type), 0, 0, raw_types},
    {"raw-keys", EB_FLAG_TEXT, AT(raw_keys), 0, 0, NULL},
    {"unknown-row", EB_FLAG_INTEGER, AT(unknown_row), 0, 0, NULL},
    {"split", EB_FLAG_NUMBER, AT(split), 1, EB_PACK_TABLE_FILES_MAX, NULL},
    {"parts", EB_FLAG_NUMBER, AT(parts), 1, UINT32_MAX, NULL},
    {"part", EB_FLAG_NUMBER, AT(part), 0, UINT32_MAX, NULL},
    {"threads", EB_FLAG_NUMBER, AT(threads), 1, EB_WORKER_POOL_THREADS_MAX, NULL},
    {"OUTPUT.embag", EB_FLAG_REST, AT(files), 0, 0, NULL},
};
#undef AT

static const struct eb_command command = {"pack", {usage}, flags, sizeof flags / sizeof flags[0]};

static bool read_error_max(struct options *options)
{
    options->error_max = INFINITY;
    if (!options->error_text) {
        return true;
    }
    struct eb_arguments_values values;
    if (!eb_arguments_read_values("max-error", options->error_text, EMBAG_F64, &values)) {
        return false;
    }
    if (values.count == 1) {
        memcpy(&options->error_max, values.data, sizeof options->error_max);
    }
    bool is_good = values.count == 1 && options->error_max >= 0 && isfinite(options->error_max);
    free(values.data);
    if (!is_good) {
        fprintf(stderr, "embag: --max-error %s: not a finite number of at least 0\n",
            options->error_text);
    }
    return is_good;
}

/* Finds input and output among the files. Returns what is wrong, or NULL. */
static const char *find_files(struct options *options)
{
    const struct eb_flag_rest *files = &options->files;
    if (options->raw_values && files->count != 1) {
        return "with --raw-values, expected one file: OUTPUT.embag";
    }
    if (!options->raw_values && files->count != 2) {
        return "expected two files: INPUT and OUTPUT.embag";
    }
    options->input = options->raw_values ? options->raw_values : files->texts[0];
    options->output = files->texts[files->count - 1];
    return NULL;
}

/* Returns what is wrong with the flags about raw files, or NULL. */
static const char *check_raw(const struct options *options)
{
    bool has_type = raw_storages[options->type] != EB_STORAGE_UNSPECIFIED;
    bool is_fused = options->format != EB_MODEL_FORMAT_VALUES;
    if (options->raw_keys && options->keys) {
        return "--keys and --raw-keys both give the keys: leave one of them out";
    }
    if (!options->raw_values) {
        return has_type ? "--type is for --raw-values; other files name their type" : NULL;
    }
    if (!has_type || options->dim == 0) {
        return "--raw-values needs --dim N and --type T, since raw files do not contain them";
    }
    if (is_fused || options->tensor) {
        return "--raw-values has one table of plain values: leave --format and --tensor out";
    }
    return NULL;
}

/* Returns what is wrong with the flags about scales and biases, or NULL. */
static const char *check_scales(const struct options *options)
{
    bool is_codes = eb_model_format_is_codes((enum eb_model_format)options->format);
    if (is_codes && !options->scales) {
        return "codes_ formats need --scales, since their rows hold only codes";
    }
    if (!is_codes && (options->scales || options->biases)) {
        return "--scales and --biases are for --format codes_int8, codes_int4 or codes_int2";
    }
    return NULL;
}

/* Returns what is wrong with the output's name or with flags that do not fit together, or NULL. */
static const char *check_fit(const struct options *options)
{
    size_t length = strlen(options->output);
    size_t suffix = strlen(EB_PACKED_FORMAT_SUFFIX);
    bool has_part = options->part != PART_UNKNOWN;
    uint64_t parts = options->parts != 0 ? options->parts : 1;
    bool has_values = options->format == EB_MODEL_FORMAT_VALUES;
    if (length <= suffix ||
        strcmp(options->output + length - suffix, EB_PACKED_FORMAT_SUFFIX) != 0) {
        return "the output's name must end in " EB_PACKED_FORMAT_SUFFIX;
    }
    if (has_part && options->part >= parts) {
        return "--part K needs --parts P, and K must be in 0..P-1";
    }
    if (parts > 1 && (options->keys || options->raw_keys)) {
        return "--parts divides row numbers, which keys replace: give only one of them";
    }
    if (parts > 1 && !has_part) {
        return "--parts needs --part, the number of the part to pack";
    }
    if (options->dim != 0 && has_values && !options->raw_values) {
        return "--dim is for fused rows and codes: give their --format too";
    }
    return NULL;
}

/* Checks the flags, and sets those that were not given to their defaults. Returns false after
 * printing an error to stderr. */
static bool check_options(struct options *options)
{
    const char *wrong = find_files(options);
    wrong = wrong ? wrong : check_raw(options);
    wrong = wrong ? wrong : check_scales(options);
    wrong = wrong ? wrong : check_fit(options);
    if (wrong) {
        fprintf(stderr, "embag: pack: %s\n", wrong);
        return false;
    }
    options->split = options->split != 0 ? options->split : 1;
    options->parts = options->parts != 0 ? options->parts : 1;
    options->threads = options->threads != 0 ? options->threads : eb_machine_cpu_count("");
    options->part = options->part != PART_UNKNOWN ? options->part : 0;
    return read_error_max(options);
}

/* Returns the table called `name`, or the only one if `name` is NULL. Returns NULL with *failure
 * set. `how` says how to choose one of several. */
static struct eb_source_table *find_pack_table(const struct eb_source_file *source,
    const char *name, const char *how, struct eb_failure *failure)
{
    struct eb_source_table *found = NULL;
    size_t count = 0;
    for (size_t i = 0; i < source->table_count; i++) {
        struct eb_source_table *table = &source->tables[i];
        if (name ? strcmp(table->name, name) == 0 : !table->unfit) {
            found = found ? found : table;
            count++;
        }
    }
    if (count == 1 && !found->unfit) {
        return found;
    }
    if (!found && name) {
        eb_failure_set(failure, "it has no tensor '%.64s'; embag check lists its tensors", name);
    } else if (!found || found->unfit) {
        const struct eb_source_table *unfit = found ? found : &source->tables[0];
        eb_failure_set(failure, "tensor '%.128s': %s", unfit->name, unfit->unfit);
    } else {
        eb_failure_set(failure, "it has %zu tensors; %s, such as '%.64s'", count, how, found->name);
    }
    return NULL;
}

/* Refuses an fp8 table if another tensor seems to hold its scales. */
static bool check_pack_unscaled(const struct eb_source_file *source,
    const struct eb_source_table *table, struct eb_failure *failure)
{
    enum eb_storage storage = table->tensor.storage;
    bool is_fp8 = storage == EB_STORAGE_F8_E4M3 || storage == EB_STORAGE_F8_E5M2;
    for (size_t i = 0; is_fp8 && i < source->table_count; i++) {
        if (eb_scale_tensors_is_of(source->tables[i].name, table->name)) {
            return eb_failure_set(failure,
                "table '%.64s' is %s, and tensor '%.64s' seems to hold its scales: fp8 with scales "
                "is not supported; dequantise the table to F32 or BF16, or write it to a file of "
                "its own if its values need no scales",
                table->name, eb_storage_name(storage), source->tables[i].name);
        }
    }
    return true;
}

/* Interprets the rows as --format says. Returns false with *failure set if they cannot have that
 * format. */
static bool fuse_table(const struct options *options, const struct eb_source_file *source,
    struct eb_source_table *table, struct eb_failure *failure)
{
    enum eb_model_format format = (enum eb_model_format)options->format;
    if (format == EB_MODEL_FORMAT_VALUES) {
        return true;
    }
    return source->is_packed
               ? eb_failure_set(failure, "--format is not for packed tables; leave it out")
               : eb_source_table_fuse(table, format, (uint32_t)options->dim, failure);
}

/* Fills in *plan from the options and the source, except keys. Returns false with *failure set. */
static bool plan_table(const struct options *options, struct eb_source_file *source,
    struct eb_pack_plan *plan, struct eb_failure *failure)
{
    struct eb_source_table *table =
        find_pack_table(source, options->tensor, "choose one with --tensor", failure);
    if (!table || !check_pack_unscaled(source, table, failure) ||
        !fuse_table(options, source, table, failure)) {
        return false;
    }
    *plan = (struct eb_pack_plan){
        .source = source,
        .table = table,
        .parts = (uint32_t)options->parts,
        .part = (uint32_t)options->part,
        .unknown_row = source->is_packed ? source->reader.format.unknown_row : -1,
        .path = options->output,
        .file_count = (uint32_t)options->split,
        .thread_count = (unsigned)options->threads,
        .error_max = options->error_max,
    };
    enum eb_storage wanted = storage_numbers[options->storage];
    plan->storage = wanted != EB_STORAGE_UNSPECIFIED ? wanted : plan->table->tensor.storage;
    if (options->unknown_row.given) {
        plan->unknown_row = options->unknown_row.value;
    }
    if (!eb_storage_holds(plan->storage, plan->table->type)) {
        return eb_failure_set(failure,
            "a table of %s cannot be stored as %s; f32 can have any storage, f16 and bf16 their "
            "own, fp8 or codes",
            eb_type_name(plan->table->type), eb_storage_name(plan->storage));
    }
    if (source->is_packed && source->reader.format.by_key) {
        return eb_failure_set(failure, "it is a part by keys; pack the whole table again");
    }
    if (plan->parts > 1 && source->is_packed &&
        (!eb_packed_format_is_whole(&source->reader.format) ||
            eb_packed_format_is_keyed(&source->reader.format))) {
        return eb_failure_set(failure,
            "it is a piece of a table or a keyed table; --parts needs a whole table without keys");
    }
    return true;
}

/* Finds the scales or biases: `given` names a file, which is opened as `file`, or a tensor of
 * INPUT. Sets nothing if it is NULL. Returns false with *failure set, including the path. */
static bool plan_pack_numbers(const struct eb_pack_plan *plan, const char *given,
    struct eb_source_file *file, struct eb_pack_numbers *numbers, struct eb_failure *failure)
{
    bool is_file = given && eb_source_file_is_known(given);
    if (!given) {
        return true;
    }
    if (is_file && !eb_source_file_open_whole(file, given, failure)) {
        return eb_failure_locate(failure, given);
    }
    numbers->source = is_file ? file : plan->source;
    numbers->table = find_pack_table(numbers->source, is_file ? NULL : given,
        "give a file with one, or the name of a tensor of INPUT", failure);
    bool is_good =
        numbers->table &&
        (!numbers->source->is_packed ||
            eb_failure_set(failure, "expected an npy or safetensors file, not a packed table")) &&
        eb_scale_tensors_check(&numbers->table->tensor, plan->table->tensor.dims[0], failure);
    return is_good || eb_failure_locate(failure, numbers->source->path);
}

/* Reads the keys of the file that was given, or those of a packed source. Returns false with
 * *failure set, without the path. */
static bool load_pack_keys(const struct options *options, struct eb_source_file *source,
    struct eb_pack_keys *keys, struct eb_failure *failure)
{
    if (options->raw_keys) {
        return eb_pack_keys_read_raw(keys, options->raw_keys, failure);
    }
    return options->keys ? eb_pack_keys_read_whole(keys, options->keys, failure)
                         : eb_pack_keys_unpack(keys, &source->reader, failure);
}

/* Reads the keys and checks that no key occurs twice. Returns false with *failure set, including
 * the path. */
static bool read_pack_keys(const struct options *options, struct eb_pack_plan *plan,
    struct eb_pack_keys *keys, struct eb_failure *failure)
{
    struct eb_source_file *source = plan->source;
    const char *given = options->raw_keys ? options->raw_keys : options->keys;
    bool has_some = source->is_packed && eb_packed_format_is_keyed(&source->reader.format);
    if (!given && !has_some) {
        return true;
    }
    bool is_good = load_pack_keys(options, source, keys, failure);
    if (is_good && keys->count != plan->table->tensor.dims[0]) {
        is_good = eb_failure_set(failure, "it has %" PRIu64 " keys for the %" PRIu64 " rows of %s",
            keys->count, plan->table->tensor.dims[0], source->path);
    }
    if (!is_good || !eb_pack_keys_index(keys, failure)) {
        return eb_failure_locate(failure, given ? given : source->path);
    }
    plan->keys = keys;
    /* A piece of a table gets no index: the table's index is built from the keys of all pieces. */
    if (plan->file_count > 1 ||
        (source->is_packed && !eb_packed_format_is_whole(&source->reader.format))) {
        eb_pack_keys_drop_index(keys);
    }
    return true;
}

static void report_pack(const struct eb_pack_plan *plan, const struct eb_pack_result *result)
{
    struct eb_tensor shown = plan->table->tensor;
    char shape[EB_TENSOR_SHAPE_BYTES];
    shown.dims[0] = result->row_count;
    eb_tensor_shape_text(&shown, shape);
    printf("%s: %s of %s%s, stored as %s: %" PRIu64 " bytes of rows became %" PRIu64 ", in %" PRIu32
           " file%s of %" PRIu64 " bytes\n",
        plan->path, shape, eb_type_name(plan->table->type), plan->keys ? ", keyed" : "",
        eb_storage_name(plan->storage), result->source_bytes, result->rows_bytes, plan->file_count,
        plan->file_count == 1 ? "" : "s", result->file_bytes);
    if (!result->is_converted || result->row_count == 0) {
        return;
    }
    printf("  values are off by at most %g (row %" PRIu64 "), by %g on average\n",
        result->values.max, result->values.max_row, eb_pack_error_mean(&result->values));
    printf("  sums of %zu bags of %d rows are off by at most %g, by %g on average\n",
        result->bag_count, EB_PACK_ERROR_BAG_ROWS, result->bags.max,
        eb_pack_error_mean(&result->bags));
}

/* Packs the table. Returns false with *failure set, including the path of the file that it is
 * about. */
static bool pack(
    const struct options *options, struct eb_source_file *source, struct eb_failure *failure)
{
    struct eb_pack_plan plan;
    struct eb_pack_result result;
    struct eb_pack_keys keys = {0};
    struct eb_source_file scales = {0};
    struct eb_source_file biases = {0};
    if (!plan_table(options, source, &plan, failure)) {
        return eb_failure_locate(failure, source->path);
    }
    bool is_good = plan_pack_numbers(&plan, options->scales, &scales, &plan.scales, failure) &&
                   plan_pack_numbers(&plan, options->biases, &biases, &plan.biases, failure) &&
                   read_pack_keys(options, &plan, &keys, failure) &&
                   eb_pack_table(&plan, &result, failure);
    if (is_good) {
        report_pack(&plan, &result);
    }
    eb_pack_keys_deinit(&keys);
    eb_source_file_close(&scales);
    eb_source_file_close(&biases);
    return is_good;
}

static bool open_input(
    const struct options *options, struct eb_source_file *source, struct eb_failure *failure)
{
    return options->raw_values ? eb_source_file_open_raw(source, options->input,
                                     raw_storages[options->type], (uint32_t)options->dim, failure)
                               : eb_source_file_open_whole(source, options->input, failure);
}

static int run_pack_command(struct options *options)
{
    if (!check_options(options)) {
        return 2;
    }
    struct eb_source_file source;
    struct eb_failure failure;
    bool is_good = open_input(options, &source, &failure)
                       ? pack(options, &source, &failure)
                       : eb_failure_locate(&failure, options->input);
    eb_source_file_close(&source);
    if (!is_good) {
        fprintf(stderr, "embag: %s\n", failure.text);
    }
    return is_good ? 0 : 1;
}

int eb_pack_command_main(int argument_count, char **arguments)
{
    struct options options = {.part = PART_UNKNOWN};
    switch (eb_arguments_read(&command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return run_pack_command(&options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}
