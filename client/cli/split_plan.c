#include "client/cli/split_plan.h"

#include "server/base/yaml_load.h"
#include "server/formats/manifest_text.h"
#include "server/formats/table_file.h"

#include <cyaml/cyaml.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A part may have this part of its share more than its share. */
#define SHARE_SLACK 10

/* ---- choice ---- */

static int compare_split_bytes(const void *left, const void *right)
{
    const struct eb_split_table *const *a = left;
    const struct eb_split_table *const *b = right;
    if ((*a)->bytes != (*b)->bytes) {
        return (*a)->bytes < (*b)->bytes ? -1 : 1;
    }
    return strcmp((*a)->name, (*b)->name);
}

/* Adds a table to the bytes of the parts that it lies in. */
static void add_part_bytes(struct eb_split_plan *plan, const struct eb_split_table *table)
{
    if (table->placement == EB_PLACEMENT_EVERYWHERE) {
        plan->everywhere_bytes += table->bytes;
    } else if (table->placement == EB_PLACEMENT_WHOLE) {
        plan->part_bytes[table->part] += table->bytes;
    } else {
        for (uint32_t part = 0; part < plan->parts; part++) {
            plan->part_bytes[part] += table->bytes / plan->parts;
        }
    }
}

static uint32_t find_emptiest(const struct eb_split_plan *plan)
{
    uint32_t found = 0;
    for (uint32_t part = 1; part < plan->parts; part++) {
        found = plan->part_bytes[part] < plan->part_bytes[found] ? part : found;
    }
    return found;
}

/* Places the tables that are given, and those that lie everywhere. */
static void place_first(struct eb_split_plan *plan, struct eb_split_table *const *by_bytes)
{
    uint64_t everywhere = 0;
    for (size_t i = 0; i < plan->count; i++) {
        struct eb_split_table *table = by_bytes[i];
        bool is_small = !table->is_given && table->bytes < plan->everywhere_below &&
                        table->bytes <= plan->everywhere_max - everywhere;
        if (is_small) {
            table->placement = EB_PLACEMENT_EVERYWHERE;
            table->is_given = true;
            everywhere += table->bytes;
        }
        if (table->is_given && table->placement != EB_PLACEMENT_WHOLE) {
            add_part_bytes(plan, table);
        }
        if (table->is_given && table->placement == EB_PLACEMENT_WHOLE &&
            table->part != UINT32_MAX) {
            add_part_bytes(plan, table);
        }
    }
}

/* Returns the bytes that each part should have at most. */
static uint64_t find_share(const struct eb_split_plan *plan)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->count; i++) {
        bool is_apart = plan->tables[i].placement == EB_PLACEMENT_EVERYWHERE;
        bytes += plan->tables[i].is_given && is_apart ? 0 : plan->tables[i].bytes;
    }
    return bytes / plan->parts + bytes / plan->parts / SHARE_SLACK;
}

/* Places the other tables, the largest first. */
static void place_rest(struct eb_split_plan *plan, struct eb_split_table *const *by_bytes)
{
    uint64_t share = find_share(plan);
    for (size_t i = plan->count; i-- > 0;) {
        struct eb_split_table *table = by_bytes[i];
        bool is_open_whole =
            table->is_given && table->placement == EB_PLACEMENT_WHOLE && table->part == UINT32_MAX;
        if (table->is_given && !is_open_whole) {
            continue;
        }
        uint32_t part = find_emptiest(plan);
        bool fits = plan->part_bytes[part] + table->bytes <= share || table->rows == 0;
        table->placement = fits || is_open_whole ? EB_PLACEMENT_WHOLE : EB_PLACEMENT_ROWS;
        table->part = table->placement == EB_PLACEMENT_WHOLE ? part : 0;
        add_part_bytes(plan, table);
    }
}

bool eb_split_plan_place(struct eb_split_plan *plan, struct eb_failure *failure)
{
    struct eb_split_table **by_bytes = calloc(plan->count + 1, sizeof(struct eb_split_table *));
    plan->part_bytes = calloc(plan->parts, sizeof *plan->part_bytes);
    if (!by_bytes || !plan->part_bytes) {
        free(by_bytes);
        return eb_failure_set(failure, "out of memory");
    }
    for (size_t i = 0; i < plan->count; i++) {
        by_bytes[i] = &plan->tables[i];
    }
    qsort(by_bytes, plan->count, sizeof(struct eb_split_table *), compare_split_bytes);
    place_first(plan, by_bytes);
    place_rest(plan, by_bytes);
    free(by_bytes);
    return true;
}

void eb_split_plan_deinit(struct eb_split_plan *plan)
{
    free(plan->part_bytes);
    plan->part_bytes = NULL;
}

/* ---- placements that are given ---- */

struct placement_texts {
    char *name;
    char *placement;
    char *part;
};

struct placement_file {
    struct placement_texts *tables;
    uint32_t tables_count;
};

#define TEXT(key)                                                                                  \
    CYAML_FIELD_STRING_PTR(#key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct placement_texts, \
        key, 0, CYAML_UNLIMITED)

static const cyaml_schema_field_t table_fields[] = {
    TEXT(name), TEXT(placement), TEXT(part), CYAML_FIELD_END};
static const cyaml_schema_value_t table_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct placement_texts, table_fields)};
static const cyaml_schema_field_t file_fields[] = {
    CYAML_FIELD_SEQUENCE("tables", CYAML_FLAG_POINTER_NULL_STR | CYAML_FLAG_OPTIONAL,
        struct placement_file, tables, &table_value, 0, EB_PARTS_TABLES_MAX),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t file_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct placement_file, file_fields)};

static struct eb_split_table *find_split_table(struct eb_split_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->count; i++) {
        if (strcmp(plan->tables[i].name, name) == 0) {
            return &plan->tables[i];
        }
    }
    return NULL;
}

/* Returns the placement of that name, or EB_PLACEMENT_COUNT. */
static enum eb_placement find_placement(const char *name)
{
    enum eb_placement placement = EB_PLACEMENT_EVERYWHERE;
    while (placement < EB_PLACEMENT_COUNT && strcmp(eb_placement_name(placement), name) != 0) {
        placement++;
    }
    return placement;
}

static bool take_placement(struct eb_split_plan *plan, const struct placement_texts *texts,
    size_t index, struct eb_failure *failure)
{
    struct eb_split_table *table = texts->name ? find_split_table(plan, texts->name) : NULL;
    if (!table) {
        return eb_failure_set(failure, "tables[%zu].name: '%.64s' is not a table of the version",
            index, texts->name ? texts->name : "");
    }
    if (table->is_given) {
        return eb_failure_set(
            failure, "tables[%zu].name: '%.64s' is listed twice", index, texts->name);
    }
    enum eb_placement placement =
        texts->placement ? find_placement(texts->placement) : EB_PLACEMENT_COUNT;
    if (placement == EB_PLACEMENT_COUNT) {
        return eb_failure_set(failure,
            "tables[%zu].placement: '%.64s' is not a placement; expected everywhere, whole or rows",
            index, texts->placement ? texts->placement : "");
    }
    uint64_t part = UINT32_MAX;
    if (texts->part && (placement != EB_PLACEMENT_WHOLE ||
                           !eb_manifest_text_number(texts->part, plan->parts - 1, &part))) {
        return eb_failure_set(failure,
            "tables[%zu].part: '%.64s': expected a number from 0 to %" PRIu32
            ", and only with placement whole",
            index, texts->part, plan->parts - 1);
    }
    table->is_given = true;
    table->placement = placement;
    table->part = (uint32_t)part;
    return true;
}

static bool take_placements(
    struct eb_split_plan *plan, const uint8_t *yaml, size_t yaml_bytes, struct eb_failure *failure)
{
    struct placement_file *file;
    if (!eb_manifest_text_load(yaml, yaml_bytes, &file_value, "tables", (void **)&file, failure)) {
        return false;
    }
    bool is_good = true;
    for (size_t i = 0; is_good && i < file->tables_count; i++) {
        is_good = take_placement(plan, &file->tables[i], i, failure);
    }
    eb_yaml_free(&file_value, file);
    return is_good;
}

bool eb_split_plan_read(struct eb_split_plan *plan, const char *path, struct eb_failure *failure)
{
    struct eb_table_file file;
    if (!eb_table_file_open(path, &file, failure)) {
        return eb_failure_locate(failure, path);
    }
    uint8_t *yaml = eb_manifest_text_read(&file, failure);
    bool is_good = yaml && take_placements(plan, yaml, file.bytes, failure);
    eb_table_file_close(&file);
    free(yaml);
    return is_good || eb_failure_locate(failure, path);
}
