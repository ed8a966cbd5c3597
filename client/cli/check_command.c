#include "client/cli/commands.h"

#include "client/cli/arguments.h"
#include "client/cli/check_parts.h"
#include "client/cli/output.h"
#include "client/cli/pack_keys.h"
#include "client/cli/progress_bar.h"
#include "client/cli/source_file.h"
#include "kernels/key_index.h"
#include "kernels/table.h"
#include "server/base/directory.h"
#include "server/base/machine.h"
#include "server/contents/file_name.h"
#include "server/contents/model_config.h"
#include "server/tables/set_load.h"
#include "server/tables/table_memory.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Defaults and ranges of the server settings with these names (server/base/limits.h). */
#define ROW_BYTES_DEFAULT 65536
#define ROW_BYTES_LEAST 4
#define ROW_BYTES_MOST 16777216
#define NAME_BYTES_DEFAULT 255
#define NAME_BYTES_LEAST 1
#define NAME_BYTES_MOST 4096

#define KEYS_SUFFIX ".keys.npy"
/* Buckets of an index that are checked between two updates of the progress bar. */
#define BUCKETS_AT_ONCE 65536
#define KEYS_AT_ONCE 4096

static const char usage[] =
    "Usage: embag check [OPTION]... FILE|DIRECTORY...\n"
    "Checks table files (NAME.npy, NAME.safetensors, NAME.embag) and key files (NAME.keys.npy),\n"
    "and prints the memory that each table needs. Every byte of a packed table is checked.\n"
    "A DIRECTORY is a version of a model, MODEL/VERSION: its files are checked, and then it is\n"
    "loaded as the server would load it, with MODEL/model.yaml and into as much memory. The\n"
    "files of a version in parts are compared with its manifest instead.\n"
    "\n"
    "  --row-bytes-max N      the server's setting row_bytes_max (default 65536)\n"
    "  --name-bytes-max N     the server's setting name_bytes_max (default 255)\n"
    "Exit status: 0; 1 if a file is not valid; 2 for a usage error.\n";

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

static const struct eb_command command = {"check", {usage}, flags, sizeof flags / sizeof flags[0]};

/* ---- one file ---- */

static bool is_keys(const char *path)
{
    size_t length = strlen(path);
    size_t suffix = strlen(KEYS_SUFFIX);
    return length > suffix && strcmp(path + length - suffix, KEYS_SUFFIX) == 0;
}

static bool check_blocks(
    struct eb_packed_reader *reader, const char *path, struct eb_failure *failure)
{
    const struct eb_packed_format *format = &reader->format;
    struct eb_progress_bar bar;
    eb_progress_bar_init(&bar, path, format->file_bytes - format->head_bytes);
    uint64_t count = eb_packed_format_block_count(format);
    bool is_good = true;
    for (uint64_t block = 0; is_good && block < count; block++) {
        is_good = eb_packed_reader_check(reader, block, failure);
        eb_progress_bar_advance(&bar, eb_packed_format_block_bytes(format, block));
    }
    eb_progress_bar_end(&bar);
    return is_good;
}

/* The keys of a packed table and their index, as read. */
struct keyed {
    struct eb_pack_keys keys;
    /* Memory of the index and of `seen`, in large pages, because lookups in small ones are slow. */
    struct eb_table_memory memory;
    void *index;
    uint64_t index_bytes;
    uint64_t *seen;
};

static bool verify_index(const struct keyed *keyed, const struct eb_key_index *index,
    struct eb_progress_bar *bar, struct eb_failure *failure)
{
    uint64_t bucket_count = eb_key_index_bucket_count(index);
    uint64_t bucket_bytes = keyed->index_bytes / bucket_count;
    uint64_t bucket = 0;
    while (bucket < bucket_count) {
        uint64_t first = bucket;
        const char *reason;
        if (!eb_key_index_verify(index, keyed->seen, &bucket, BUCKETS_AT_ONCE, &reason)) {
            return eb_failure_set(failure,
                "its key index is invalid in bucket %" PRIu64 ": %s; pack the table again", bucket,
                reason);
        }
        eb_progress_bar_advance(bar, (bucket - first) * bucket_bytes);
    }
    eb_progress_bar_advance(bar, keyed->index_bytes - bar->done_bytes);
    return true;
}

/* Returns whether every key of the file leads to its row. If not, *failure is set. */
static bool find_file_rows(const struct eb_pack_keys *keys, const struct eb_key_index *index,
    struct eb_progress_bar *bar, struct eb_failure *failure)
{
    int64_t rows[KEYS_AT_ONCE];
    for (uint64_t first = 0; first < keys->count; first += KEYS_AT_ONCE) {
        uint64_t left = keys->count - first;
        uint64_t count = left < KEYS_AT_ONCE ? left : KEYS_AT_ONCE;
        memcpy(rows, keys->keys + first, count * sizeof rows[0]);
        eb_key_index_take_rows(index, -1, rows, count);
        for (uint64_t i = 0; i < count; i++) {
            if (rows[i] != (int64_t)(first + i)) {
                return eb_failure_set(failure,
                    "its key index maps key %" PRIi64 " of row %" PRIu64 " to row %" PRIi64
                    "; pack the table again",
                    keys->keys[first + i], first + i, rows[i]);
            }
        }
        eb_progress_bar_advance(bar, count * sizeof rows[0]);
    }
    return true;
}

/* Returns whether an index is sound and leads every key to its row, so that no key occurs twice. If
 * not, *failure is set. */
static bool check_file_index(const struct keyed *keyed, struct eb_failure *failure)
{
    const struct eb_pack_keys *keys = &keyed->keys;
    struct eb_progress_bar bar;
    struct eb_key_index index;
    const char *reason;
    if (!eb_key_index_open(&index, keyed->index, keyed->index_bytes, keys->count, &reason)) {
        return eb_failure_set(
            failure, "its key index is invalid: %s; pack the table again", reason);
    }
    eb_progress_bar_init(&bar, "key index", keyed->index_bytes + keys->count * sizeof *keys->keys);
    bool is_good =
        verify_index(keyed, &index, &bar, failure) && find_file_rows(keys, &index, &bar, failure);
    eb_progress_bar_end(&bar);
    return is_good;
}

static bool read_file_index(
    struct keyed *keyed, struct eb_packed_reader *reader, struct eb_failure *failure)
{
    const struct eb_packed_section *section = &reader->format.sections[EB_PACKED_KEY_INDEX];
    keyed->index_bytes = section->bytes;
    keyed->index = eb_table_memory_take(&keyed->memory, section->bytes, failure);
    keyed->seen = keyed->index ? eb_table_memory_take(&keyed->memory,
                                     eb_key_index_seen_bytes(keyed->keys.count) + 1, failure)
                               : NULL;
    if (!keyed->seen) {
        return false;
    }
    return eb_packed_reader_read(reader, section->offset, keyed->index, section->bytes, failure);
}

/* Checks the keys of a packed table that has some. Sets *index_bytes to the size of their index. */
static bool check_packed_keys(
    struct eb_packed_reader *reader, uint64_t *index_bytes, struct eb_failure *failure)
{
    struct keyed keyed = {0};
    bool has_index = reader->format.sections[EB_PACKED_KEY_INDEX].bytes > 0;
    bool is_good = eb_pack_keys_unpack(&keyed.keys, reader, failure);
    if (is_good && has_index) {
        is_good = read_file_index(&keyed, reader, failure) && check_file_index(&keyed, failure);
    } else if (is_good) {
        is_good = eb_pack_keys_index(&keyed.keys, failure);
    }
    *index_bytes = has_index ? keyed.index_bytes : keyed.keys.index_bytes;
    eb_pack_keys_deinit(&keyed.keys);
    eb_table_memory_deinit(&keyed.memory);
    return is_good;
}

/* Prints which rows of its table a file holds, unless it holds all of them: ", from row 5 of part 1
 * of 3 of a table of 100 rows". */
static void print_place(const struct eb_packed_format *format)
{
    if (eb_packed_format_is_whole(format)) {
        return;
    }
    if (format->by_key) {
        printf(", part %" PRIu32 " of %" PRIu32 " by keys of", format->part, format->parts);
    } else {
        printf(", from row %" PRIu64 " of", format->row_first);
    }
    if (format->parts > 1 && !format->by_key) {
        printf(" part %" PRIu32 " of %" PRIu32 " of", format->part, format->parts);
    }
    printf(" a table of %" PRIu64 " row%s", format->rows_total, format->rows_total == 1 ? "" : "s");
}

/* Prints "PATH: table NAME, (5, 2) of f32, stored as int8", without a newline. */
static void print_table(const char *path, const struct eb_source_table *table)
{
    char shape[EB_TENSOR_SHAPE_BYTES];
    eb_tensor_shape_text(&table->tensor, shape);
    printf("%s: table %s, %s of %s, stored as %s", eb_output_printable(path).bytes,
        eb_output_printable(table->name).bytes, shape, eb_type_name(table->type),
        eb_storage_name(table->tensor.storage));
}

static bool check_file_packed(
    struct eb_source_file *source, const char *path, struct eb_failure *failure)
{
    struct eb_packed_reader *reader = &source->reader;
    const struct eb_packed_format *format = &reader->format;
    uint64_t index_bytes = 0;
    bool is_keyed = eb_packed_format_is_keyed(format);
    if (!check_blocks(reader, path, failure) ||
        (is_keyed && !check_packed_keys(reader, &index_bytes, failure))) {
        return false;
    }
    uint64_t footprint =
        eb_table_memory_footprint(eb_table_memory_join(format->tensor.data_bytes, index_bytes));
    print_table(path, &source->tables[0]);
    print_place(format);
    printf("%s, %" PRIu64 " bytes of memory; digest %016" PRIx64 ", all bytes verified\n",
        is_keyed ? ", keyed" : "", footprint, format->digest);
    return true;
}

/* Checks and prints the tables of a file whose format has no checksums. */
static bool check_plain(
    const struct eb_source_file *source, const char *path, struct eb_failure *failure)
{
    for (size_t i = 0; i < source->table_count; i++) {
        const struct eb_source_table *table = &source->tables[i];
        if (table->unfit) {
            printf("%s: tensor %s is skipped: %s\n", eb_output_printable(path).bytes,
                eb_output_printable(table->name).bytes, table->unfit);
            continue;
        }
        uint64_t elements = eb_tensor_row_elements(&table->tensor);
        if (elements > UINT32_MAX) {
            return eb_failure_set(failure,
                "rows of table '%.64s' have %" PRIu64 " values, at most 2^32 - 1 are allowed",
                table->name, elements);
        }
        uint64_t stride = eb_row_format_of(table->tensor.storage, (uint32_t)elements).stride_bytes;
        print_table(path, table);
        printf(", %" PRIu64 " bytes of memory; no checksums, header verified\n",
            eb_table_memory_footprint(table->tensor.dims[0] * stride));
    }
    return true;
}

static bool check_file_keys(const char *path, struct eb_failure *failure)
{
    struct eb_pack_keys keys;
    bool is_good = eb_pack_keys_read(&keys, path, failure) && eb_pack_keys_index(&keys, failure);
    if (is_good) {
        printf("%s: %" PRIu64 " keys, %" PRIu64 " bytes of memory; all keys differ\n",
            eb_output_printable(path).bytes, keys.count,
            eb_table_memory_footprint(keys.index_bytes));
    }
    eb_pack_keys_deinit(&keys);
    return is_good;
}

bool eb_check_file(const char *path, struct eb_failure *failure)
{
    if (is_keys(path)) {
        return check_file_keys(path, failure);
    }
    struct eb_source_file source;
    bool is_good = eb_source_file_open(&source, path, failure) &&
                   (source.is_packed ? check_file_packed(&source, path, failure)
                                     : check_plain(&source, path, failure));
    eb_source_file_close(&source);
    return is_good;
}

/* ---- the command ---- */

/* Prints an error. Always returns false. */
static bool complain(const struct eb_failure *failure)
{
    /* Keeps results and errors in order. */
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
    struct eb_file_name parsed = eb_file_name_parse(name);
    if (!eb_source_file_is_known(name) || parsed.kind == EB_FILE_SAFETENSORS) {
        return eb_source_file_is_known(name);
    }
    char table[NAME_BYTES_MOST + 2]; /* a name cut off here is still too long */
    snprintf(table, sizeof table, "%.*s", (int)parsed.base_bytes, name);
    return eb_model_config_selects(config, table);
}

/* Checks all files that the server would read. Prints the error of each broken file and clears
 * *is_sound if there is one. Returns false with *failure set if the directory cannot be read or
 * memory runs out. */
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
        printf("%s: %s (%zu): %s\n", eb_output_printable(path).bytes, what, note->count,
            eb_output_printable(note->named.text).bytes);
    }
}

static void print_check_notes(const char *path, const struct eb_load_notes *notes)
{
    print_note(path, &notes->tensors, "tensors skipped, which are not tables");
    print_note(path, &notes->files, "files skipped, which have another format");
    print_note(path, &notes->patterns, "patterns of only and exclude that match no table");
}

/* Loads the version, because much that the server would refuse shows only then: a key that occurs
 * in two files, values that have no codes, a default that is not a key. */
static bool load_checked_model(
    const char *path, const struct eb_table_options *options, struct eb_failure *failure)
{
    struct eb_table_set set;
    bool is_loaded = eb_set_load(path, options, NULL, &set, failure);
    if (is_loaded) {
        print_check_notes(path, &set.notes);
        printf("%s: %zu table%s, %" PRIu64 " bytes of memory\n", eb_output_printable(path).bytes,
            set.count, set.count == 1 ? "" : "s", set.bytes);
        eb_table_set_deinit(&set);
    }
    return is_loaded;
}

/* Checks a version's files and loads it with `config`. Returns false with *failure set. Clears
 * *is_sound if a file is broken; its error has been printed. */
static bool check_described(const char *path, const struct options *options,
    const struct eb_model_config *config, bool *is_sound, struct eb_failure *failure)
{
    struct eb_table_options tables = {
        .row_bytes_max = options->row_bytes_max,
        .name_bytes_max = (uint32_t)options->name_bytes_max,
        .load_threads = eb_machine_cpu_count(""),
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
    if (eb_check_parts_is(path)) {
        return eb_check_parts(path, &is_sound, &failure) ? is_sound : complain(&failure);
    }
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
    if (!is_directory && access(path, F_OK) != 0) {
        eb_failure_set(
            &failure, "%s: it cannot be opened (%s); check the path", path, strerror(errno));
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
