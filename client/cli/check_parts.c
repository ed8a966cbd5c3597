#include "client/cli/check_parts.h"

#include "client/cli/commands.h"
#include "client/cli/output.h"
#include "server/base/directory.h"
#include "server/contents/file_name.h"
#include "server/formats/manifest_text.h"
#include "server/formats/packed_reader.h"
#include "server/formats/parts_manifest.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_AT_ONCE 4096

/* A version that is being checked. */
struct checking {
    const char *directory;
    const struct eb_parts_manifest *manifest;
    bool is_sound;
    struct eb_failure *failure;
};

/* ---- one file ---- */

/* Returns whether the keys in the file belong to its part. The last row may stand for unknown
 * keys, whose part is any. */
static bool check_part_keys(struct eb_packed_reader *reader, struct eb_failure *failure)
{
    const struct eb_packed_format *format = &reader->format;
    struct eb_part_rule rule = {format->parts, true, format->salt};
    uint64_t rows = format->tensor.dims[0] - (format->unknown_row >= 0);
    int64_t keys[KEYS_AT_ONCE];
    for (uint64_t first = 0; first < rows; first += KEYS_AT_ONCE) {
        uint64_t count = rows - first < KEYS_AT_ONCE ? rows - first : KEYS_AT_ONCE;
        uint64_t offset = format->sections[EB_PACKED_KEYS].offset + first * sizeof keys[0];
        if (!eb_packed_reader_read(reader, offset, keys, count * sizeof keys[0], failure)) {
            return false;
        }
        for (uint64_t i = 0; i < count; i++) {
            if (eb_part_of(&rule, keys[i]) != format->part) {
                return eb_failure_set(failure,
                    "row %" PRIu64 ": key %" PRId64 " belongs to part %" PRIu32 ", not to %" PRIu32
                    "; split the version again",
                    first + i, keys[i], eb_part_of(&rule, keys[i]), format->part);
            }
        }
    }
    return true;
}

/* Returns whether the row for unknown keys has the key that the manifest names, if it names one. */
static bool check_unknown_key(
    struct eb_packed_reader *reader, const struct eb_parts_table *table, struct eb_failure *failure)
{
    const struct eb_packed_format *format = &reader->format;
    uint64_t row = format->by_key ? format->tensor.dims[0] - 1 : table->unknown_row;
    uint64_t offset = format->sections[EB_PACKED_KEYS].offset;
    int64_t key;
    if (!table->has_unknown_key) {
        return true;
    }
    if (format->sections[EB_PACKED_KEYS].bytes / sizeof key <= row) {
        return eb_failure_set(failure, "it has no key of row %" PRIu64, row);
    }
    return eb_packed_reader_read(reader, offset + row * sizeof key, &key, sizeof key, failure) &&
           (key == table->unknown_key ||
               eb_failure_set(failure,
                   "the row for unknown keys has the key %" PRId64
                   ", but the manifest says %" PRId64 "; split the version again",
                   key, table->unknown_key));
}

/* Compares a file, whose bytes are sound, with the manifest. Adds its rows to *rows. */
static bool compare_file(const struct checking *checking, const struct eb_parts_table *table,
    uint32_t number, const char *path, uint64_t *rows)
{
    struct eb_table_file file;
    struct eb_packed_reader reader;
    struct eb_failure *failure = checking->failure;
    if (!eb_table_file_open(path, &file, failure)) {
        return false;
    }
    bool is_good = eb_packed_reader_open(&reader, &file, failure);
    if (is_good) {
        const struct eb_packed_format *format = &reader.format;
        *rows += format->tensor.dims[0] - (format->by_key && format->unknown_row >= 0);
        is_good = eb_parts_manifest_check(checking->manifest, table, number, format, failure) &&
                  (!format->by_key || check_part_keys(&reader, failure)) &&
                  check_unknown_key(&reader, table, failure);
        eb_packed_reader_close(&reader);
    }
    eb_table_file_close(&file);
    return is_good;
}

/* Prints what is wrong with a file. */
static void complain_of(struct checking *checking, const char *path)
{
    checking->is_sound = false;
    eb_failure_locate(checking->failure, path);
    fprintf(stderr, "embag: %s\n", checking->failure->text);
}

/* Returns the path of a table's file, which the caller frees; NULL with *failure set if out of
 * memory. */
static char *find_file_path(
    const struct checking *checking, const struct eb_parts_table *table, uint32_t number)
{
    char folder[EB_PART_FOLDER_BYTES] = "";
    const char *separator = "";
    char *path;
    if (table->placement != EB_PLACEMENT_EVERYWHERE) {
        uint32_t part = table->placement == EB_PLACEMENT_WHOLE ? table->part : number;
        eb_part_folder_name(part, checking->manifest->parts, folder);
        separator = "/";
    }
    if (asprintf(&path, "%s/%s%s%s" EB_PACKED_FORMAT_SUFFIX, checking->directory, folder, separator,
            table->name) < 0) {
        eb_failure_set(checking->failure, "out of memory");
        return NULL;
    }
    return path;
}

/* ---- tables and folders ---- */

static bool check_parts_table(struct checking *checking, const struct eb_parts_table *table)
{
    uint64_t rows = 0;
    bool was_sound = checking->is_sound;
    checking->is_sound = true;
    for (uint32_t i = 0; i < table->digest_count; i++) {
        char *path = find_file_path(checking, table, i);
        if (!path) {
            return false;
        }
        if (!eb_check_file(path, checking->failure) ||
            !compare_file(checking, table, i, path, &rows)) {
            complain_of(checking, path);
        }
        free(path);
    }
    bool is_unknown_apart = table->placement == EB_PLACEMENT_ROWS && table->is_keyed;
    uint64_t rows_total = table->rows_total - (is_unknown_apart && table->has_unknown_row);
    if (checking->is_sound && rows != rows_total) {
        eb_failure_set(checking->failure,
            "its parts have %" PRIu64 " rows, but the manifest lists %" PRIu64
            "; split the version again",
            rows, rows_total);
        complain_of(checking, table->name);
    }
    checking->is_sound = checking->is_sound && was_sound;
    return true;
}

/* Returns whether the manifest has a table of the file's name that lies in the folder: in a part,
 * or everywhere if part is UINT32_MAX. */
static bool is_listed(const struct eb_parts_manifest *manifest, const char *file, uint32_t part)
{
    struct eb_file_name parsed = eb_file_name_parse(file);
    char *name = strndup(file, parsed.base_bytes);
    const struct eb_parts_table *table = name ? eb_parts_manifest_find(manifest, name) : NULL;
    free(name);
    if (!table || parsed.kind != EB_FILE_PACKED || parsed.is_split) {
        return false;
    }
    switch (table->placement) {
    case EB_PLACEMENT_EVERYWHERE: return part == UINT32_MAX;
    case EB_PLACEMENT_WHOLE: return part == table->part;
    case EB_PLACEMENT_ROWS:
    case EB_PLACEMENT_COUNT: break;
    }
    return part != UINT32_MAX;
}

/* Complains of table files that the manifest does not list. */
static bool check_folder(struct checking *checking, const char *folder, uint32_t part)
{
    struct eb_directory listing;
    char *path = eb_directory_join(checking->directory, folder, checking->failure);
    bool is_good = path && eb_directory_read(path, &listing, checking->failure);
    for (size_t i = 0; is_good && i < listing.count; i++) {
        const char *name = listing.entries[i]->d_name;
        if (eb_file_name_parse(name).kind != EB_FILE_OTHER &&
            !is_listed(checking->manifest, name, part)) {
            eb_failure_set(checking->failure,
                "%s: the manifest does not list this file here; remove it", name);
            complain_of(checking, path);
        }
    }
    if (is_good) {
        eb_directory_deinit(&listing);
    }
    free(path);
    return is_good;
}

static bool check_parts_files(struct checking *checking)
{
    const struct eb_parts_manifest *manifest = checking->manifest;
    bool is_good = check_folder(checking, ".", UINT32_MAX);
    for (uint32_t part = 0; is_good && part < manifest->parts; part++) {
        char folder[EB_PART_FOLDER_BYTES];
        eb_part_folder_name(part, manifest->parts, folder);
        is_good = check_folder(checking, folder, part);
    }
    for (size_t i = 0; is_good && i < manifest->count; i++) {
        is_good = check_parts_table(checking, &manifest->tables[i]);
    }
    return is_good;
}

/* ---- the version ---- */

/* Reads the manifest's bytes; the caller frees them. Returns NULL with *failure set if there is no
 * manifest or if it cannot be read. */
static uint8_t *read_manifest_bytes(
    const char *directory, size_t *yaml_bytes, struct eb_failure *failure)
{
    struct eb_table_file file;
    uint8_t *yaml = NULL;
    char *path = eb_directory_join(directory, EB_MANIFEST_NAME, failure);
    if (path && eb_table_file_open(path, &file, failure)) {
        yaml = eb_manifest_text_read(&file, failure);
        *yaml_bytes = file.bytes;
        eb_table_file_close(&file);
    }
    if (path && !yaml) {
        eb_failure_locate(failure, path);
    }
    free(path);
    return yaml;
}

bool eb_check_parts_is(const char *directory)
{
    struct eb_failure failure;
    size_t yaml_bytes = 0;
    uint8_t *yaml = read_manifest_bytes(directory, &yaml_bytes, &failure);
    bool is_it = yaml && eb_parts_manifest_is(yaml, yaml_bytes);
    free(yaml);
    return is_it;
}

bool eb_check_parts(const char *directory, bool *is_sound, struct eb_failure *failure)
{
    struct eb_parts_manifest manifest;
    size_t yaml_bytes = 0;
    uint8_t *yaml = read_manifest_bytes(directory, &yaml_bytes, failure);
    if (!yaml) {
        return false;
    }
    bool is_parsed = eb_parts_manifest_parse(yaml, yaml_bytes, &manifest, failure);
    free(yaml);
    if (!is_parsed) {
        eb_failure_locate(failure, EB_MANIFEST_NAME);
        return eb_failure_locate(failure, directory);
    }
    struct checking checking = {directory, &manifest, true, failure};
    bool is_good = check_parts_files(&checking);
    if (is_good && checking.is_sound) {
        printf("%s: %" PRIu32 " part%s and %zu table%s are as the manifest lists them\n",
            eb_output_printable(directory).bytes, manifest.parts, manifest.parts == 1 ? "" : "s",
            manifest.count, manifest.count == 1 ? "" : "s");
    }
    *is_sound = *is_sound && checking.is_sound;
    eb_parts_manifest_deinit(&manifest);
    return is_good;
}
