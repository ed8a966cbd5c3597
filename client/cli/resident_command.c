#include "client/cli/commands.h"

#include "client/cli/arguments.h"
#include "client/cli/progress_bar.h"
#include "kernels/types.h"
#include "server/formats/tensor.h"
#include "server/tables/resident_reader.h"
#include "server/tables/served_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: embag resident list|check|clean DIRECTORY\n"
    "Shows, checks or deletes the tables that a server keeps in DIRECTORY, its resident_dir.\n"
    "\n"
    "  list      the files with their tables, and the versions that are served from them\n"
    "  check     compares all rows and indexes with their hashes\n"
    "  clean     deletes the files and the record of what is served; no server may use the\n"
    "            directory\n"
    "Exit status: 0; 1 if a file is damaged or cannot be read, or the directory cannot be\n"
    "used; 2 for a usage error.\n";

static const char *const tasks[] = {"", "list", "check", "clean", NULL};
enum task { LIST = 1, CHECK, CLEAN };

struct options {
    const char *task;
    const char *directory;
};

#define AT(field) offsetof(struct options, field)
static const struct eb_flag flags[] = {
    {"list, check or clean", EB_FLAG_POSITIONAL, AT(task), 0, 0, NULL},
    {"DIRECTORY", EB_FLAG_POSITIONAL, AT(directory), 0, 0, NULL},
};
#undef AT

static const struct eb_command command = {
    "resident", {usage}, flags, sizeof flags / sizeof flags[0]};

/* The task and the findings of a pass over the files. */
struct pass {
    struct eb_resident_dir *dir;
    bool is_check;
    size_t file_count;
    size_t damaged_count;
    size_t unread_count; /* files that this user may not read, and the like */
    uint64_t bytes;
};

static void print_tables(const struct eb_resident_reader *reader)
{
    printf("%s  %" PRIu64 " bytes  from %s by embag %s\n", reader->name, reader->bytes,
        reader->footer.source, reader->footer.embag_version);
    for (size_t i = 0; i < reader->footer.table_count; i++) {
        const struct eb_resident_table *table = &reader->footer.tables[i];
        struct eb_tensor tensor = {.storage = table->storage, .rank = table->rank};
        char shape[EB_TENSOR_SHAPE_BYTES];
        memcpy(tensor.dims, table->dims, sizeof tensor.dims);
        eb_tensor_shape_text(&tensor, shape);
        printf("    %s  %s%s  %s\n", table->name, eb_storage_name(table->storage), shape,
            table->index_bytes > 0 ? "keyed" : "");
    }
}

/* Lists or checks one file. */
static void visit_file(struct pass *pass, const char *name)
{
    struct eb_failure failure;
    struct eb_resident_reader reader;
    bool is_good = eb_resident_reader_open(&reader, pass->dir, name, &failure);
    bool is_unread = !is_good && failure.is_transient;
    if (!is_good && failure.text[0] == '\0') {
        return; /* the server has just deleted it */
    }
    pass->file_count++;
    if (is_good) {
        pass->bytes += reader.bytes;
        if (pass->is_check) {
            is_good = eb_resident_reader_check(&reader, 1, &failure);
        } else {
            print_tables(&reader);
        }
        eb_resident_reader_close(&reader);
    }
    if (!is_good) {
        pass->unread_count += is_unread;
        pass->damaged_count += !is_unread;
        fprintf(stderr, "embag: %s/%s: %s\n", pass->dir->path, name, failure.text);
    }
}

static bool visit_name(void *context, const char *name)
{
    enum eb_resident_kind kind;
    uint64_t key;
    if (eb_resident_dir_parse(name, &kind, &key)) {
        visit_file(context, name);
    }
    return true;
}

/* Prints the versions of the record. Returns false if there is one that is not sound. */
static bool print_record(const struct eb_resident_dir *dir, struct eb_failure *failure)
{
    struct eb_served_record record;
    if (!eb_served_record_read(dir, &record, failure)) {
        return failure->text[0] == '\0';
    }
    for (size_t i = 0; i < record.model_count; i++) {
        const struct eb_served_model *model = &record.models[i];
        for (size_t k = 0; k < model->version_count; k++) {
            const struct eb_served_version *version = &model->versions[k];
            printf("model %s version %" PRIu64 "%s: %zu tables%s\n", model->name, version->version,
                k == 0 ? ", served" : "", version->table_count,
                version->is_complete ? "" : ", others are not in files");
        }
    }
    eb_served_record_deinit(&record);
    return true;
}

/* Lists or checks all files. Returns the exit status. */
static int visit_all(const char *directory, bool is_check)
{
    struct eb_failure failure = {0};
    struct eb_resident_dir dir;
    if (!eb_resident_dir_open_reader(&dir, directory, &failure)) {
        fprintf(stderr, "embag: %s\n", failure.text);
        return 1;
    }
    struct pass pass = {.dir = &dir, .is_check = is_check};
    bool is_good = eb_resident_dir_list(&dir, visit_name, &pass, &failure) &&
                   (is_check || print_record(&dir, &failure));
    if (!is_good) {
        fprintf(stderr, "embag: %s\n", failure.text);
    } else {
        printf("%s: %zu files, %" PRIu64 " bytes, %zu damaged", dir.path, pass.file_count,
            pass.bytes, pass.damaged_count);
        if (pass.unread_count > 0) {
            printf(", %zu not read", pass.unread_count);
        }
        printf("\n");
    }
    eb_resident_dir_close(&dir);
    return is_good && pass.damaged_count + pass.unread_count == 0 ? 0 : 1;
}

/* Opens a directory that exists. Does not make it, as a server would. */
static bool open_to_clean(
    struct eb_resident_dir *dir, const char *directory, struct eb_failure *failure)
{
    if (!eb_resident_dir_open_reader(dir, directory, failure)) {
        return false;
    }
    eb_resident_dir_close(dir);
    return eb_resident_dir_open(dir, directory, false, failure);
}

/* Deletes all files and the record. Returns the exit status. */
static int clean(const char *directory)
{
    struct eb_failure failure;
    struct eb_resident_dir dir;
    if (!open_to_clean(&dir, directory, &failure)) {
        fprintf(stderr, "embag: %s\n", failure.text);
        return 1;
    }
    bool is_owner = atomic_load(&dir.is_owner);
    if (is_owner) {
        eb_resident_dir_unlink(&dir, EB_SERVED_RECORD_NAME);
        uint64_t bytes = eb_resident_dir_sweep(&dir, NULL, NULL);
        eb_resident_dir_end_start(&dir);
        printf("%s: %" PRIu64 " bytes deleted\n", dir.path, bytes);
    } else {
        fprintf(stderr, "embag: %s: a server uses it; stop the server first\n", dir.path);
    }
    eb_resident_dir_close(&dir);
    return is_owner ? 0 : 1;
}

/* Returns the task with this name, or 0 if no task has it. */
static int find_task(const char *name)
{
    for (int i = LIST; tasks[i]; i++) {
        if (strcmp(name, tasks[i]) == 0) {
            return i;
        }
    }
    return 0;
}

int eb_resident_command_main(int argument_count, char **arguments)
{
    struct options options = {0};
    switch (eb_arguments_read(&command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: break;
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    switch (find_task(options.task)) {
    case LIST: return visit_all(options.directory, false);
    case CHECK: return visit_all(options.directory, true);
    case CLEAN: return clean(options.directory);
    default: break;
    }
    fprintf(stderr, "embag resident: unknown task \"%s\": expected list, check or clean\n",
        options.task);
    return 2;
}
