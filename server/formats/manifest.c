#include "server/formats/manifest.h"

#include "server/base/name.h"
#include "server/base/yaml_load.h"
#include "server/formats/table_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGEST_DIGITS 16

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

#define TEXT(type, key)                                                                            \
    CYAML_FIELD_STRING_PTR(                                                                        \
        #key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct type, key, 0, CYAML_UNLIMITED)

static const cyaml_schema_field_t file_fields[] = {
    TEXT(manifest_file_texts, name),
    TEXT(manifest_file_texts, bytes),
    TEXT(manifest_file_texts, xxh3_64),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t file_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct manifest_file_texts, file_fields)};

static const cyaml_schema_field_t manifest_fields[] = {
    TEXT(manifest_texts, format),
    TEXT(manifest_texts, parts),
    CYAML_FIELD_SEQUENCE("files", CYAML_FLAG_POINTER_NULL_STR | CYAML_FLAG_OPTIONAL,
        struct manifest_texts, files, &file_value, 0, EB_MANIFEST_FILES_MAX),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t manifest_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct manifest_texts, manifest_fields)};

/* ---- from texts to values ---- */

/* Reads decimal digits. Returns false if there are others, or if the number is larger than `max`.
 */
static bool read_manifest_number(const char *text, uint64_t max, uint64_t *value)
{
    errno = 0;
    *value = strtoull(text, NULL, 10);
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0' && errno == 0 &&
           *value <= max;
}

/* Checks `format` or `parts`, of which only 1 is supported. `hint` follows the value of another
 * number. */
static bool check_one(
    const char *field, const char *text, const char *hint, struct eb_failure *failure)
{
    uint64_t number;
    if (!text) {
        return eb_failure_set(failure, "%s: is missing; expected 1", field);
    }
    if (!read_manifest_number(text, UINT64_MAX, &number) || number == 0) {
        return eb_failure_set(failure, "%s: '%.64s' is not a number; expected 1", field, text);
    }
    return number == 1 || eb_failure_set(failure, "%s: '%.64s' %s", field, text, hint);
}

static bool check_head(const struct manifest_texts *texts, struct eb_failure *failure)
{
    return check_one("format", texts->format,
               "is not supported by this version of embag; expected 1; use a newer version",
               failure) &&
           check_one("parts", texts->parts,
               "is more than this version of embag supports; expected 1; models in several parts "
               "need a newer version",
               failure);
}

/* Returns NULL if a manifest may list a file of that name. Otherwise returns what is wrong. */
static const char *find_name_error(const char *name)
{
    const char *why = eb_name_error(name, EB_MANIFEST_NAME_BYTES_MAX);
    if (why) {
        return why;
    }
    if (strchr(name, '/')) {
        return "has a slash; expected a file of the same directory";
    }
    if (name[0] == '.') {
        return "begins with a dot; expected a file that the server reads";
    }
    return strcmp(name, EB_MANIFEST_NAME) == 0 ? "is the manifest itself; leave it out" : NULL;
}

/* Reads 16 hex digits in small letters. */
static bool read_manifest_digest(const char *text, uint64_t *digest)
{
    if (strlen(text) != DIGEST_DIGITS || text[strspn(text, "0123456789abcdef")] != '\0') {
        return false;
    }
    *digest = strtoull(text, NULL, 16);
    return true;
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
        !read_manifest_number(texts->bytes, EB_MANIFEST_FILE_BYTES_MAX, &file->bytes)) {
        char range[64];
        snprintf(
            range, sizeof range, "is not a number from 0 to %" PRIu64, EB_MANIFEST_FILE_BYTES_MAX);
        return refuse_file(failure, index, "bytes", texts->bytes, range);
    }
    if (!texts->xxh3_64 || !read_manifest_digest(texts->xxh3_64, &file->digest)) {
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
        return eb_failure_set(failure, "out of memory");
    }
    for (; manifest->count < texts->files_count; manifest->count++) {
        size_t index = manifest->count;
        if (!read_manifest_file(&texts->files[index], index, &manifest->files[index], failure)) {
            return false;
        }
    }
    return sort_files(manifest, failure);
}

static bool refuse_manifest_size(struct eb_failure *failure)
{
    return eb_failure_set(failure, "larger than %d bytes, the maximum for a %s",
        EB_MANIFEST_BYTES_MAX, EB_MANIFEST_NAME);
}

bool eb_manifest_parse(const uint8_t *yaml, size_t yaml_bytes, struct eb_manifest *manifest,
    struct eb_failure *failure)
{
    *manifest = (struct eb_manifest){0};
    if (yaml_bytes > EB_MANIFEST_BYTES_MAX) {
        return refuse_manifest_size(failure);
    }
    void *values;
    if (!eb_yaml_load(yaml, yaml_bytes, &manifest_value, &values, failure)) {
        return false;
    }
    if (!values) {
        return eb_failure_set(failure, "the file is empty; expected format, parts and files");
    }
    struct manifest_texts *texts = values;
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
    if (file->bytes > EB_MANIFEST_BYTES_MAX) {
        return refuse_manifest_size(failure);
    }
    uint8_t *yaml = malloc(file->bytes + 1);
    bool is_good = yaml || eb_failure_set(failure, "out of memory");
    is_good = is_good && eb_table_file_read(file, 0, yaml, file->bytes, failure) &&
              eb_manifest_parse(yaml, file->bytes, manifest, failure);
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

/* The characters of names that cannot stand in double quotes as they are. YAML 1.1 takes U+2028 and
 * U+2029 for line breaks (section 5.4 of its specification), allows a byte order mark at the start
 * only (5.2), and refuses the last two (5.1). */
static const struct {
    const char *character;
    const char *escape;
} escapes[] = {
    {"\"", "\\\""},
    {"\\", "\\\\"},
    {"\u2028", "\\L"},
    {"\u2029", "\\P"},
    {"\ufeff", "\\uFEFF"},
    {"\xef\xbf\xbe", "\\uFFFE"},
    {"\xef\xbf\xbf", "\\uFFFF"},
};

/* Writes the character at `at`, or its escape. Returns its bytes. */
static size_t write_character(FILE *out, const char *at)
{
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
        size_t bytes = strlen(escapes[i].character);
        if (strncmp(at, escapes[i].character, bytes) == 0) {
            fputs(escapes[i].escape, out);
            return bytes;
        }
    }
    fputc(*at, out);
    return 1;
}

/* Writes a name in double quotes. */
static void write_quoted(FILE *out, const char *name)
{
    fputc('"', out);
    for (const char *at = name; *at != '\0';) {
        at += write_character(out, at);
    }
    fputc('"', out);
}

static void write_files(FILE *out, const struct eb_manifest *manifest)
{
    fputs("format: 1\nparts: 1\nfiles:\n", out);
    for (size_t i = 0; i < manifest->count; i++) {
        const struct eb_manifest_file *file = &manifest->files[i];
        fputs("  - {name: ", out);
        write_quoted(out, file->name);
        fprintf(
            out, ", bytes: %" PRIu64 ", xxh3_64: \"%016" PRIx64 "\"}\n", file->bytes, file->digest);
    }
}

char *eb_manifest_write(
    const struct eb_manifest *manifest, size_t *text_bytes, struct eb_failure *failure)
{
    char *text = NULL;
    if (!check_files_to_write(manifest, failure)) {
        return NULL;
    }
    FILE *out = open_memstream(&text, text_bytes);
    if (!out) {
        eb_failure_set(failure, "out of memory");
        return NULL;
    }
    write_files(out, manifest);
    bool is_good = !ferror(out);
    is_good = fclose(out) == 0 && is_good;
    if (!is_good || *text_bytes > EB_MANIFEST_BYTES_MAX) {
        eb_failure_set(failure, "%s",
            is_good ? "the names of its files are too long for a manifest" : "out of memory");
        free(text);
        return NULL;
    }
    return text;
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
