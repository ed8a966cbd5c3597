#include "server/stats/table_stats.h"

#include <stdlib.h>
#include <string.h>

/* How far the merge is in each part. */
struct walk {
    const struct eb_table_stats *const *parts;
    size_t part_count;
    size_t *places; /* the next of each part's sums */
    struct eb_hot_rows_merge hot;
};

int eb_table_stats_compare(const struct eb_table_sum *sum, const char *model, const char *table)
{
    const int order = strcmp(sum->model, model);
    return order != 0 ? order : strcmp(sum->table, table);
}

/* The next sum of a part. NULL: it has no more. */
static const struct eb_table_sum *look(const struct walk *walk, size_t part)
{
    const struct eb_table_stats *from = walk->parts[part];
    const size_t place = walk->places[part];
    return place < from->count ? &from->sums[place] : NULL;
}

/* A sum of the table that comes next. NULL: there is none. */
static const struct eb_table_sum *find_next(const struct walk *walk)
{
    const struct eb_table_sum *least = NULL;
    for (size_t i = 0; i < walk->part_count; i++) {
        const struct eb_table_sum *sum = look(walk, i);
        if (sum && (!least || eb_table_stats_compare(sum, least->model, least->table) < 0)) {
            least = sum;
        }
    }
    return least;
}

/* The part's sum of that table, behind which the walk goes on. NULL: it has none. */
static const struct eb_table_sum *take(
    struct walk *walk, size_t part, const struct eb_table_sum *table)
{
    const struct eb_table_sum *sum = look(walk, part);
    if (!sum || eb_table_stats_compare(sum, table->model, table->table) != 0) {
        return NULL;
    }
    walk->places[part]++;
    return sum;
}

static size_t count_tables(struct walk *walk)
{
    size_t count = 0;
    for (const struct eb_table_sum *next = find_next(walk); next; next = find_next(walk)) {
        for (size_t i = 0; i < walk->part_count; i++) {
            (void)take(walk, i, next);
        }
        count++;
    }
    memset(walk->places, 0, walk->part_count * sizeof *walk->places);
    return count;
}

/* All parts' sums of the table that comes next. false: no memory. */
static bool merge_next(
    struct walk *walk, const struct eb_table_sum *next, struct eb_stats_table *table)
{
    bool is_hot = false;
    for (size_t i = 0; i < walk->part_count; i++) {
        const struct eb_table_sum *sum = take(walk, i, next);
        if (!sum) {
            continue;
        }
        table->bags += sum->bags;
        table->indices += sum->indices;
        table->missing += sum->missing;
        if (sum->hot) {
            eb_hot_rows_merge(&walk->hot, sum->hot);
            is_hot = true;
        }
    }
    if (is_hot) {
        table->hot_count = eb_hot_rows_top(&walk->hot, table->hot);
        memset(walk->hot.sums, 0, walk->hot.room * sizeof *walk->hot.sums);
        walk->hot.indices = 0;
    }
    table->model = strdup(next->model);
    table->table = strdup(next->table);
    return table->model && table->table;
}

static bool merge_all(struct walk *walk, struct eb_stats *stats)
{
    stats->tables = calloc(count_tables(walk) + 1, sizeof *stats->tables);
    if (!stats->tables) {
        return false;
    }
    for (const struct eb_table_sum *next = find_next(walk); next; next = find_next(walk)) {
        if (!merge_next(walk, next, &stats->tables[stats->table_count++])) {
            return false;
        }
    }
    return true;
}

bool eb_table_stats_merge(
    const struct eb_table_stats *const *parts, size_t part_count, struct eb_stats *stats)
{
    struct walk walk = {.parts = parts, .part_count = part_count};
    walk.hot.room = eb_hot_rows_room(part_count);
    walk.hot.sums = calloc(walk.hot.room, sizeof *walk.hot.sums);
    walk.places = calloc(part_count + 1, sizeof *walk.places);
    const bool is_good = walk.hot.sums && walk.places && merge_all(&walk, stats);
    free(walk.places);
    free(walk.hot.sums);
    return is_good;
}
