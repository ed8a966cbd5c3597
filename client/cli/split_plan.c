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

/* ---- choice ---- */

/* The sums over the tables that do not lie everywhere. */
struct split_sums {
    uint64_t bytes;
    uint64_t work;
};

static int compare_split_bytes(const void *left, const void *right)
{
    const struct eb_split_table *const *a = left;
    const struct eb_split_table *const *b = right;
    if ((*a)->bytes != (*b)->bytes) {
        return (*a)->bytes < (*b)->bytes ? -1 : 1;
    }
    return strcmp((*a)->name, (*b)->name);
}

/* Returns the larger of two fractions: of all bytes and of all work. */
static double find_fraction(const struct split_sums *sums, uint64_t bytes, uint64_t work)
{
    double of_bytes = sums->bytes > 0 ? (double)bytes / (double)sums->bytes : 0;
    double of_work = sums->work > 0 ? (double)work / (double)sums->work : 0;
    return of_bytes > of_work ? of_bytes : of_work;
}

/* Adds a table to the parts that it lies in. */
static void add_to_parts(struct eb_split_plan *plan, const struct eb_split_table *table)
{
    if (table->placement == EB_PLACEMENT_EVERYWHERE) {
        plan->everywhere_bytes += table->bytes;
    } else if (table->placement == EB_PLACEMENT_WHOLE) {
        plan->part_bytes[table->part] += table->bytes;
        plan->part_work[table->part] += table->work;
    } else {
        for (uint32_t part = 0; part < plan->parts; part++) {
            plan->part_bytes[part] += table->bytes / plan->parts;
            plan->part_work[part] += table->work / plan->parts;
        }
    }
}

static double find_part_fraction(
    const struct eb_split_plan *plan, const struct split_sums *sums, uint32_t part)
{
    return find_fraction(sums, plan->part_bytes[part], plan->part_work[part]);
}

static uint32_t find_emptiest(const struct eb_split_plan *plan, const struct split_sums *sums)
{
    uint32_t found = 0;
    for (uint32_t part = 1; part < plan->parts; part++) {
        bool is_less = find_part_fraction(plan, sums, part) < find_part_fraction(plan, sums, found);
        found = is_less ? part : found;
    }
    return found;
}

/* Returns whether a table's part is to be chosen. */
static bool is_open_whole(const struct eb_split_table *table)
{
    return table->is_given && table->placement == EB_PLACEMENT_WHOLE && table->part == UINT32_MAX;
}

/* Places the tables that lie everywhere, and those that are given. */
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
        if (table->is_given && !is_open_whole(table)) {
            add_to_parts(plan, table);
        }
    }
}

static struct split_sums sum_tables(const struct eb_split_plan *plan)
{
    struct split_sums sums = {0, 0};
    for (size_t i = 0; i < plan->count; i++) {
        const struct eb_split_table *table = &plan->tables[i];
        if (!table->is_given || table->placement != EB_PLACEMENT_EVERYWHERE) {
            sums.bytes += table->bytes;
            sums.work += table->work;
        }
    }
    return sums;
}

/* Places a table that has no part yet. */
static void place_table(
    struct eb_split_plan *plan, const struct split_sums *sums, struct eb_split_table *table)
{
    uint32_t part = find_emptiest(plan, sums);
    double fraction = find_fraction(
        sums, plan->part_bytes[part] + table->bytes, plan->part_work[part] + table->work);
    double share = (1 + 1.0 / SHARE_SLACK) / plan->parts;
    bool fits = fraction <= share || table->rows == 0 || is_open_whole(table);
    table->placement = fits ? EB_PLACEMENT_WHOLE : EB_PLACEMENT_ROWS;
    table->part = fits ? part : 0;
    add_to_parts(plan, table);
}

static int compare_fraction(const void *left, const void *right)
{
    const struct eb_split_table *const *a = left;
    const struct eb_split_table *const *b = right;
    if ((*a)->fraction != (*b)->fraction) {
        return (*a)->fraction > (*b)->fraction ? -1 : 1;
    }
    return strcmp((*a)->name, (*b)->name);
}

/* Places the other tables, the largest first. Changes the order of the list. */
static void place_rest(struct eb_split_plan *plan, struct eb_split_table **tables)
{
    struct split_sums sums = sum_tables(plan);
    for (size_t i = 0; i < plan->count; i++) {
        tables[i]->fraction = find_fraction(&sums, tables[i]->bytes, tables[i]->work);
    }
    qsort(tables, plan->count, sizeof(struct eb_split_table *), compare_fraction);
    for (size_t i = 0; i < plan->count; i++) {
        if (!tables[i]->is_given || is_open_whole(tables[i])) {
            place_table(plan, &sums, tables[i]);
        }
    }
}

bool eb_split_plan_place(struct eb_split_plan *plan, struct eb_failure *failure)
{
    struct eb_split_table **by_bytes = calloc(plan->count + 1, sizeof(struct eb_split_table *));
    plan->part_bytes = calloc(plan->parts, sizeof *plan->part_bytes);
    plan->part_work = calloc(plan->parts, sizeof *plan->part_work);
    if (!by_bytes || !plan->part_bytes || !plan->part_work) {
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
    free(plan->part_work);
    free(plan->by_name);
    plan->by_name = NULL;
    plan->part_bytes = NULL;
    plan->part_work = NULL;
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

/* Makes plan->by_name, unless it is there. */
static bool index_tables(struct eb_split_plan *plan, struct eb_failure *failure)
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

static struct eb_split_table *find_split_table(const struct eb_split_plan *plan, const char *name)
{
    struct eb_split_table **found = bsearch(
        name, plan->by_name, plan->count, sizeof(struct eb_split_table *), compare_split_name);
    return found ? *found : NULL;
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
    if (!index_tables(plan, failure)) {
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

/* ---- metrics ---- */

/* Reads a label's value, "TEXT", with its escapes, from *at on, into `out` of `bytes` bytes, and
 * moves *at past it. Returns false if it is malformed or too long. */
static bool read_label(const char **at, char *out, size_t bytes)
{
    size_t used = 0;
    const char *from = *at;
    if (*from++ != '"') {
        return false;
    }
    for (; *from != '"' && *from != '\0'; from++) {
        char letter = *from;
        if (letter == '\\') {
            from++;
            letter = *from == 'n' ? '\n' : *from;
        }
        if (letter == '\0' || used + 1 == bytes) {
            return false;
        }
        out[used++] = letter;
    }
    out[used] = '\0';
    *at = from + 1;
    return *from == '"';
}

/* Returns `at` after `text`, or NULL if it does not begin with it. */
static const char *skip_text(const char *at, const char *text)
{
    size_t bytes = strlen(text);
    return at && strncmp(at, text, bytes) == 0 ? at + bytes : NULL;
}

/* Adds the value of a line of metrics to a table's work, if it is one of a table of the model.
 * Returns whether it is. */
static bool take_metric(struct eb_split_plan *plan, const char *line, const char *model)
{
    char of_model[EB_PARTS_NAME_BYTES_MAX + 1];
    char name[EB_PARTS_NAME_BYTES_MAX + 1];
    const char *at = skip_text(line, "embag_table_rows_touched_total{model=");
    at = at ? at : skip_text(line, "embag_table_bags_total{model=");
    if (!at || !read_label(&at, of_model, sizeof of_model) || strcmp(of_model, model) != 0) {
        return false;
    }
    at = skip_text(at, ",table=");
    if (!at || !read_label(&at, name, sizeof name)) {
        return false;
    }
    struct eb_split_table *table = find_split_table(plan, name);
    at = skip_text(at, "} ");
    char *end;
    double value = at ? strtod(at, &end) : 0;
    if (table && at && end != at && value > 0 && value < 1e18) {
        table->work += (uint64_t)value;
    }
    return at;
}

bool eb_split_plan_read_metrics(
    struct eb_split_plan *plan, const char *path, const char *model, struct eb_failure *failure)
{
    bool is_stdin = strcmp(path, "-") == 0;
    if (!index_tables(plan, failure)) {
        return false;
    }
    FILE *file = is_stdin ? stdin : fopen(path, "re");
    if (!file) {
        return eb_failure_set(failure, "%s: it cannot be opened (%s)", path, strerror(errno));
    }
    char *line = NULL;
    size_t room = 0;
    bool is_any = false;
    while (getline(&line, &room, file) >= 0) {
        is_any = take_metric(plan, line, model) || is_any;
    }
    bool is_good = !ferror(file) || eb_failure_set(failure, "%s: it cannot be read", path);
    if (!is_stdin) {
        (void)fclose(file);
    }
    free(line);
    return is_good &&
           (is_any || eb_failure_set(failure,
                          "%s: there is no embag_table_rows_touched_total of model '%.64s' in it; "
                          "expected what a server's /metrics prints",
                          path, model));
}
