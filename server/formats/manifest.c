#include "server/formats/manifest.h"

#include "server/base/yaml_load.h"
#include "server/formats/part_of.h"
#include "server/formats/table_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the file as libcyaml reads it: every value is a text, or NULL if it is not given ---- */

struct manifest_file_texts {
    char *name;
    char *bytes;
    char *xxh3_64;
};

struct manifest_texts {
    char *format;
    char *parts;
    struct manifest_file_texts *files;
    uint32_t files_count;
};

static const cyaml_schema_field_t file_fields[] = {
    EB_YAML_TEXT(manifest_file_texts, name),
    EB_YAML_TEXT(manifest_file_texts, bytes),
    EB_YAML_TEXT(manifest_file_texts, xxh3_64),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t file_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct manifest_file_texts, file_fields)};

static const cyaml_schema_field_t manifest_fields[] = {
    EB_YAML_TEXT(manifest_texts, format),
    EB_YAML_TEXT(manifest_texts, parts),
    EB_YAML_LIST(manifest_texts, files, file_value, EB_MANIFEST_FILES_MAX),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t manifest_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct manifest_texts, manifest_fields)};

/* ---- from texts to values ---- */

static bool check_head(const struct manifest_texts *texts, struct eb_failure *failure)
{
    return eb_manifest_text_one("format", texts->format,
               "is not supported by this version of embag; expected 1; use a newer version",
               failure) &&
           eb_manifest_text_one("parts", texts->parts,
               "is not the number of parts of a version that lists files; expected 1; a version in "
               "parts lists tables",
               failure);
}

/* Returns NULL if a manifest may list a file of that name. Otherwise returns what is wrong. */
static const char *find_name_error(const char *name)
{
    const char *why = eb_manifest_text_name_error(name, EB_MANIFEST_NAME_BYTES_MAX);
    if (why) {
        return why;
    }
    return strcmp(name, EB_MANIFEST_NAME) == 0 ? "is the manifest itself; leave it out" : NULL;
}

/* Sets *failure to a text such as "files[2].bytes: 'x' WHY". Leaves out the value if it is NULL.
 * Always returns false. */
static bool refuse_file(
    struct eb_failure *failure, size_t index, const char *field, const char *value, const char *why)
{
    return value ? eb_failure_set(failure, "files[%zu].%s: '%.64s' %s", index, field, value, why)
                 : eb_failure_set(
                       failure, "files[%zu].%s: is missing; every file needs one", index, field);
}

/* Reads the entry with the number `index`. Takes the name out of the texts. */
static bool read_manifest_file(struct manifest_file_texts *texts, size_t index,
    struct eb_manifest_file *file, struct eb_failure *failure)
{
    const char *why = texts->name ? find_name_error(texts->name) : "";
    if (why) {
        return refuse_file(failure, index, "name", texts->name, why);
    }
    if (!texts->bytes ||
        !eb_manifest_text_number(texts->bytes, EB_MANIFEST_FILE_BYTES_MAX, &file->bytes)) {
        char range[64];
        snprintf(
            range, sizeof range, "is not a number from 0 to %" PRIu64, EB_MANIFEST_FILE_BYTES_MAX);
        return refuse_file(failure, index, "bytes", texts->bytes, range);
    }
    if (!texts->xxh3_64 || !eb_manifest_text_digest(texts->xxh3_64, &file->digest)) {
        return refuse_file(failure, index, "xxh3_64", texts->xxh3_64,
            "is not a digest; expected 16 hex digits, as xxhsum -H3 prints them");
    }
    file->name = texts->name;
    texts->name = NULL;
    return true;
}

static int compare_manifest_files(const void *left, const void *right)
{
    const struct eb_manifest_file *a = left;
    const struct eb_manifest_file *b = right;
    return strcmp(a->name, b->name);
}

/* Sorts the files by name. Returns false if two have the same name. */
static bool sort_files(struct eb_manifest *manifest, struct eb_failure *failure)
{
    struct eb_manifest_file *files = manifest->files;
    qsort(files, manifest->count, sizeof *files, compare_manifest_files);
    for (size_t i = 1; i < manifest->count; i++) {
        if (strcmp(files[i - 1].name, files[i].name) == 0) {
            return eb_failure_set(
                failure, "files: '%.64s' is listed twice; expected each file once", files[i].name);
        }
    }
    return true;
}

static bool read_files(
    struct manifest_texts *texts, struct eb_manifest *manifest, struct eb_failure *failure)
{
    if (texts->files_count == 0) {
        return eb_failure_set(failure, "files: is missing or empty; expected at least one file");
    }
    manifest->files = calloc(texts->files_count, sizeof *manifest->files);
    if (!manifest->files) {
        return eb_manifest_text_no_memory(failure);
    }
    for (; manifest->count < texts->files_count; manifest->count++) {
        size_t index = manifest->count;
        if (!read_manifest_file(&texts->files[index], index, &manifest->files[index], failure)) {
            return false;
        }
    }
    return sort_files(manifest, failure);
}

/* Refuses the manifest of a version in parts. */
static bool refuse_parts(const uint8_t *yaml, size_t yaml_bytes, struct eb_failure *failure)
{
    size_t rest_bytes;
    const char *rest = eb_manifest_text_find(yaml, yaml_bytes, "parts:", &rest_bytes);
    unsigned parts = 0;
    for (size_t i = 0; rest && i < rest_bytes && parts <= EB_PARTS_MAX; i++) {
        if (rest[i] >= '0' && rest[i] <= '9') {
            parts = parts * 10 + (unsigned)(rest[i] - '0');
        } else if (rest[i] != ' ' || parts > 0) {
            break;
        }
    }
    if (parts == 0 || parts > EB_PARTS_MAX) {
        return eb_failure_set(failure, "this version is in parts; start servers with --part, or a "
                                       "router with --route");
    }
    return eb_failure_set(failure,
        "this version is in %u parts; start servers with --part K/%u, or a router with --route",
        parts, parts);
}

/* Loads the texts. Returns NULL with *failure set if that fails. */
static struct manifest_texts *load_manifest(
    const uint8_t *yaml, size_t yaml_bytes, struct eb_failure *failure)
{
    void *values;
    size_t rest_bytes;
    if (!eb_manifest_text_load(
            yaml, yaml_bytes, &manifest_value, "format, parts and files", &values, failure) &&
        !failure->is_transient && eb_manifest_text_find(yaml, yaml_bytes, "tables:", &rest_bytes)) {
        refuse_parts(yaml, yaml_bytes, failure);
    }
    return values;
}

bool eb_manifest_parse(const uint8_t *yaml, size_t yaml_bytes, struct eb_manifest *manifest,
    struct eb_failure *failure)
{
    *manifest = (struct eb_manifest){0};
    struct manifest_texts *texts = load_manifest(yaml, yaml_bytes, failure);
    if (!texts) {
        return false;
    }
    bool is_good = check_head(texts, failure) && read_files(texts, manifest, failure);
    eb_yaml_free(&manifest_value, texts);
    if (!is_good) {
        eb_manifest_deinit(manifest);
    }
    return is_good;
}

bool eb_manifest_read(
    struct eb_table_file *file, struct eb_manifest *manifest, struct eb_failure *failure)
{
    *manifest = (struct eb_manifest){0};
    uint8_t *yaml = eb_manifest_text_read(file, failure);
    bool is_good = yaml && eb_manifest_parse(yaml, file->bytes, manifest, failure);
    free(yaml);
    return is_good;
}

/* ---- writing ---- */

static bool check_files_to_write(const struct eb_manifest *manifest, struct eb_failure *failure)
{
    if (manifest->count == 0 || manifest->count > EB_MANIFEST_FILES_MAX) {
        return eb_failure_set(failure, "%zu files cannot be listed; expected 1 to %d",
            manifest->count, EB_MANIFEST_FILES_MAX);
    }
    for (size_t i = 0; i < manifest->count; i++) {
        const struct eb_manifest_file *file = &manifest->files[i];
        const char *why = find_name_error(file->name);
        if (why) {
            return eb_failure_set(failure, "the file name '%.64s' %s", file->name, why);
        }
        if (file->bytes > EB_MANIFEST_FILE_BYTES_MAX) {
            return eb_failure_set(failure,
                "'%.64s' has %" PRIu64 " bytes; expected at most %" PRIu64, file->name, file->bytes,
                EB_MANIFEST_FILE_BYTES_MAX);
        }
    }
    return true;
}

static void write_files(FILE *out, const void *data)
{
    const struct eb_manifest *manifest = data;
    fputs("format: 1\nparts: 1\nfiles:\n", out);
    for (size_t i = 0; i < manifest->count; i++) {
        const struct eb_manifest_file *file = &manifest->files[i];
        fputs("  - {name: ", out);
        eb_manifest_text_quote(out, file->name);
        fprintf(
            out, ", bytes: %" PRIu64 ", xxh3_64: \"%016" PRIx64 "\"}\n", file->bytes, file->digest);
    }
}

char *eb_manifest_write(
    const struct eb_manifest *manifest, size_t *text_bytes, struct eb_failure *failure)
{
    return check_files_to_write(manifest, failure)
               ? eb_manifest_text_print(write_files, manifest, text_bytes, failure)
               : NULL;
}

void eb_manifest_deinit(struct eb_manifest *manifest)
{
    for (size_t i = 0; manifest->files && i < manifest->count; i++) {
        free(manifest->files[i].name);
    }
    free(manifest->files);
    *manifest = (struct eb_manifest){0};
}

static int compare_name_with_file(const void *name, const void *file)
{
    return strcmp(name, ((const struct eb_manifest_file *)file)->name);
}

const struct eb_manifest_file *eb_manifest_find(
    const struct eb_manifest *manifest, const char *name)
{
    return manifest->count == 0 ? NULL
                                : bsearch(name, manifest->files, manifest->count,
                                      sizeof *manifest->files, compare_name_with_file);
}
