#include "server/tables/served_record.h"

#include "kernels/table.h"
#include "server/base/name.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HEAD_FORMAT "embag served %d %zu %016" PRIx64 "\n"
#define HEAD_BYTES 64
/* The number in the first line, with and without versions in parts. */
#define FORMAT_UNDIVIDED 1
#define FORMAT_PARTS 2
#define DIGEST_DIGITS 16

/* ---- encoding ---- */

/* Adds `value`, which may be NULL if out of memory, to an array. Takes over the value. */
static bool append_value(json_t *array, json_t *value)
{
    return value && json_array_append_new(array, value) == 0;
}

/* Returns NULL if out of memory, or if the name is not UTF-8. */
static json_t *encode_served_table(const struct eb_served_table *table)
{
    return json_pack("{s:s, s:s, s:I, s:I}", "name", table->name, "file", table->file, "place",
        (json_int_t)table->slot, "unknown_row", (json_int_t)table->unknown_row);
}

/* Adds the members that only a version in parts has. Returns false as encode_served_table fails. */
static bool encode_parts(json_t *object, const struct eb_served_version *version)
{
    return json_object_set_new(object, "manifest_yaml", json_string(version->manifest_yaml)) == 0 &&
           json_object_set_new(object, "parts", json_integer(version->part.parts)) == 0 &&
           json_object_set_new(object, "part",
               version->is_router ? json_null() : json_integer(version->part.part)) == 0;
}

static json_t *encode_served_version(const struct eb_served_version *version)
{
    char number[24];
    char digest[24];
    snprintf(number, sizeof number, "%" PRIu64, version->version);
    snprintf(digest, sizeof digest, "%016" PRIx64, version->digest);
    json_t *tables = json_array();
    bool is_good = tables;
    for (size_t i = 0; i < version->table_count && is_good; i++) {
        is_good = append_value(tables, encode_served_table(&version->tables[i]));
    }
    if (!is_good) {
        json_decref(tables);
        return NULL;
    }
    json_t *object = json_pack("{s:s, s:s, s:b, s:s?, s:o}", "version", number, "digest", digest,
        "is_complete", version->is_complete, "model_yaml", version->model_yaml, "tables", tables);
    if (object && version->manifest_yaml && !encode_parts(object, version)) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

static json_t *encode_served_model(const struct eb_served_model *model)
{
    json_t *versions = json_array();
    bool is_good = versions;
    for (size_t i = 0; i < model->version_count && is_good; i++) {
        is_good = append_value(versions, encode_served_version(&model->versions[i]));
    }
    if (!is_good) {
        json_decref(versions);
        return NULL;
    }
    return json_pack("{s:s, s:o}", "name", model->name, "versions", versions);
}

/* Returns the number of the format that the record needs. */
static int choose_format(const struct eb_served_record *record)
{
    for (size_t i = 0; i < record->model_count; i++) {
        const struct eb_served_model *model = &record->models[i];
        for (size_t k = 0; k < model->version_count; k++) {
            if (model->versions[k].manifest_yaml) {
                return FORMAT_PARTS;
            }
        }
    }
    return FORMAT_UNDIVIDED;
}

/* Returns whether a parser would accept the record's numbers of models, versions and tables. */
static bool is_within_limits(const struct eb_served_record *record)
{
    bool is_within = record->model_count <= EB_SERVED_RECORD_MODELS_MAX;
    for (size_t i = 0; i < record->model_count && is_within; i++) {
        const struct eb_served_model *model = &record->models[i];
        is_within = model->version_count <= EB_SERVED_RECORD_VERSIONS_MAX;
        for (size_t k = 0; k < model->version_count && is_within; k++) {
            is_within = model->versions[k].table_count <= EB_RESIDENT_TABLES_MAX;
        }
    }
    return is_within;
}

/* Returns the record as JSON, which the caller frees, or NULL. */
static char *encode_json(const struct eb_served_record *record)
{
    json_t *models = json_array();
    bool is_good = models;
    for (size_t i = 0; i < record->model_count && is_good; i++) {
        is_good = append_value(models, encode_served_model(&record->models[i]));
    }
    if (!is_good) {
        json_decref(models);
        return NULL;
    }
    json_t *root = json_pack("{s:o}", "models", models);
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

void *eb_served_record_encode(
    const struct eb_served_record *record, size_t *size, struct eb_failure *failure)
{
    if (!is_within_limits(record)) {
        eb_failure_set(failure,
            "the record exceeds %u models, %u versions of a model or %u tables of a version",
            EB_SERVED_RECORD_MODELS_MAX, EB_SERVED_RECORD_VERSIONS_MAX, EB_RESIDENT_TABLES_MAX);
        return NULL;
    }
    char *json = encode_json(record);
    size_t json_bytes = json ? strlen(json) : 0;
    char *bytes = json ? malloc(HEAD_BYTES + json_bytes + 1) : NULL;
    if (!bytes) {
        free(json);
        eb_failure_set(
            failure, "out of memory, or a name, a model.yaml or a manifest is not UTF-8");
        return NULL;
    }
    int head = snprintf(bytes, HEAD_BYTES, HEAD_FORMAT, choose_format(record), json_bytes,
        XXH3_64bits(json, json_bytes));
    memcpy(bytes + head, json, json_bytes + 1);
    free(json);
    *size = (size_t)head + json_bytes;
    if (*size > EB_SERVED_RECORD_BYTES_MAX) {
        free(bytes);
        eb_failure_set(failure, "the record has %zu bytes, more than %" PRIu32, *size,
            EB_SERVED_RECORD_BYTES_MAX);
        return NULL;
    }
    return bytes;
}

/* ---- parsing ---- */

/* Returns a member that must be an array of at most `most` elements, or NULL. */
static const json_t *find_array(const json_t *object, const char *name, size_t most)
{
    const json_t *array = json_object_get(object, name);
    return json_is_array(array) && json_array_size(array) <= most ? array : NULL;
}

/* Reads a member that is a decimal number in a text. */
static bool parse_decimal(const json_t *object, const char *name, uint64_t *number)
{
    const char *text = json_string_value(json_object_get(object, name));
    if (!text || *text == '\0' || text[strspn(text, "0123456789")] != '\0') {
        return false;
    }
    errno = 0;
    *number = strtoull(text, NULL, 10);
    return errno == 0;
}

/* Reads a member that is a digest in a text. */
static bool parse_digest(const json_t *object, const char *name, uint64_t *digest)
{
    const char *text = json_string_value(json_object_get(object, name));
    if (!text || strlen(text) != DIGEST_DIGITS ||
        strspn(text, "0123456789abcdef") != DIGEST_DIGITS) {
        return false;
    }
    *digest = strtoull(text, NULL, 16);
    return true;
}

/* Copies a member that is a text. Returns false if it is none, or if out of memory. */
static bool parse_text(const json_t *object, const char *name, char **text)
{
    const char *value = json_string_value(json_object_get(object, name));
    *text = value ? strdup(value) : NULL;
    return *text;
}

/* Copies a member that is the name of a model or a table. */
static bool parse_name(const json_t *object, char **name)
{
    return parse_text(object, "name", name) && !eb_name_error(*name, UINT32_MAX);
}

static bool parse_served_table(const json_t *object, struct eb_served_table *table)
{
    enum eb_resident_kind kind;
    uint64_t key;
    const json_t *slot = json_object_get(object, "place");
    const json_t *row = json_object_get(object, "unknown_row");
    const char *file = json_string_value(json_object_get(object, "file"));
    if (!json_is_integer(slot) || !json_is_integer(row) || !file ||
        !eb_resident_dir_parse(file, &kind, &key) || !parse_name(object, &table->name)) {
        return false;
    }
    json_int_t number = json_integer_value(slot);
    table->slot = (size_t)number;
    table->unknown_row = json_integer_value(row);
    snprintf(table->file, sizeof table->file, "%s", file);
    return number >= 0 && number < (json_int_t)EB_RESIDENT_TABLES_MAX &&
           table->unknown_row >= EB_ROW_VECTOR;
}

/* Reads the members that only a version in parts has, if the version is in parts. */
static bool parse_parts(const json_t *object, struct eb_served_version *version)
{
    const json_t *parts = json_object_get(object, "parts");
    const json_t *part = json_object_get(object, "part");
    if (!json_object_get(object, "manifest_yaml")) {
        return true;
    }
    version->is_router = json_is_null(part);
    json_int_t count = json_integer_value(parts);
    json_int_t number = json_integer_value(part);
    if (!json_is_integer(parts) || count < 1 || count > (json_int_t)EB_PARTS_MAX ||
        !(version->is_router || json_is_integer(part)) || number < 0 || number >= count) {
        return false;
    }
    version->part = (struct eb_part_choice){(uint32_t)number, (uint32_t)count};
    return parse_text(object, "manifest_yaml", &version->manifest_yaml);
}

/* Reads a version. What has been read is freed with the record, whatever the result. */
static bool parse_served_version(const json_t *object, struct eb_served_version *version)
{
    const json_t *complete = json_object_get(object, "is_complete");
    const json_t *yaml = json_object_get(object, "model_yaml");
    const json_t *tables = find_array(object, "tables", EB_RESIDENT_TABLES_MAX);
    if (!tables || !json_is_boolean(complete) || !yaml ||
        (!json_is_null(yaml) && !parse_text(object, "model_yaml", &version->model_yaml)) ||
        !parse_decimal(object, "version", &version->version) ||
        !parse_digest(object, "digest", &version->digest) || !parse_parts(object, version)) {
        return false;
    }
    version->is_complete = json_is_true(complete);
    size_t count = json_array_size(tables);
    version->tables = calloc(count + 1, sizeof *version->tables);
    bool is_good = version->tables;
    for (size_t i = 0; i < count && is_good; i++) {
        is_good = parse_served_table(json_array_get(tables, i), &version->tables[i]);
        version->table_count++;
    }
    return is_good;
}

static bool parse_served_model(const json_t *object, struct eb_served_model *model)
{
    const json_t *versions = find_array(object, "versions", EB_SERVED_RECORD_VERSIONS_MAX);
    if (!versions || !parse_name(object, &model->name)) {
        return false;
    }
    size_t count = json_array_size(versions);
    model->versions = calloc(count + 1, sizeof *model->versions);
    bool is_good = model->versions;
    for (size_t i = 0; i < count && is_good; i++) {
        is_good = parse_served_version(json_array_get(versions, i), &model->versions[i]);
        model->version_count++;
    }
    return is_good;
}

static bool parse_models(const json_t *root, struct eb_served_record *record)
{
    const json_t *models = find_array(root, "models", EB_SERVED_RECORD_MODELS_MAX);
    if (!models) {
        return false;
    }
    size_t count = json_array_size(models);
    record->models = calloc(count + 1, sizeof *record->models);
    bool is_good = record->models;
    for (size_t i = 0; i < count && is_good; i++) {
        is_good = parse_served_model(json_array_get(models, i), &record->models[i]);
        record->model_count++;
    }
    return is_good;
}

/* Reads the first line. Returns the bytes that it takes, or 0 if it is not exactly as it would be
 * written. */
static size_t parse_head(
    const char *bytes, size_t size, int *format, size_t *json_bytes, uint64_t *digest)
{
    char head[HEAD_BYTES] = "";
    char expected[HEAD_BYTES];
    const char *end = size > 0 ? memchr(bytes, '\n', size < HEAD_BYTES ? size : HEAD_BYTES) : NULL;
    size_t length = end ? (size_t)(end - bytes) + 1 : HEAD_BYTES;
    if (length == HEAD_BYTES) {
        return 0;
    }
    memcpy(head, bytes, length);
    if (sscanf(head, "embag served %d %zu %" SCNx64, format, json_bytes, digest) != 3) {
        return 0;
    }
    snprintf(expected, sizeof expected, HEAD_FORMAT, *format, *json_bytes, *digest);
    return strcmp(head, expected) == 0 ? length : 0;
}

static bool are_zeros(const char *bytes, size_t count)
{
    return count == 0 || (bytes[0] == '\0' && memcmp(bytes, bytes + 1, count - 1) == 0);
}

/* Returns the JSON of the file, of *size bytes, or NULL with *failure set if it is damaged. Sets
 * *format to the number in the first line. */
static const char *find_json(
    const char *bytes, size_t *size, int *format, struct eb_failure *failure)
{
    size_t json_bytes;
    uint64_t digest;
    size_t head_bytes = parse_head(bytes, *size, format, &json_bytes, &digest);
    if (*size > EB_SERVED_RECORD_BYTES_MAX || head_bytes == 0 || json_bytes > *size - head_bytes ||
        XXH3_64bits(bytes + head_bytes, json_bytes) != digest ||
        !are_zeros(bytes + head_bytes + json_bytes, *size - head_bytes - json_bytes)) {
        eb_failure_set(failure, "it is damaged, or was written by another version of embag");
        return NULL;
    }
    *size = json_bytes;
    return bytes + head_bytes;
}

/* Returns whether the value would be written as this JSON. When jansson has no memory for a longer
 * text, it leaves out a character and goes on. */
static bool is_written_as(const json_t *root, const char *json, size_t size)
{
    char *again = malloc(size + 1);
    bool is_same = again && json_dumpb(root, again, size, JSON_COMPACT) == size &&
                   memcmp(again, json, size) == 0;
    free(again);
    return is_same;
}

bool eb_served_record_parse(
    const void *bytes, size_t size, struct eb_served_record *record, struct eb_failure *failure)
{
    *record = (struct eb_served_record){0};
    int format = 0;
    const char *json = find_json(bytes, &size, &format, failure);
    if (!json) {
        return false;
    }
    json_error_t error;
    json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &error);
    bool is_good = root && is_written_as(root, json, size) && parse_models(root, record) &&
                   choose_format(record) == format;
    json_decref(root);
    if (!is_good) {
        eb_served_record_deinit(record);
        return eb_failure_set(failure, "it is not a valid record, or there is too little memory");
    }
    return true;
}

bool eb_served_record_read(
    const struct eb_resident_dir *dir, struct eb_served_record *record, struct eb_failure *failure)
{
    size_t size;
    *record = (struct eb_served_record){0};
    void *bytes = eb_resident_dir_read(
        dir, EB_SERVED_RECORD_NAME, EB_SERVED_RECORD_BYTES_MAX, &size, failure);
    if (!bytes) {
        return false;
    }
    bool is_good = eb_served_record_parse(bytes, size, record, failure);
    free(bytes);
    return is_good || eb_failure_locate(failure, EB_SERVED_RECORD_NAME);
}

static void free_served_version(struct eb_served_version *version)
{
    for (size_t i = 0; i < version->table_count; i++) {
        free(version->tables[i].name);
    }
    free(version->tables);
    free(version->model_yaml);
    free(version->manifest_yaml);
}

void eb_served_record_deinit(struct eb_served_record *record)
{
    for (size_t i = 0; i < record->model_count; i++) {
        struct eb_served_model *model = &record->models[i];
        for (size_t k = 0; k < model->version_count; k++) {
            free_served_version(&model->versions[k]);
        }
        free(model->versions);
        free(model->name);
    }
    free(record->models);
    *record = (struct eb_served_record){0};
}

const struct eb_served_model *eb_served_record_find(
    const struct eb_served_record *record, const char *model)
{
    for (size_t i = 0; i < record->model_count; i++) {
        if (strcmp(record->models[i].name, model) == 0) {
            return &record->models[i];
        }
    }
    return NULL;
}
