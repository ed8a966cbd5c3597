#include "client/cli/check_command.h"

#include "client/cli/arguments.h"
#include "client/cli/check_file.h"
#include "client/cli/output.h"
#include "server/base/directory.h"
#include "server/contents/file_name.h"
#include "server/contents/model_config.h"
#include "server/tables/set_load.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Of the server's settings of these names (server/base/limits.h). */
#define ROW_BYTES_DEFAULT 65536
#define ROW_BYTES_LEAST 4
#define ROW_BYTES_MOST 16777216
#define NAME_BYTES_DEFAULT 255
#define NAME_BYTES_LEAST 1
#define NAME_BYTES_MOST 4096

static const char usage[] =
    "Usage: embag check [OPTION]... FILE|DIRECTORY...\n"
    "Checks files of tables, NAME.npy, NAME.safetensors and NAME.embag, and of keys,\n"
    "NAME.keys.npy, and tells the memory that each table will need. Of a packed table every byte "
    "is\n"
    "checked. A DIRECTORY is a version of a model, MODEL/VERSION: its files are checked, and then\n"
    "it is loaded as the server would load it, by MODEL/model.yaml and into as much memory.\n"
    "\n"
    "  --row-bytes-max N      as that server has it set; 65536\n"
    "  --name-bytes-max N     as that server has it set; 255\n"
    "Exit status: 0, 1 where something is not sound, 2 for a usage error.\n";

struct options {
    uint64_t row_bytes_max;
    uint64_t name_bytes_max;
    struct eb_flag_rest paths;
};

#define AT(field) offsetof(struct options, field)
static const struct eb_flag flags[] = {
    {"row-bytes-max", EB_FLAG_NUMBER, AT(row_bytes_max), ROW_BYTES_LEAST, ROW_BYTES_MOST, NULL},
    {"name-bytes-max", EB_FLAG_NUMBER, AT(name_bytes_max), NAME_BYTES_LEAST, NAME_BYTES_MOST, NULL},
    {"FILE or DIRECTORY", EB_FLAG_REST, AT(paths), 0, 0, NULL},
};
#undef AT

static const struct eb_command command = {"check", usage, flags, sizeof flags / sizeof flags[0]};

/* Always false. */
static bool complain(const struct eb_failure *failure)
{
    /* Results go before what is wrong with the next. */
    fflush(stdout);
    fprintf(stderr, "embag: %s\n", failure->text);
    return false;
}

static bool check_file(const char *path)
{
    struct eb_failure failure;
    if (eb_check_file(path, &failure)) {
        return true;
    }
    eb_failure_locate(&failure, path);
    return complain(&failure);
}

/* Returns whether the server would read a file of this name. */
static bool is_read(const char *name, const struct eb_model_config *config)
{
    const struct eb_file_name parsed = eb_file_name_parse(name);
    if (!eb_check_file_is_known(name) || parsed.kind == EB_FILE_SAFETENSORS) {
        return eb_check_file_is_known(name);
    }
    char table[NAME_BYTES_MOST + 2]; /* a longer name is too long too */
    snprintf(table, sizeof table, "%.*s", (int)parsed.base_bytes, name);
    return eb_model_config_selects(config, table);
}

/* Checks all files that the server would read; *error is that of one that has no path. */
static bool check_files(const char *path, const struct eb_model_config *config, bool *is_sound,
    struct eb_failure *failure)
{
    struct eb_directory listing;
    if (!eb_directory_read(path, &listing, failure)) {
        return false;
    }
    bool is_good = true;
    for (size_t i = 0; is_good && i < listing.count; i++) {
        const char *name = listing.entries[i]->d_name;
        char *file = eb_directory_join(path, name, failure);
        is_good = file;
        if (is_good && is_read(name, config) && !check_file(file)) {
            *is_sound = false;
        }
        free(file);
    }
    eb_directory_deinit(&listing);
    return is_good;
}

static void print_note(const char *path, const struct eb_load_note *note, const char *what)
{
    if (note->count > 0) {
        printf("%s: %zu %s, %s\n", eb_output_printable(path).bytes, note->count, what,
            eb_output_printable(note->named.text).bytes);
    }
}

static void print_check_notes(const char *path, const struct eb_load_notes *notes)
{
    print_note(path, &notes->tensors, "tensors are no tables and passed over");
    print_note(path, &notes->files, "files of other formats are passed over");
    print_note(path, &notes->patterns, "patterns of only and exclude match no table");
}

/* Loads it, since much that the server would refuse shows only then: keys that are the same in two
 * files, values that have no codes, a default that is no key. */
static bool load_checked_model(
    const char *path, const struct eb_table_options *options, struct eb_failure *failure)
{
    struct eb_table_set set;
    bool is_loaded = eb_set_load(path, options, NULL, &set, failure);
    if (is_loaded) {
        print_check_notes(path, &set.notes);
        printf("%s: %zu tables, %" PRIu64 " bytes of memory\n", eb_output_printable(path).bytes,
            set.count, set.bytes);
        eb_table_set_deinit(&set);
    }
    return is_loaded;
}

/* Checks a version's files and loads it with `config`. false: *error. *is_sound becomes false if a
 * file is broken, which has been reported then. */
static bool check_described(const char *path, const struct options *options,
    const struct eb_model_config *config, bool *is_sound, struct eb_failure *failure)
{
    const struct eb_table_options tables = {
        .row_bytes_max = options->row_bytes_max,
        .name_bytes_max = (uint32_t)options->name_bytes_max,
        .config = config,
    };
    return check_files(path, config, is_sound, failure) &&
           (!*is_sound || load_checked_model(path, &tables, failure));
}

/* Checks a version's files and loads it as MODEL/model.yaml describes it. */
static bool check_directory(const char *path, const struct options *options)
{
    struct eb_failure failure;
    struct eb_model_config config = {0};
    bool is_sound = true;
    char *config_path = eb_directory_join(path, "../model.yaml", &failure);
    if (!config_path) {
        return complain(&failure);
    }
    bool is_good =
        eb_model_config_read(config_path, (uint32_t)options->name_bytes_max, &config, &failure) &&
        check_described(path, options, &config, &is_sound, &failure);
    free(config_path);
    eb_model_config_deinit(&config);
    return is_good ? is_sound : complain(&failure);
}

static bool check_path(const char *path, const struct options *options)
{
    struct eb_failure failure;
    bool is_directory;
    if (!eb_directory_test(path, &is_directory, &failure)) {
        return complain(&failure);
    }
    return is_directory ? check_directory(path, options) : check_file(path);
}

int eb_check_command_main(int argument_count, char **arguments)
{
    struct options options = {
        .row_bytes_max = ROW_BYTES_DEFAULT, .name_bytes_max = NAME_BYTES_DEFAULT};
    switch (eb_arguments_read(&command, argument_count, arguments, &options)) {
    case EB_ARGUMENTS_READ: break;
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    bool is_sound = true;
    for (size_t i = 0; i < options.paths.count; i++) {
        is_sound &= check_path(options.paths.texts[i], &options);
    }
    return is_sound ? 0 : 1;
}
