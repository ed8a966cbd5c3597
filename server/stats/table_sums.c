#include "server/stats/table_sums.h"

#include <stdlib.h>
#include <string.h>

/* The progress of the merge through each list of sums. */
struct walk {
    const struct eb_table_sums *const *lists;
    size_t list_count;
    size_t *positions; /* position of the next sum in each list */
    struct eb_hot_rows_merge hot;
};

int eb_table_sums_compare(const struct eb_table_sum *sum, const char *model, const char *table)
{
    int order = strcmp(sum->model, model);
    return order != 0 ? order : strcmp(sum->table, table);
}

/* Returns the next sum of a list; NULL if it has no more. */
static const struct eb_table_sum *next_of_list(const struct walk *walk, size_t list)
{
    const struct eb_table_sums *from = walk->lists[list];
    size_t position = walk->positions[list];
    return position < from->count ? &from->sums[position] : NULL;
}

/* Returns a sum of the table that comes next in the order of names. Returns NULL if none is
 * left. */
static const struct eb_table_sum *find_next_table(const struct walk *walk)
{
    const struct eb_table_sum *least = NULL;
    for (size_t i = 0; i < walk->list_count; i++) {
        const struct eb_table_sum *sum = next_of_list(walk, i);
        if (sum && (!least || eb_table_sums_compare(sum, least->model, least->table) < 0)) {
            least = sum;
        }
    }
    return least;
}

/* Returns the list's sum of the table and moves past it. Returns NULL if the list has none. */
static const struct eb_table_sum *take_sum(
    struct walk *walk, size_t list, const struct eb_table_sum *table)
{
    const struct eb_table_sum *sum = next_of_list(walk, list);
    if (!sum || eb_table_sums_compare(sum, table->model, table->table) != 0) {
        return NULL;
    }
    walk->positions[list]++;
    return sum;
}

static size_t count_merged_tables(struct walk *walk)
{
    size_t count = 0;
    for (const struct eb_table_sum *next = find_next_table(walk); next;
         next = find_next_table(walk)) {
        for (size_t i = 0; i < walk->list_count; i++) {
            (void)take_sum(walk, i, next);
        }
        count++;
    }
    memset(walk->positions, 0, walk->list_count * sizeof *walk->positions);
    return count;
}

/* Adds up the sums of the table that comes next. Returns false if out of memory. */
static bool merge_next_table(
    struct walk *walk, const struct eb_table_sum *next, struct eb_stats_table *table)
{
    bool is_hot = false;
    for (size_t i = 0; i < walk->list_count; i++) {
        const struct eb_table_sum *sum = take_sum(walk, i, next);
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

static bool merge_all_tables(struct walk *walk, struct eb_stats *stats)
{
    stats->tables = calloc(count_merged_tables(walk) + 1, sizeof *stats->tables);
    if (!stats->tables) {
        return false;
    }
    for (const struct eb_table_sum *next = find_next_table(walk); next;
         next = find_next_table(walk)) {
        if (!merge_next_table(walk, next, &stats->tables[stats->table_count++])) {
            return false;
        }
    }
    return true;
}

bool eb_table_sums_merge(
    const struct eb_table_sums *const *lists, size_t list_count, struct eb_stats *stats)
{
    struct walk walk = {.lists = lists, .list_count = list_count};
    walk.hot.room = eb_hot_rows_room(list_count);
    walk.hot.sums = calloc(walk.hot.room, sizeof *walk.hot.sums);
    walk.positions = calloc(list_count + 1, sizeof *walk.positions);
    bool is_good = walk.hot.sums && walk.positions && merge_all_tables(&walk, stats);
    free(walk.positions);
    free(walk.hot.sums);
    return is_good;
}
