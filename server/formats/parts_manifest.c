#include "server/formats/parts_manifest.h"

#include "server/base/name.h"
#include "server/base/yaml_load.h"
#include "server/formats/manifest_text.h"
#include "server/formats/packed_format.h"
#include "server/formats/piece_name.h"
#include "server/formats/table_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SHAPE_MAX (EB_TENSOR_RANK_MAX - 1)

/* ---- the file as libcyaml reads it: every value is a text, or NULL if it is not given ---- */

struct parts_table_texts {
    char *name;
    char *placement;
    char *part;
    char *keyed;
    char *unknown_row;
    char *unknown_key;
    char *type;
    char *storage;
    char *rows_total;
    char **shape;
    uint32_t shape_count;
    char **digests;
    uint32_t digests_count;
};

struct parts_texts {
    char *format;
    char *parts;
    char *salt;
    char *lineage;
    struct parts_table_texts *tables;
    uint32_t tables_count;
};

static const cyaml_schema_field_t table_fields[] = {
    EB_YAML_TEXT(parts_table_texts, name),
    EB_YAML_TEXT(parts_table_texts, placement),
    EB_YAML_TEXT(parts_table_texts, part),
    EB_YAML_TEXT(parts_table_texts, keyed),
    EB_YAML_TEXT(parts_table_texts, unknown_row),
    EB_YAML_TEXT(parts_table_texts, unknown_key),
    EB_YAML_TEXT(parts_table_texts, type),
    EB_YAML_TEXT(parts_table_texts, storage),
    EB_YAML_TEXT(parts_table_texts, rows_total),
    EB_YAML_LIST(parts_table_texts, shape, eb_yaml_text, SHAPE_MAX),
    EB_YAML_LIST(parts_table_texts, digests, eb_yaml_text, EB_PARTS_MAX),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t table_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct parts_table_texts, table_fields)};

static const cyaml_schema_field_t parts_fields[] = {
    EB_YAML_TEXT(parts_texts, format),
    EB_YAML_TEXT(parts_texts, parts),
    EB_YAML_TEXT(parts_texts, salt),
    EB_YAML_TEXT(parts_texts, lineage),
    EB_YAML_LIST(parts_texts, tables, table_value, EB_PARTS_TABLES_MAX),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t parts_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct parts_texts, parts_fields)};

/* ---- names ---- */

static const char *const placement_names[EB_PLACEMENT_COUNT] = {
#define X(name, text) [EB_PLACEMENT_##name] = (text),
    EB_PLACEMENT_LIST(X)
#undef X
};

const char *eb_placement_name(enum eb_placement placement)
{
    return placement_names[placement];
}

void eb_part_folder_name(uint32_t part, uint32_t parts, char name[EB_PART_FOLDER_BYTES])
{
    snprintf(name, EB_PART_FOLDER_BYTES, "part-%05" PRIu32 "-of-%05" PRIu32, part, parts);
}

/* Returns NULL if a table may have the name. Otherwise returns what is wrong. */
static const char *find_table_name_error(const char *name)
{
    size_t base_bytes;
    uint32_t piece;
    uint32_t pieces;
    const char *why = eb_manifest_text_name_error(name, EB_PARTS_NAME_BYTES_MAX);
    if (why) {
        return why;
    }
    return eb_piece_name_split(name, strlen(name), &base_bytes, &piece, &pieces)
               ? "ends like the name of a piece; expected the name of a whole table"
               : NULL;
}

/* ---- checks of values, which reading and writing share ---- */

/* Checks fields of the table that are numbers of rows. */
static bool check_table_rows(const struct eb_parts_table *table, struct eb_failure *failure)
{
    if (table->rows_total > INT64_MAX) {
        return eb_failure_set(failure,
            "rows_total: '%" PRIu64 "' is too large; expected at most %" PRIi64, table->rows_total,
            INT64_MAX);
    }
    if (table->has_unknown_key && !(table->has_unknown_row && table->is_keyed)) {
        return eb_failure_set(failure,
            "unknown_key: '%" PRId64 "' is the key of no row; expected it with keyed: true and an "
            "unknown_row",
            table->unknown_key);
    }
    return !table->has_unknown_row || table->unknown_row < table->rows_total ||
           eb_failure_set(failure,
               "unknown_row: '%" PRIu64 "' is not one of the %" PRIu64 " rows; expected less",
               table->unknown_row, table->rows_total);
}

static bool check_table_shape(const struct eb_parts_table *table, struct eb_failure *failure)
{
    uint64_t elements = 1;
    if (table->shape_count > SHAPE_MAX) {
        return eb_failure_set(failure, "shape: has %" PRIu32 " dims; expected at most %d",
            table->shape_count, SHAPE_MAX);
    }
    for (uint32_t i = 0; i < table->shape_count; i++) {
        uint64_t dim = table->shape[i];
        if (dim == 0 || dim > UINT32_MAX / elements) {
            return eb_failure_set(failure,
                "shape[%" PRIu32 "]: '%" PRIu64 "'; expected 1 to %" PRIu32
                " values in a row, the product of its dims",
                i, dim, UINT32_MAX);
        }
        elements *= dim;
    }
    return true;
}

/* Checks where the table lies. */
static bool check_table_placement(
    const struct eb_parts_table *table, uint32_t parts, struct eb_failure *failure)
{
    if ((unsigned)table->placement >= EB_PLACEMENT_COUNT) {
        return eb_failure_set(failure, "placement: '%u' is not a placement; expected less than %u",
            (unsigned)table->placement, EB_PLACEMENT_COUNT);
    }
    bool is_whole = table->placement == EB_PLACEMENT_WHOLE;
    if (!is_whole && table->part != 0) {
        return eb_failure_set(failure,
            "part: '%" PRIu32 "' is given for a table placed %s; expected a part only for one "
            "placed whole",
            table->part, eb_placement_name(table->placement));
    }
    if (table->part >= parts) {
        return eb_failure_set(failure,
            "part: '%" PRIu32 "' is not one of the parts; expected 0 to %" PRIu32, table->part,
            parts - 1);
    }
    size_t expected = table->placement == EB_PLACEMENT_ROWS ? parts : 1;
    return table->digest_count == expected ||
           eb_failure_set(failure, "digests: there are %zu; expected %zu, one for each file",
               table->digest_count, expected);
}

static bool check_table_storage(const struct eb_parts_table *table, struct eb_failure *failure)
{
    if (!eb_type_is_valid((int)table->type)) {
        return eb_failure_set(
            failure, "type: '%u' is not a type; expected that of the table", (unsigned)table->type);
    }
    bool is_storage =
        table->storage > EB_STORAGE_UNSPECIFIED && (unsigned)table->storage < EB_STORAGE_COUNT;
    return (is_storage && eb_storage_holds(table->storage, table->type)) ||
           eb_failure_set(failure,
               "storage: '%s' cannot hold a table of type %s; expected a storage that can",
               eb_storage_name(table->storage), eb_type_name(table->type));
}

/* Checks the table with the number `index`. */
static bool check_parts_table(
    const struct eb_parts_manifest *manifest, size_t index, struct eb_failure *failure)
{
    const struct eb_parts_table *table = &manifest->tables[index];
    struct eb_failure inner = {.text = ""};
    const char *why = find_table_name_error(table->name);
    if (why) {
        return eb_failure_set(failure, "tables[%zu].name: '%.64s' %s", index, table->name, why);
    }
    return (check_table_placement(table, manifest->parts, &inner) &&
               check_table_storage(table, &inner) && check_table_shape(table, &inner) &&
               check_table_rows(table, &inner)) ||
           eb_failure_set(failure, "tables[%zu].%s", index, inner.text);
}

static bool check_parts_head(const struct eb_parts_manifest *manifest, struct eb_failure *failure)
{
    if (manifest->parts == 0 || manifest->parts > EB_PARTS_MAX) {
        return eb_failure_set(failure,
            "parts: '%" PRIu32 "' is not a number of parts; expected 1 to %u", manifest->parts,
            EB_PARTS_MAX);
    }
    if (manifest->salt == 0) {
        return eb_failure_set(
            failure, "salt: '%016" PRIx64 "' is 0; expected another number", manifest->salt);
    }
    const char *why = manifest->lineage[0] != '\0'
                          ? eb_name_error(manifest->lineage, EB_PARTS_NAME_BYTES_MAX)
                          : NULL;
    return !why || eb_failure_set(failure, "lineage: '%.64s' %s", manifest->lineage, why);
}

/* Returns false if two tables have the same name. The tables must be sorted. */
static bool check_names_differ(const struct eb_parts_manifest *manifest, struct eb_failure *failure)
{
    for (size_t i = 1; i < manifest->count; i++) {
        const char *name = manifest->tables[i].name;
        if (strcmp(manifest->tables[i - 1].name, name) == 0) {
            return eb_failure_set(
                failure, "tables: '%.64s' is listed twice; expected each table once", name);
        }
    }
    return true;
}

/* ---- from texts to values ---- */

/* Where errors go while the table with the number `index` is read. */
struct table_reading {
    size_t index;
    struct eb_failure *failure;
};

/* Refuses a value, or that it is missing if it is NULL. Always returns false. */
static bool refuse_field(
    const struct table_reading *reading, const char *field, const char *value, const char *expected)
{
    return value ? eb_failure_set(reading->failure, "tables[%zu].%s: '%.64s' is not %s",
                       reading->index, field, value, expected)
                 : eb_failure_set(reading->failure, "tables[%zu].%s: is missing; expected %s",
                       reading->index, field, expected);
}

static bool read_field_number(
    const struct table_reading *reading, const char *field, const char *text, uint64_t *value)
{
    return (text && eb_manifest_text_number(text, UINT64_MAX, value)) ||
           refuse_field(reading, field, text, "a number below 2^64");
}

/* Reads a key, which may be negative. */
static bool read_field_key(
    const struct table_reading *reading, const char *field, const char *text, int64_t *key)
{
    bool is_negative = text[0] == '-';
    uint64_t magnitude;
    if (!eb_manifest_text_number(
            text + is_negative, (uint64_t)INT64_MAX + is_negative, &magnitude)) {
        return refuse_field(reading, field, text, "a key; expected -2^63 to 2^63 - 1");
    }
    *key = (int64_t)(is_negative ? -magnitude : magnitude);
    return true;
}

static bool read_placement(const struct table_reading *reading,
    const struct parts_table_texts *texts, struct eb_parts_table *table)
{
    unsigned placement = 0;
    uint64_t part = 0;
    while (texts->placement && placement < EB_PLACEMENT_COUNT &&
           strcmp(placement_names[placement], texts->placement) != 0) {
        placement++;
    }
    if (!texts->placement || placement == EB_PLACEMENT_COUNT) {
        return refuse_field(
            reading, "placement", texts->placement, "one of everywhere, whole and rows");
    }
    table->placement = (enum eb_placement)placement;
    if (placement != EB_PLACEMENT_WHOLE) {
        return !texts->part || refuse_field(reading, "part", texts->part,
                                   "valid here: only tables placed whole "
                                   "have a part");
    }
    if (!texts->part || !eb_manifest_text_number(texts->part, EB_PARTS_MAX, &part)) {
        return refuse_field(reading, "part", texts->part, "the number of a part");
    }
    table->part = (uint32_t)part;
    return true;
}

static bool read_types(const struct table_reading *reading, const struct parts_table_texts *texts,
    struct eb_parts_table *table)
{
    int type = 1;
    int storage = 1;
    while (texts->type && type < EB_TYPE_COUNT &&
           strcmp(eb_type_name((enum eb_type)type), texts->type) != 0) {
        type++;
    }
    if (!texts->type || type == EB_TYPE_COUNT) {
        return refuse_field(reading, "type", texts->type, "a type such as f32");
    }
    while (texts->storage && storage < EB_STORAGE_COUNT &&
           strcmp(eb_storage_name((enum eb_storage)storage), texts->storage) != 0) {
        storage++;
    }
    if (!texts->storage || storage == EB_STORAGE_COUNT) {
        return refuse_field(reading, "storage", texts->storage, "a storage such as f32 or int8");
    }
    table->type = (enum eb_type)type;
    table->storage = (enum eb_storage)storage;
    return true;
}

static bool read_rows(const struct table_reading *reading, const struct parts_table_texts *texts,
    struct eb_parts_table *table)
{
    table->is_keyed = texts->keyed && strcmp(texts->keyed, "true") == 0;
    if (texts->keyed && !table->is_keyed && strcmp(texts->keyed, "false") != 0) {
        return refuse_field(reading, "keyed", texts->keyed, "true or false");
    }
    table->has_unknown_row = texts->unknown_row;
    if (texts->unknown_row &&
        !read_field_number(reading, "unknown_row", texts->unknown_row, &table->unknown_row)) {
        return false;
    }
    table->has_unknown_key = texts->unknown_key;
    if (texts->unknown_key &&
        !read_field_key(reading, "unknown_key", texts->unknown_key, &table->unknown_key)) {
        return false;
    }
    return read_field_number(reading, "rows_total", texts->rows_total, &table->rows_total);
}

static bool read_shape(const struct table_reading *reading, const struct parts_table_texts *texts,
    struct eb_parts_table *table)
{
    for (uint32_t i = 0; i < texts->shape_count; i++) {
        char field[32];
        snprintf(field, sizeof field, "shape[%" PRIu32 "]", i);
        if (!read_field_number(reading, field, texts->shape[i], &table->shape[i])) {
            return false;
        }
    }
    table->shape_count = texts->shape_count;
    return true;
}

static bool read_digests(const struct table_reading *reading, const struct parts_table_texts *texts,
    struct eb_parts_table *table)
{
    if (texts->digests_count == 0) {
        return refuse_field(reading, "digests", NULL, "one for each file");
    }
    table->digests = calloc(texts->digests_count, sizeof *table->digests);
    if (!table->digests) {
        return eb_manifest_text_no_memory(reading->failure);
    }
    for (uint32_t i = 0; i < texts->digests_count; i++) {
        if (!eb_manifest_text_digest(texts->digests[i], &table->digests[i])) {
            char field[32];
            snprintf(field, sizeof field, "digests[%" PRIu32 "]", i);
            return refuse_field(reading, field, texts->digests[i],
                "a digest; expected 16 hex digits, as embag check prints them");
        }
    }
    table->digest_count = texts->digests_count;
    return true;
}

/* Reads the table with the number `index`. Takes the name out of the texts. */
static bool read_parts_table(struct parts_table_texts *texts, size_t index,
    struct eb_parts_table *table, struct eb_failure *failure)
{
    struct table_reading reading = {index, failure};
    if (!texts->name) {
        return refuse_field(&reading, "name", NULL, "that of the table");
    }
    table->name = texts->name;
    texts->name = NULL;
    return read_placement(&reading, texts, table) && read_types(&reading, texts, table) &&
           read_shape(&reading, texts, table) && read_rows(&reading, texts, table) &&
           read_digests(&reading, texts, table);
}

/* Reads all but the tables. */
static bool read_parts_head(
    struct parts_texts *texts, struct eb_parts_manifest *manifest, struct eb_failure *failure)
{
    uint64_t parts;
    if (!eb_manifest_text_one("format", texts->format,
            "is not supported by this version of embag; expected 1; use a newer version",
            failure)) {
        return false;
    }
    if (!texts->parts || !eb_manifest_text_number(texts->parts, EB_PARTS_MAX, &parts)) {
        return eb_failure_set(failure, "parts: '%.64s' is not a number from 1 to %u",
            texts->parts ? texts->parts : "", EB_PARTS_MAX);
    }
    manifest->parts = (uint32_t)parts;
    if (!texts->salt || !eb_manifest_text_digest(texts->salt, &manifest->salt)) {
        return eb_failure_set(failure, "salt: '%.64s' is not a number of 16 hex digits",
            texts->salt ? texts->salt : "");
    }
    if (texts->lineage && texts->lineage[0] == '\0') {
        return eb_failure_set(failure, "lineage: '' is empty; expected a name, or no lineage");
    }
    manifest->lineage = strdup(texts->lineage ? texts->lineage : "");
    return manifest->lineage ? check_parts_head(manifest, failure)
                             : eb_manifest_text_no_memory(failure);
}

static int compare_parts_tables(const void *left, const void *right)
{
    const struct eb_parts_table *a = left;
    const struct eb_parts_table *b = right;
    return strcmp(a->name, b->name);
}

static bool read_parts_tables(
    struct parts_texts *texts, struct eb_parts_manifest *manifest, struct eb_failure *failure)
{
    if (texts->tables_count == 0) {
        return eb_failure_set(failure, "tables: is missing or empty; expected at least one table");
    }
    manifest->tables = calloc(texts->tables_count, sizeof *manifest->tables);
    if (!manifest->tables) {
        return eb_manifest_text_no_memory(failure);
    }
    manifest->count = texts->tables_count;
    for (size_t i = 0; i < manifest->count; i++) {
        if (!read_parts_table(&texts->tables[i], i, &manifest->tables[i], failure) ||
            !check_parts_table(manifest, i, failure)) {
            return false;
        }
    }
    qsort(manifest->tables, manifest->count, sizeof *manifest->tables, compare_parts_tables);
    return check_names_differ(manifest, failure);
}

bool eb_parts_manifest_is(const uint8_t *yaml, size_t yaml_bytes)
{
    size_t rest_bytes;
    return eb_manifest_text_find(yaml, yaml_bytes, "tables:", &rest_bytes);
}

/* Loads the texts. Returns NULL with *failure set if that fails. */
static struct parts_texts *load_parts_manifest(
    const uint8_t *yaml, size_t yaml_bytes, struct eb_failure *failure)
{
    void *values;
    size_t rest_bytes;
    if (!eb_manifest_text_load(
            yaml, yaml_bytes, &parts_value, "format, parts, salt and tables", &values, failure) &&
        !failure->is_transient && !eb_parts_manifest_is(yaml, yaml_bytes) &&
        eb_manifest_text_find(yaml, yaml_bytes, "files:", &rest_bytes)) {
        eb_failure_set(failure, "this version is not in parts, because its manifest lists files "
                                "instead of tables; pack it into parts, or start servers without "
                                "--part and --route");
    }
    return values;
}

bool eb_parts_manifest_parse(const uint8_t *yaml, size_t yaml_bytes,
    struct eb_parts_manifest *manifest, struct eb_failure *failure)
{
    *manifest = (struct eb_parts_manifest){0};
    struct parts_texts *texts = load_parts_manifest(yaml, yaml_bytes, failure);
    if (!texts) {
        return false;
    }
    bool is_good =
        read_parts_head(texts, manifest, failure) && read_parts_tables(texts, manifest, failure);
    eb_yaml_free(&parts_value, texts);
    if (!is_good) {
        eb_parts_manifest_deinit(manifest);
        return false;
    }
    manifest->digest = XXH3_64bits(yaml, yaml_bytes);
    return true;
}

bool eb_parts_manifest_read(struct eb_table_file *file, struct eb_parts_manifest *manifest,
    char **yaml, struct eb_failure *failure)
{
    *manifest = (struct eb_parts_manifest){0};
    *yaml = NULL;
    uint8_t *bytes = eb_manifest_text_read(file, failure);
    if (!bytes || !eb_parts_manifest_parse(bytes, file->bytes, manifest, failure)) {
        free(bytes);
        return false;
    }
    bytes[file->bytes] = '\0'; /* there is room for it */
    *yaml = (char *)bytes;
    return true;
}

/* ---- writing ---- */

static bool check_parts_to_write(
    const struct eb_parts_manifest *manifest, struct eb_failure *failure)
{
    if (!check_parts_head(manifest, failure)) {
        return false;
    }
    if (manifest->count == 0 || manifest->count > EB_PARTS_TABLES_MAX) {
        return eb_failure_set(failure, "%zu tables cannot be listed; expected 1 to %u",
            manifest->count, EB_PARTS_TABLES_MAX);
    }
    for (size_t i = 0; i < manifest->count; i++) {
        if (!check_parts_table(manifest, i, failure)) {
            return false;
        }
    }
    for (size_t i = 1; i < manifest->count; i++) {
        const char *name = manifest->tables[i].name;
        if (strcmp(manifest->tables[i - 1].name, name) > 0) {
            return eb_failure_set(failure,
                "tables[%zu].name: '%.64s' is not in order; expected tables sorted by name", i,
                name);
        }
    }
    return check_names_differ(manifest, failure);
}

static void write_parts_table(FILE *out, const struct eb_parts_table *table)
{
    fputs("  - {name: ", out);
    eb_manifest_text_quote(out, table->name);
    fprintf(out, ", placement: %s", eb_placement_name(table->placement));
    if (table->placement == EB_PLACEMENT_WHOLE) {
        fprintf(out, ", part: %" PRIu32, table->part);
    }
    if (table->is_keyed) {
        fputs(", keyed: true", out);
    }
    if (table->has_unknown_row) {
        fprintf(out, ", unknown_row: %" PRIu64, table->unknown_row);
    }
    if (table->has_unknown_key) {
        fprintf(out, ", unknown_key: %" PRId64, table->unknown_key);
    }
    fprintf(
        out, ", type: %s, storage: %s", eb_type_name(table->type), eb_storage_name(table->storage));
    if (table->shape_count > 0) {
        fputs(", shape: [", out);
        for (uint32_t i = 0; i < table->shape_count; i++) {
            fprintf(out, "%s%" PRIu64, i > 0 ? ", " : "", table->shape[i]);
        }
        fputc(']', out);
    }
    fprintf(out, ", rows_total: %" PRIu64 ", digests: [", table->rows_total);
    for (size_t i = 0; i < table->digest_count; i++) {
        fprintf(out, "%s\"%016" PRIx64 "\"", i > 0 ? ", " : "", table->digests[i]);
    }
    fputs("]}\n", out);
}

static void write_parts_manifest(FILE *out, const void *data)
{
    const struct eb_parts_manifest *manifest = data;
    fprintf(out, "format: 1\nparts: %" PRIu32 "\nsalt: \"%016" PRIx64 "\"\n", manifest->parts,
        manifest->salt);
    if (manifest->lineage[0] != '\0') {
        fputs("lineage: ", out);
        eb_manifest_text_quote(out, manifest->lineage);
        fputc('\n', out);
    }
    fputs("tables:\n", out);
    for (size_t i = 0; i < manifest->count; i++) {
        write_parts_table(out, &manifest->tables[i]);
    }
}

char *eb_parts_manifest_write(
    const struct eb_parts_manifest *manifest, size_t *text_bytes, struct eb_failure *failure)
{
    return check_parts_to_write(manifest, failure)
               ? eb_manifest_text_print(write_parts_manifest, manifest, text_bytes, failure)
               : NULL;
}

/* ---- the rest ---- */

void eb_parts_manifest_deinit(struct eb_parts_manifest *manifest)
{
    for (size_t i = 0; manifest->tables && i < manifest->count; i++) {
        free(manifest->tables[i].name);
        free(manifest->tables[i].digests);
    }
    free(manifest->tables);
    free(manifest->lineage);
    *manifest = (struct eb_parts_manifest){0};
}

static int compare_name_with_table(const void *name, const void *table)
{
    return strcmp(name, ((const struct eb_parts_table *)table)->name);
}

const struct eb_parts_table *eb_parts_manifest_find(
    const struct eb_parts_manifest *manifest, const char *name)
{
    return manifest->count == 0 ? NULL
                                : bsearch(name, manifest->tables, manifest->count,
                                      sizeof *manifest->tables, compare_name_with_table);
}

struct eb_part_rule eb_parts_manifest_rule(const struct eb_parts_manifest *manifest, bool by_key)
{
    return (struct eb_part_rule){manifest->parts, by_key, manifest->salt};
}

/* ---- a packed file ---- */

/* Returns whether the file holds the rows of the table that it should, as far as their numbers and
 * keys tell. */
static bool is_division(const struct eb_parts_manifest *manifest,
    const struct eb_parts_table *table, uint32_t number, const struct eb_packed_format *format)
{
    bool is_divided = table->placement == EB_PLACEMENT_ROWS;
    bool by_key = is_divided && table->is_keyed;
    int64_t unknown_row = table->has_unknown_row ? (int64_t)table->unknown_row : -1;
    bool has_all = by_key || format->tensor.dims[0] == eb_packed_format_part_rows(table->rows_total,
                                                           format->parts, format->part);
    return format->parts == (is_divided ? manifest->parts : 1) && format->part == number &&
           format->row_first == 0 && format->rows_total == table->rows_total && has_all &&
           format->by_key == by_key && format->salt == (by_key ? manifest->salt : 0) &&
           format->unknown_row == unknown_row;
}

static bool is_of_type(const struct eb_parts_table *table, const struct eb_packed_format *format)
{
    return format->type == table->type && format->tensor.storage == table->storage &&
           format->tensor.rank == 1 + table->shape_count &&
           memcmp(format->tensor.dims + 1, table->shape,
               table->shape_count * sizeof table->shape[0]) == 0 &&
           (format->tensor.dims[0] == 0 || eb_packed_format_is_keyed(format) == table->is_keyed);
}

bool eb_parts_manifest_check(const struct eb_parts_manifest *manifest,
    const struct eb_parts_table *table, uint32_t number, const struct eb_packed_format *format,
    struct eb_failure *failure)
{
    if (!is_of_type(table, format)) {
        return eb_failure_set(failure,
            "its type, storage, shape or keys are not those of table '%.64s' in the manifest; "
            "split the version again",
            table->name);
    }
    if (!is_division(manifest, table, number, format)) {
        return eb_failure_set(failure,
            "it holds %" PRIu64 " rows, of part %" PRIu32 " of %" PRIu32 " of %" PRIu64
            ", but the manifest expects part %" PRIu32 " of %" PRIu64
            " rows of table '%.64s'; use files that were split together",
            format->tensor.dims[0], format->part, format->parts, format->rows_total, number,
            table->rows_total, table->name);
    }
    return format->digest == table->digests[number] ||
           eb_failure_set(failure,
               "its digest is %016" PRIx64 ", but the manifest lists %016" PRIx64
               "; copy the file again, and the manifest last",
               format->digest, table->digests[number]);
}
