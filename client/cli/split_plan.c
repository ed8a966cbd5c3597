#include "client/cli/split_plan.h"

#include "server/base/yaml_load.h"
#include "server/formats/manifest_text.h"
#include "server/formats/table_file.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A part may have this part of its share more than its share. */
#define SHARE_SLACK 10

/* ---- tables by name ---- */

static int compare_split_names(const void *left, const void *right)
{
    const struct eb_split_table *const *a = left;
    const struct eb_split_table *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static int compare_split_name(const void *name, const void *table)
{
    return strcmp(name, (*(struct eb_split_table *const *)table)->name);
}

bool eb_split_plan_index(struct eb_split_plan *plan, struct eb_failure *failure)
{
    if (plan->by_name) {
        return true;
    }
    plan->by_name = calloc(plan->count + 1, sizeof(struct eb_split_table *));
    if (!plan->by_name) {
        return eb_failure_set(failure, "out of memory");
    }
    for (size_t i = 0; i < plan->count; i++) {
        plan->by_name[i] = &plan->tables[i];
    }
    qsort(plan->by_name, plan->count, sizeof(struct eb_split_table *), compare_split_names);
    return true;
}

struct eb_split_table *eb_split_plan_find(const struct eb_split_plan *plan, const char *name)
{
    struct eb_split_table **found = bsearch(
        name, plan->by_name, plan->count, sizeof(struct eb_split_table *), compare_split_name);
    return found ? *found : NULL;
}

/* ---- choice ---- */

/* Orders tables by their sort keys, the largest first; among equals the smallest table first. */
static int compare_sort_keys(const void *left, const void *right)
{
    const struct eb_split_table *const *a = left;
    const struct eb_split_table *const *b = right;
    if ((*a)->sort_key != (*b)->sort_key) {
        return (*a)->sort_key > (*b)->sort_key ? -1 : 1;
    }
    if ((*a)->bytes != (*b)->bytes) {
        return (*a)->bytes < (*b)->bytes ? -1 : 1;
    }
    return strcmp((*a)->name, (*b)->name);
}

static double find_ratio(double value, double sum)
{
    return sum > 0 ? value / sum : 0;
}

/* Returns the largest of the fractions of the bytes, rows and bags. */
static double find_fraction(
    const struct eb_split_demand *sums, const struct eb_split_demand *demand)
{
    double of_bytes = find_ratio((double)demand->bytes, (double)sums->bytes);
    double of_rows = find_ratio(demand->rows_touched, sums->rows_touched);
    double of_bags = find_ratio(demand->bags, sums->bags);
    double most = of_bytes > of_rows ? of_bytes : of_rows;
    return most > of_bags ? most : of_bags;
}

static struct eb_split_demand add_demands(
    const struct eb_split_demand *a, const struct eb_split_demand *b)
{
    return (struct eb_split_demand){
        a->bytes + b->bytes, a->rows_touched + b->rows_touched, a->bags + b->bags};
}

static struct eb_split_demand find_whole_demand(const struct eb_split_table *table)
{
    return (struct eb_split_demand){table->bytes, table->rows_touched, table->bags};
}

/* Returns whether most bags would have rows in every part if the table were divided. */
static bool are_bags_everywhere(const struct eb_split_table *table, uint32_t parts)
{
    return table->rows_touched >= table->bags * parts;
}

/* Returns what each part has of a table whose rows are divided. A bag is looked up in each part
 * that has rows of it. */
static struct eb_split_demand find_divided_demand(
    const struct eb_split_table *table, uint32_t parts)
{
    double rows = table->rows_touched / parts;
    return (struct eb_split_demand){
        table->bytes / parts, rows, are_bags_everywhere(table, parts) ? table->bags : rows};
}

/* Adds a table to the parts that it lies in. */
static void add_to_parts(struct eb_split_plan *plan, const struct eb_split_table *table)
{
    if (table->placement == EB_PLACEMENT_EVERYWHERE) {
        plan->everywhere_bytes += table->bytes;
        return;
    }
    bool is_whole = table->placement == EB_PLACEMENT_WHOLE;
    struct eb_split_demand demand =
        is_whole ? find_whole_demand(table) : find_divided_demand(table, plan->parts);
    uint32_t first = is_whole ? table->part : 0;
    uint32_t end = is_whole ? table->part + 1 : plan->parts;
    for (uint32_t part = first; part < end; part++) {
        plan->part_demands[part] = add_demands(&plan->part_demands[part], &demand);
    }
}

/* Returns the part that has the least after it has taken the table whole. */
static uint32_t find_part(const struct eb_split_plan *plan, const struct eb_split_demand *sums,
    const struct eb_split_table *table)
{
    struct eb_split_demand demand = find_whole_demand(table);
    double least = 0;
    uint32_t found = 0;
    for (uint32_t part = 0; part < plan->parts; part++) {
        struct eb_split_demand after = add_demands(&plan->part_demands[part], &demand);
        double fraction = find_fraction(sums, &after);
        if (part == 0 || fraction < least) {
            least = fraction;
            found = part;
        }
    }
    return found;
}

/* Returns whether a table's part is to be chosen. */
static bool is_open_whole(const struct eb_split_table *table)
{
    return table->is_given && table->placement == EB_PLACEMENT_WHOLE && table->part == UINT32_MAX;
}

/* Places the tables that lie everywhere, and those that are given. Changes the order of the
 * list. */
static void place_first(struct eb_split_plan *plan, struct eb_split_table **tables)
{
    uint64_t everywhere = 0;
    for (size_t i = 0; i < plan->count; i++) {
        tables[i]->sort_key = find_ratio(tables[i]->bags, (double)tables[i]->bytes);
    }
    qsort(tables, plan->count, sizeof(struct eb_split_table *), compare_sort_keys);
    for (size_t i = 0; i < plan->count; i++) {
        struct eb_split_table *table = tables[i];
        bool is_small = !table->is_given && table->bytes < plan->everywhere_below &&
                        table->bytes <= plan->everywhere_bytes_max - everywhere;
        if (is_small) {
            table->placement = EB_PLACEMENT_EVERYWHERE;
            table->is_given = true;
            everywhere += table->bytes;
        }
        if (table->is_given && !is_open_whole(table)) {
            add_to_parts(plan, table);
        }
    }
}

/* Adds to the sums the bags that a divided table has more, because they count in several parts. */
static void count_divided_bags(
    struct eb_split_demand *sums, const struct eb_split_table *table, uint32_t parts)
{
    sums->bags += find_divided_demand(table, parts).bags * parts - table->bags;
}

/* Returns the sums over the tables that do not lie everywhere. */
static struct eb_split_demand sum_tables(const struct eb_split_plan *plan)
{
    struct eb_split_demand sums = {0, 0, 0};
    for (size_t i = 0; i < plan->count; i++) {
        const struct eb_split_table *table = &plan->tables[i];
        if (!table->is_given || table->placement != EB_PLACEMENT_EVERYWHERE) {
            struct eb_split_demand demand = find_whole_demand(table);
            sums = add_demands(&sums, &demand);
        }
        if (table->is_given && table->placement == EB_PLACEMENT_ROWS) {
            count_divided_bags(&sums, table, plan->parts);
        }
    }
    return sums;
}

/* Returns whether a part may take a table whole. */
static bool may_lie_whole(const struct eb_split_plan *plan, const struct eb_split_demand *sums,
    const struct eb_split_table *table, uint32_t part)
{
    struct eb_split_demand demand = find_whole_demand(table);
    struct eb_split_demand after = add_demands(&plan->part_demands[part], &demand);
    double slack = 1.0 / SHARE_SLACK / plan->parts;
    if (are_bags_everywhere(table, plan->parts)) {
        after.bags = 0; /* Dividing the table would not take bags from this part. */
    }
    return table->rows == 0 || find_fraction(sums, &demand) <= slack ||
           find_fraction(sums, &after) <= 1.0 / plan->parts + slack;
}

/* Places a table that has no part yet. */
static void place_table(
    struct eb_split_plan *plan, struct eb_split_demand *sums, struct eb_split_table *table)
{
    uint32_t part = find_part(plan, sums, table);
    if (is_open_whole(table) || may_lie_whole(plan, sums, table, part)) {
        table->placement = EB_PLACEMENT_WHOLE;
        table->part = part;
    } else {
        table->placement = EB_PLACEMENT_ROWS;
        table->part = 0;
        count_divided_bags(sums, table, plan->parts);
    }
    add_to_parts(plan, table);
}

/* Places the other tables, the largest first. Changes the order of the list. */
static void place_rest(struct eb_split_plan *plan, struct eb_split_table **tables)
{
    struct eb_split_demand sums = sum_tables(plan);
    for (size_t i = 0; i < plan->count; i++) {
        struct eb_split_demand demand = find_whole_demand(tables[i]);
        tables[i]->sort_key = find_fraction(&sums, &demand);
    }
    qsort(tables, plan->count, sizeof(struct eb_split_table *), compare_sort_keys);
    for (size_t i = 0; i < plan->count; i++) {
        if (!tables[i]->is_given || is_open_whole(tables[i])) {
            place_table(plan, &sums, tables[i]);
        }
    }
}

bool eb_split_plan_place(struct eb_split_plan *plan, struct eb_failure *failure)
{
    struct eb_split_table **tables = calloc(plan->count + 1, sizeof(struct eb_split_table *));
    plan->part_demands = calloc(plan->parts, sizeof *plan->part_demands);
    if (!tables || !plan->part_demands) {
        free(tables);
        return eb_failure_set(failure, "out of memory");
    }
    for (size_t i = 0; i < plan->count; i++) {
        tables[i] = &plan->tables[i];
    }
    place_first(plan, tables);
    place_rest(plan, tables);
    free(tables);
    return true;
}

void eb_split_plan_deinit(struct eb_split_plan *plan)
{
    free(plan->part_demands);
    free(plan->by_name);
    plan->by_name = NULL;
    plan->part_demands = NULL;
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

static const cyaml_schema_field_t table_fields[] = {EB_YAML_TEXT(placement_texts, name),
    EB_YAML_TEXT(placement_texts, placement), EB_YAML_TEXT(placement_texts, part), CYAML_FIELD_END};
static const cyaml_schema_value_t table_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct placement_texts, table_fields)};
static const cyaml_schema_field_t file_fields[] = {
    EB_YAML_LIST(placement_file, tables, table_value, EB_PARTS_TABLES_MAX),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t file_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct placement_file, file_fields)};

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
    struct eb_split_table *table = texts->name ? eb_split_plan_find(plan, texts->name) : NULL;
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
    if (!eb_split_plan_index(plan, failure)) {
        return false;
    }
    if (!eb_table_file_open(path, &file, failure)) {
        return eb_failure_locate(failure, path);
    }
    uint8_t *yaml = eb_manifest_text_read(&file, failure);
    bool is_good = yaml && take_placements(plan, yaml, file.bytes, failure);
    eb_table_file_close(&file);
    free(yaml);
    return is_good || eb_failure_locate(failure, path);
}
