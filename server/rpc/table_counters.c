#include "server/rpc/table_counters.h"

#include "kernels/key_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_MIN 64
/* Keeps rare paths out of line, so that the code that every lookup runs is short. */
#define RARE __attribute__((noinline))

/* Two empty texts, one after the other, like those of every count. */
static const char no_names[2];

/* Number of halvings after which every count is 0. */
#define HALVINGS_MAX 32

/* The counts of the tables of one version. */
struct eb_table_block {
    const struct eb_model_version *version;
    struct eb_table_count **counts; /* [tables.count], in the order of the version's tables */
};

/* ---- tables by name ---- */

static struct eb_table_count *make_count(const char *model, const char *table)
{
    size_t model_bytes = strlen(model) + 1;
    size_t table_bytes = strlen(table) + 1;
    struct eb_table_count *count = calloc(1, sizeof *count + model_bytes + table_bytes);
    if (count) {
        char *texts = (char *)(count + 1);
        count->sum.model = memcpy(texts, model, model_bytes);
        count->sum.table = memcpy(texts + model_bytes, table, table_bytes);
    }
    return count;
}

static void drop_hot(struct eb_table_counters *counters, struct eb_table_count *count)
{
    if (count->hot) {
        free(count->hot);
        count->hot = NULL;
        counters->hot_count--;
    }
}

/* Returns the slot of the table, or of the first table that sorts after it. */
static size_t find_table_slot(
    const struct eb_table_counters *counters, const char *model, const char *table)
{
    size_t first = 0;
    size_t end = counters->count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (eb_table_sums_compare(&counters->counts[middle]->sum, model, table) < 0) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

/* Returns the table's count if that slot is its own, else `beyond`. */
static struct eb_table_count *find_at(
    struct eb_table_counters *counters, size_t slot, const char *model, const char *table)
{
    struct eb_table_count *count =
        slot < counters->count ? counters->counts[slot] : &counters->beyond;
    return eb_table_sums_compare(&count->sum, model, table) == 0 ? count : &counters->beyond;
}

static bool grow_table(struct eb_table_counters *counters)
{
    if (counters->count < counters->room) {
        return true;
    }
    size_t room = counters->room > 0 ? 2 * counters->room : ROOM_MIN;
    struct eb_table_count **counts =
        realloc(counters->counts, room * sizeof(struct eb_table_count *));
    if (counts) {
        counters->counts = counts;
        counters->room = room;
    }
    return counts;
}

/* Returns the table's count, which is made if there is none. Returns `beyond` if there are too many
 * tables or no memory. */
static struct eb_table_count *keep_count(
    struct eb_table_counters *counters, const char *model, const char *table)
{
    size_t slot = find_table_slot(counters, model, table);
    struct eb_table_count *count = find_at(counters, slot, model, table);
    if (count != &counters->beyond || counters->count == EB_TABLE_COUNTERS_TABLES_MAX ||
        !grow_table(counters)) {
        return count;
    }
    count = make_count(model, table);
    if (!count) {
        return &counters->beyond;
    }
    memmove(&counters->counts[slot + 1], &counters->counts[slot],
        (counters->count - slot) * sizeof(struct eb_table_count *));
    counters->counts[slot] = count;
    counters->count++;
    return count;
}

/* Drops tables that no version has had for long. */
static void prune(struct eb_table_counters *counters, uint64_t now_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < counters->count; i++) {
        struct eb_table_count *count = counters->counts[i];
        if (count->gone_ns != 0 && now_ns - count->gone_ns >= EB_TABLE_COUNTERS_KEEP_NS) {
            drop_hot(counters, count);
            free(count);
        } else {
            counters->counts[kept++] = count;
        }
    }
    counters->count = kept;
}

/* ---- versions ---- */

/* Returns NULL if the version has no block. */
static const struct eb_table_block *find_block(
    const struct eb_table_blocks *blocks, const struct eb_model_version *version)
{
    size_t first = 0;
    size_t end = blocks->count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if ((uintptr_t)blocks->blocks[middle].version < (uintptr_t)version) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    bool is_there = first < blocks->count && blocks->blocks[first].version == version;
    return is_there ? &blocks->blocks[first] : NULL;
}

/* Adds a version's block, which is the one that it had before or a new one. */
static void keep_block(struct eb_table_counters *counters, const struct eb_table_blocks *former,
    const struct eb_model_version *version)
{
    const struct eb_table_set *set = &version->tables;
    const struct eb_table_block *before = find_block(former, version);
    struct eb_table_count **counts =
        before ? before->counts : calloc(set->count + 1, sizeof(struct eb_table_count *));
    if (!counts) {
        return;
    }
    for (size_t i = 0; i < set->count; i++) {
        if (!counts[i] || counts[i] == &counters->beyond) {
            counts[i] = keep_count(counters, version->model, set->tables[i].name);
        }
        counts[i]->gone_ns = 0;
    }
    counters->blocks.blocks[counters->blocks.count++] = (struct eb_table_block){version, counts};
}

static void keep_model(struct eb_table_counters *counters, const struct eb_table_blocks *former,
    const struct eb_snapshot_model *model)
{
    for (size_t i = 0; i < model->version_count; i++) {
        if (model->versions[i].loaded) {
            keep_block(counters, former, model->versions[i].loaded);
        }
    }
}

static size_t count_versions(const struct eb_snapshot *snapshot)
{
    size_t count = 0;
    for (size_t i = 0; snapshot && i < snapshot->count; i++) {
        count += snapshot->models[i].version_count;
    }
    return count;
}

static int compare_blocks(const void *a, const void *b)
{
    const struct eb_table_block *one = a;
    const struct eb_table_block *other = b;
    uintptr_t address = (uintptr_t)one->version;
    return (address > (uintptr_t)other->version) - (address < (uintptr_t)other->version);
}

static void mark_gone(struct eb_table_counters *counters, uint64_t now_ns)
{
    for (size_t i = 0; i < counters->count; i++) {
        if (counters->counts[i]->gone_ns == 0) {
            counters->counts[i]->gone_ns = now_ns;
        }
    }
}

/* Frees the former blocks that are not in use any more. */
static void drop_blocks(const struct eb_table_counters *counters, struct eb_table_blocks *former)
{
    for (size_t i = 0; i < former->count; i++) {
        if (!find_block(&counters->blocks, former->blocks[i].version)) {
            free(former->blocks[i].counts);
        }
    }
    free(former->blocks);
}

void eb_table_counters_swap(
    struct eb_table_counters *counters, const struct eb_snapshot *snapshot, uint64_t now_ns)
{
    /* The former snapshot still holds its versions, so no new version can have the address of one
     * of them. */
    struct eb_table_blocks former = counters->blocks;
    counters->blocks = (struct eb_table_blocks){
        .blocks = malloc((count_versions(snapshot) + 1) * sizeof *former.blocks)};
    prune(counters, now_ns);
    if (counters->blocks.blocks) {
        mark_gone(counters, now_ns);
        for (size_t i = 0; snapshot && i < snapshot->count; i++) {
            keep_model(counters, &former, &snapshot->models[i]);
        }
        qsort(
            counters->blocks.blocks, counters->blocks.count, sizeof *former.blocks, compare_blocks);
    }
    drop_blocks(counters, &former);
}

/* ---- hot rows ---- */

/* Finds the id that a query's index names: a key if the table has keys, else a row. Returns false
 * if there is no such key or row. Whether a remote table has a key is not known here. */
static bool find_id(const struct eb_plan_query *query, uint64_t position, int64_t *id)
{
    const struct eb_table *table = &query->table->table;
    const uint8_t *entry = (const uint8_t *)query->indices.data + position * query->indices.width;
    if (query->indices.width == sizeof(int32_t)) {
        int32_t narrow;
        memcpy(&narrow, entry, sizeof narrow);
        *id = narrow;
    } else {
        memcpy(id, entry, sizeof *id);
    }
    if (table->keys == &eb_key_index_remote) {
        return true;
    }
    if (table->keys) {
        return eb_key_index_find(table->keys, *id) >= 0;
    }
    if (query->id_map && table->row_count > 0) {
        eb_id_map_rows(query->id_map, table->row_count, id, 1);
    }
    return (uint64_t)*id < table->row_count;
}

static void add_hot(struct eb_table_counters *counters, struct eb_table_count *count, int64_t id)
{
    if (!count->hot && count != &counters->beyond &&
        counters->hot_count < EB_TABLE_COUNTERS_HOT_MAX) {
        count->hot = calloc(1, sizeof *count->hot);
        counters->hot_count += count->hot ? 1 : 0;
    }
    if (count->hot) {
        eb_hot_rows_add(count->hot, id);
    }
}

/* Halves the samples as often as is due. Drops the sketches that have no rows left. */
static void halve(struct eb_table_counters *counters, uint64_t now_ns)
{
    uint64_t due = (now_ns - counters->halved_ns) / EB_TABLE_COUNTERS_HALF_NS;
    counters->halved_ns += due * EB_TABLE_COUNTERS_HALF_NS;
    for (uint64_t n = 0; n < due && n < HALVINGS_MAX; n++) {
        for (size_t i = 0; i < counters->count; i++) {
            struct eb_table_count *count = counters->counts[i];
            if (count->hot) {
                eb_hot_rows_halve(count->hot);
            }
            if (count->hot && count->hot->count == 0) {
                drop_hot(counters, count);
            }
        }
    }
}

/* ---- lookups ---- */

/* Returns the count of a table of the version. `block` may be NULL. */
static struct eb_table_count *find_count(struct eb_table_counters *counters,
    const struct eb_model_version *version, const struct eb_table_block *block,
    const struct eb_named_table *table)
{
    if (block) {
        return block->counts[table - version->tables.tables];
    }
    size_t slot = find_table_slot(counters, version->model, table->name);
    return find_at(counters, slot, version->model, table->name);
}

/* Samples the plan's indices for the hot rows. */
static RARE void sample(
    struct eb_table_counters *counters, const struct eb_plan *plan, uint64_t now_ns)
{
    const struct eb_table_block *block = find_block(&counters->blocks, plan->version);
    halve(counters, now_ns);
    uint64_t position = counters->sampler.skip;
    for (uint32_t i = 0; i < plan->counts.query_count; i++) {
        const struct eb_plan_query *query = &plan->queries[i];
        while (position < query->index_count) {
            struct eb_table_count *count = find_count(counters, plan->version, block, query->table);
            int64_t id;
            if (find_id(query, position, &id)) {
                add_hot(counters, count, id);
            }
            position += eb_index_sampler_step(&counters->sampler);
        }
        position -= query->index_count;
    }
    counters->sampler.skip = position;
}

static inline void add_query(
    struct eb_table_count *count, const struct eb_plan_query *query, const struct eb_bag_job *job)
{
    count->sum.bags += job->bag_count;
    count->sum.indices += query->index_count;
    count->sum.missing += job->missing_count;
}

/* Counts by name. Only for a version without a block: there was no memory for the block, or the
 * version was unloaded after the lookup came. */
static RARE void add_by_name(struct eb_table_counters *counters, const struct eb_plan *plan)
{
    for (uint32_t i = 0; i < plan->counts.query_count; i++) {
        const struct eb_plan_query *query = &plan->queries[i];
        add_query(find_count(counters, plan->version, NULL, query->table), query, &plan->jobs[i]);
    }
}

void eb_table_counters_add(
    struct eb_table_counters *counters, const struct eb_plan *plan, uint64_t now_ns)
{
    const struct eb_model_version *version = plan->version;
    const struct eb_table_block *block = find_block(&counters->blocks, version);
    const struct eb_plan_query *queries = plan->queries;
    const struct eb_bag_job *jobs = plan->jobs;
    size_t query_count = plan->counts.query_count;
    if (block) {
        struct eb_table_count *const *counts = block->counts;
        const struct eb_named_table *tables = version->tables.tables;
        for (size_t i = 0; i < query_count; i++) {
            add_query(counts[queries[i].table - tables], &queries[i], &jobs[i]);
        }
    } else {
        add_by_name(counters, plan);
    }
    if (eb_index_sampler_pass(&counters->sampler, plan->counts.index_count, now_ns)) {
        sample(counters, plan, now_ns);
    }
}

/* ---- copies ---- */

/* The next free positions in the copied sums. */
struct copy {
    struct eb_table_sum *sum;
    struct eb_hot_rows *hot;
    char *text;
};

static size_t count_table_text_bytes(const struct eb_table_count *count)
{
    return strlen(count->sum.model) + strlen(count->sum.table) + 2;
}

static void copy_count(
    const struct eb_table_counters *counters, const struct eb_table_count *count, struct copy *copy)
{
    struct eb_table_sum *sum = copy->sum++;
    size_t text_bytes = count_table_text_bytes(count);
    *sum = count->sum;
    sum->model = memcpy(copy->text, count->sum.model, text_bytes);
    sum->table = copy->text + strlen(copy->text) + 1;
    copy->text += text_bytes;
    if (count->hot) {
        *copy->hot = *count->hot;
        copy->hot->indices_per_sample = counters->sampler.gap;
        sum->hot = copy->hot++;
    }
}

struct eb_table_sums *eb_table_counters_copy(struct eb_table_counters *counters, uint64_t now_ns)
{
    prune(counters, now_ns);
    halve(counters, now_ns);
    bool has_beyond = counters->beyond.sum.bags > 0 || counters->beyond.sum.indices > 0;
    size_t sum_count = counters->count + has_beyond;
    size_t bytes = sizeof(struct eb_table_sums) + sum_count * sizeof(struct eb_table_sum) +
                   counters->hot_count * sizeof(struct eb_hot_rows);
    bytes += has_beyond ? count_table_text_bytes(&counters->beyond) : 0;
    for (size_t i = 0; i < counters->count; i++) {
        bytes += count_table_text_bytes(counters->counts[i]);
    }
    struct eb_table_sums *part = malloc(bytes);
    if (!part) {
        return NULL;
    }
    *part = (struct eb_table_sums){sum_count, (struct eb_table_sum *)(part + 1)};
    struct copy copy = {.sum = part->sums, .hot = (struct eb_hot_rows *)(part->sums + sum_count)};
    copy.text = (char *)(copy.hot + counters->hot_count);
    /* Empty names sort before all others. */
    if (has_beyond) {
        copy_count(counters, &counters->beyond, &copy);
    }
    for (size_t i = 0; i < counters->count; i++) {
        copy_count(counters, counters->counts[i], &copy);
    }
    assert(copy.text == (char *)part + bytes);
    return part;
}

void eb_table_counters_init(struct eb_table_counters *counters, uint64_t now_ns)
{
    *counters = (struct eb_table_counters){
        .beyond = {.sum = {.model = no_names, .table = no_names + 1}}, .halved_ns = now_ns};
    eb_index_sampler_init(&counters->sampler);
}

void eb_table_counters_deinit(struct eb_table_counters *counters)
{
    for (size_t i = 0; i < counters->count; i++) {
        drop_hot(counters, counters->counts[i]);
        free(counters->counts[i]);
    }
    for (size_t i = 0; i < counters->blocks.count; i++) {
        free(counters->blocks.blocks[i].counts);
    }
    free(counters->blocks.blocks);
    free(counters->counts);
    *counters = (struct eb_table_counters){0};
}
