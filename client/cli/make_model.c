#include "client/cli/commands.h"

#include "client/cli/arguments.h"
#include "client/cli/load_clock.h"
#include "client/cli/progress_bar.h"
#include "client/cli/workload.h"
#include "server/formats/npy.h"
#include "server/formats/tensor.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define CHUNK_BYTES (256 * 1024) /* small enough to be written while it is in the cache */
#define BYTES_PER_MIB (1024 * 1024)
#define US_PER_S 1e6
#define SCALE_MAX UINT64_C(1000000000)
#define NPY_HEADER_BYTES_MAX 1024
#define VERSION_PATH_BYTES 4096

static const char usage[] =
    "Usage: embag make-model --workload NAME [--scale N] [--version N] DIR\n"
    "       embag make-model --example spec [--version N] DIR\n"
    "Writes a model into the model repository DIR, as DIR/MODEL/VERSION/TABLE.npy.\n"
    "\n"
    "  --workload NAME        dlrm-v2, rm1, rm2, rm3, tbe, rows, or wide-26, wide-200 or wide-856\n"
    "                         with that many small tables. The tables are f32 and are called t00,\n"
    "                         t01, ...; their values are a published hash of table, row, column\n"
    "                         and version\n"
    "  --scale N              divide the number of rows of every table by N (default 1)\n"
    "  --example spec         the 5x2 table emb_table of the specification's examples\n"
    "  --version N            version to write (default 1); an existing one is not overwritten\n"
    "Exit status: 0; 1 if the model cannot be written; 2 for a usage error.\n";

struct options {
    const char *workload;
    const char *example;
    const char *directory;
    uint64_t scale;
    uint64_t version;
};

#define AT(field) offsetof(struct options, field)
static const struct eb_flag flags[] = {
    {"workload", EB_FLAG_TEXT, AT(workload), 0, 0, NULL},
    {"example", EB_FLAG_TEXT, AT(example), 0, 0, NULL},
    {"scale", EB_FLAG_NUMBER, AT(scale), 1, SCALE_MAX, NULL},
    {"version", EB_FLAG_NUMBER, AT(version), 1, INT64_MAX, NULL},
    {"DIR", EB_FLAG_POSITIONAL, AT(directory), 0, 0, NULL},
};
#undef AT

static const struct eb_command command = {
    "make-model", {usage}, flags, sizeof flags / sizeof flags[0]};

/* ---- a version directory that is being written ---- */

/* Writes a version. Its tables go into a directory whose name begins with a dot, which servers
 * ignore. The directory is renamed to its final name when it is complete. */
struct version_writer {
    char final_path[VERSION_PATH_BYTES]; /* DIR/MODEL/VERSION */
    char path[VERSION_PATH_BYTES];       /* DIR/MODEL/.VERSION.XXXXXX */
    bool opened;
    int file; /* the table being written; -1: none */
};

/* The version to write. Its size is known beforehand, so that a lack of space shows before the
 * first byte is written. */
struct version_plan {
    const char *directory; /* created if it does not exist */
    const char *model;
    uint64_t version;
    uint64_t bytes;
};

/* Prints what failed, with the reason from errno. Always returns false. */
static bool refuse_writer(const char *what, const char *path)
{
    fprintf(stderr, "embag: cannot %s %s: %s\n", what, path, strerror(errno));
    return false;
}

static bool make_directory(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST || refuse_writer("create the directory", path);
}

/* Creates a directory and its missing parents. */
static bool make_directories(const char *path)
{
    char part[VERSION_PATH_BYTES];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (!make_directory(part)) {
            return false;
        }
        *slash = '/';
    }
    return make_directory(part);
}

static bool check_space(const char *path, uint64_t bytes)
{
    struct statvfs file_system;
    if (statvfs(path, &file_system) != 0) {
        return refuse_writer("get the free space of", path);
    }
    uint64_t free_bytes = (uint64_t)file_system.f_bavail * file_system.f_frsize;
    if (free_bytes < bytes) {
        fprintf(stderr,
            "embag: %s: %" PRIu64 " MiB are needed, but only %" PRIu64
            " MiB are free: use a larger --scale or another disk\n",
            path, bytes / BYTES_PER_MIB + 1, free_bytes / BYTES_PER_MIB);
        return false;
    }
    return true;
}

/* Sets both paths of the writer. Leaves room for a file's name after them. */
static bool set_paths(struct version_writer *writer, const struct version_plan *plan)
{
    int length = snprintf(writer->final_path, sizeof writer->final_path, "%s/%s/%" PRIu64,
        plan->directory, plan->model, plan->version);
    if (length < 0 || (size_t)length + NAME_MAX > sizeof writer->final_path) {
        errno = ENAMETOOLONG;
        return refuse_writer("use the path", plan->directory);
    }
    snprintf(writer->path, sizeof writer->path, "%s/%s/.%" PRIu64 ".XXXXXX", plan->directory,
        plan->model, plan->version);
    return true;
}

/* Creates the directories. Returns false, after printing an error to stderr, if the version exists,
 * the file system has too little space, or a directory cannot be created. */
static bool open_version(struct version_writer *writer, const struct version_plan *plan)
{
    memset(writer, 0, sizeof *writer);
    writer->file = -1;
    if (!set_paths(writer, plan)) {
        return false;
    }
    char *model_end = strrchr(writer->final_path, '/');
    *model_end = '\0';
    bool ready =
        make_directories(writer->final_path) && check_space(writer->final_path, plan->bytes);
    *model_end = '/';
    if (!ready) {
        return false;
    }
    if (access(writer->final_path, F_OK) == 0) {
        errno = EEXIST;
        return refuse_writer("write", writer->final_path);
    }
    if (!mkdtemp(writer->path)) {
        return refuse_writer("create the directory", writer->path);
    }
    writer->opened = true;
    /* mkdtemp gives access to this user only, but the server may run as another. */
    return chmod(writer->path, 0755) == 0 || refuse_writer("set the permissions of", writer->path);
}

/* Removes the directory and its files. Ignores failures: servers ignore what is left. */
static void remove_all(const char *path)
{
    DIR *directory = opendir(path);
    if (!directory) {
        return;
    }
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] != '.') {
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
        }
    }
    (void)closedir(directory);
    (void)rmdir(path);
}

/* Removes an unfinished version. Accepts a writer that did not open. */
static void close_version(struct version_writer *writer)
{
    if (writer->file >= 0) {
        (void)close(writer->file);
        writer->file = -1;
    }
    if (writer->opened) {
        remove_all(writer->path);
        writer->opened = false;
    }
}

static bool append_to_version(struct version_writer *writer, const void *bytes, size_t count)
{
    const uint8_t *next = bytes;
    while (count > 0) {
        ssize_t written = write(writer->file, next, count);
        if (written < 0 && errno != EINTR) {
            return refuse_writer("write to", writer->path);
        }
        if (written > 0) {
            next += written;
            count -= (size_t)written;
        }
    }
    return true;
}

/* Begins TABLE.npy; the previous table must have ended. The header is made from the tensor's
 * storage, rank and dims. The data are appended afterwards, in any portions. This function and
 * those below return false, after printing an error to stderr, if they cannot write. */
static bool begin_version_table(
    struct version_writer *writer, const char *table, struct eb_tensor *tensor)
{
    uint8_t header[NPY_HEADER_BYTES_MAX];
    char path[VERSION_PATH_BYTES + NAME_MAX];
    assert(writer->opened && writer->file < 0);
    uint64_t header_bytes = eb_npy_header_write(tensor, header, sizeof header);
    assert(header_bytes > 0);
    snprintf(path, sizeof path, "%s/%s.npy", writer->path, table);
    writer->file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (writer->file < 0) {
        return refuse_writer("create", path);
    }
    return append_to_version(writer, header, header_bytes);
}

static bool end_version_table(struct version_writer *writer)
{
    int rc = close(writer->file);
    writer->file = -1;
    return rc == 0 || refuse_writer("write to", writer->path);
}

/* Renames a directory, but never replaces a version. Where the file system has no such rename (NFS,
 * for example), checks first that `to` does not exist. The rename can then replace at most an empty
 * directory that was created after the check. */
static bool rename_directory(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
        return true;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return false;
    }
    if (access(to, F_OK) == 0) {
        errno = EEXIST;
        return false;
    }
    return rename(from, to) == 0;
}

/* Renames the complete version to its final name. */
static bool finish_version(struct version_writer *writer)
{
    assert(writer->opened && writer->file < 0);
    if (!rename_directory(writer->path, writer->final_path)) {
        return refuse_writer("write", writer->final_path);
    }
    writer->opened = false;
    return true;
}

/* ---- the contents of a version ---- */

struct workload_plan {
    const struct eb_workload *workload;
    uint64_t scale;
    uint64_t version;
    float *chunk; /* room for CHUNK_BYTES */
    struct eb_progress_bar progress;
};

static bool write_rows(
    struct version_writer *writer, struct workload_plan *plan, uint64_t seed, uint64_t row_count)
{
    uint32_t dim = plan->workload->dim;
    uint64_t chunk_rows = CHUNK_BYTES / (dim * sizeof(float));
    for (uint64_t first = 0; first < row_count; first += chunk_rows) {
        uint64_t count = row_count - first < chunk_rows ? row_count - first : chunk_rows;
        for (uint64_t row = 0; row < count; row++) {
            eb_workload_fill_row(seed, first + row, plan->chunk + row * dim, dim);
        }
        if (!append_to_version(writer, plan->chunk, count * dim * sizeof(float))) {
            return false;
        }
        eb_progress_bar_advance(&plan->progress, count * dim * sizeof(float));
    }
    return true;
}

static bool write_made_table(
    struct version_writer *writer, struct workload_plan *plan, uint32_t table)
{
    char name[EB_WORKLOAD_TABLE_NAME_BYTES];
    struct eb_tensor tensor = {.storage = EB_STORAGE_F32, .rank = 2};
    eb_workload_table_name(table, name);
    tensor.dims[0] = eb_workload_rows(plan->workload, table, plan->scale);
    tensor.dims[1] = plan->workload->dim;
    return begin_version_table(writer, name, &tensor) &&
           write_rows(writer, plan, eb_workload_seed(name, plan->version), tensor.dims[0]) &&
           end_version_table(writer);
}

static bool write_made_tables(struct version_writer *writer, void *context)
{
    struct workload_plan *plan = context;
    for (uint32_t table = 0; table < plan->workload->table_count; table++) {
        if (!write_made_table(writer, plan, table)) {
            return false;
        }
    }
    return true;
}

static bool write_example(struct version_writer *writer, void *context)
{
    static const float values[5][2] = {
        {-0.2f, -0.6f}, {-0.1f, -0.4f}, {-1.9f, -1.8f}, {-1.0f, 1.5f}, {0.8f, -0.7f}};
    struct eb_tensor tensor = {.storage = EB_STORAGE_F32, .rank = 2, .dims = {5, 2}};
    (void)context;
    return begin_version_table(writer, "emb_table", &tensor) &&
           append_to_version(writer, values, sizeof values) && end_version_table(writer);
}

/* Opens the version, calls `write` to fill it, and finishes it. Returns the exit status. */
static int write_made_version(const struct version_plan *plan,
    bool (*write)(struct version_writer *writer, void *context), void *context)
{
    struct version_writer writer;
    double start_us = eb_load_clock_read_us();
    bool written =
        open_version(&writer, plan) && write(&writer, context) && finish_version(&writer);
    close_version(&writer);
    if (!written) {
        return 1;
    }
    printf("%s: %.1f MiB in %.2f s\n", writer.final_path, (double)plan->bytes / BYTES_PER_MIB,
        (eb_load_clock_read_us() - start_us) / US_PER_S);
    return 0;
}

static int make_workload(const struct options *options, struct version_plan version)
{
    struct workload_plan plan = {.workload = eb_workload_find(options->workload),
        .scale = options->scale,
        .version = options->version};
    if (!plan.workload) {
        fprintf(stderr, "embag: --workload %s: not one of %s\n", options->workload,
            eb_workload_names());
        return 2;
    }
    for (uint32_t table = 0; table < plan.workload->table_count; table++) {
        version.bytes +=
            eb_workload_rows(plan.workload, table, plan.scale) * plan.workload->dim * sizeof(float);
    }
    version.model = plan.workload->name;
    eb_progress_bar_init(&plan.progress, version.model, version.bytes);
    plan.chunk = malloc(CHUNK_BYTES);
    if (!plan.chunk) {
        fprintf(stderr, "embag: out of memory for a buffer\n");
        return 1;
    }
    int status = write_made_version(&version, write_made_tables, &plan);
    free(plan.chunk);
    return status;
}

static int write_made_model(struct options *options)
{
    struct version_plan version = {.directory = options->directory};
    options->scale = options->scale != 0 ? options->scale : 1;
    options->version = options->version != 0 ? options->version : 1;
    version.version = options->version;
    if ((!options->workload) == (!options->example)) {
        fprintf(stderr, "embag: make-model: expected exactly one of --workload and --example\n");
        return 2;
    }
    if (options->workload) {
        return make_workload(options, version);
    }
    if (strcmp(options->example, "spec") != 0) {
        fprintf(stderr, "embag: --example %s: expected spec\n", options->example);
        return 2;
    }
    version.model = "spec";
    version.bytes = 5 * 2 * sizeof(float);
    return write_made_version(&version, write_example, NULL);
}

int eb_make_model_main(int argument_count, char **arguments)
{
    struct options options = {0};
    switch (eb_arguments_read(&command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: return write_made_model(&options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}
