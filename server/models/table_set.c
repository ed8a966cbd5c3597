#include "server/models/table_set.h"

#include "server/models/memory_available.h"
#include "server/models/table_plan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes read at a time, or one row: large enough to cost nothing, small enough to report progress
 * from. */
#define CHUNK_BYTES (UINT64_C(8) << 20)
#define REPORT_INTERVAL_S 1

/* A load in progress. */
struct loading {
    struct eb_table_plan *plan;
    struct eb_table_set *set;
    const struct eb_load_progress *progress; /* may be NULL */
    time_t reported_s;
    uint64_t done_bytes;
    struct eb_file_fault *fault;
};

static time_t read_clock_s(void)
{
    struct timespec now;
    int result = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(result == 0);
    (void)result;
    return now.tv_sec;
}

static void report(struct loading *loading, const char *path)
{
    time_t now_s = read_clock_s();
    if (!loading->progress || now_s - loading->reported_s < REPORT_INTERVAL_S) {
        return;
    }
    loading->reported_s = now_s;
    loading->progress->report(
        loading->progress->context, path, loading->done_bytes, loading->plan->data_bytes);
}

/* Moves `row_count` rows, which end the space that rows with gaps between them will take, to their
 * places. No row is overwritten before it is moved: its place never lies behind it. */
static void spread_rows(uint8_t *space, uint64_t row_count, const struct eb_planned_table *planned)
{
    uint64_t gap = planned->row_stride_bytes - planned->row_bytes;
    if (gap == 0) {
        return;
    }
    uint8_t *from = space + row_count * gap;
    for (uint64_t i = 0; i < row_count; i++) {
        memmove(space, from, planned->row_bytes);
        memset(space + planned->row_bytes, 0, gap);
        from += planned->row_bytes;
        space += planned->row_stride_bytes;
    }
}

static bool load_rows(struct loading *loading, const struct eb_table_file *file,
    const struct eb_planned_table *planned, uint8_t *rows)
{
    uint64_t gap = planned->row_stride_bytes - planned->row_bytes;
    uint64_t at_once = CHUNK_BYTES / planned->row_bytes + (planned->row_bytes > CHUNK_BYTES);
    uint64_t offset = planned->tensor.data_offset;
    for (uint64_t left = planned->tensor.dims[0]; left > 0;) {
        uint64_t count = left < at_once ? left : at_once;
        uint64_t bytes = count * planned->row_bytes;
        if (!eb_table_file_read(file, offset, rows + count * gap, bytes, loading->fault)) {
            return false;
        }
        spread_rows(rows, count, planned);
        rows += count * planned->row_stride_bytes;
        offset += bytes;
        left -= count;
        loading->done_bytes += bytes;
        report(loading, loading->plan->files[planned->file].path);
    }
    return true;
}

/* Loads a table behind those the set has, which takes over the planned name. */
static bool load_table(
    struct loading *loading, const struct eb_table_file *file, struct eb_planned_table *planned)
{
    struct eb_table_set *set = loading->set;
    const struct eb_tensor *tensor = &planned->tensor;
    uint64_t bytes = tensor->dims[0] * planned->row_stride_bytes;
    uint8_t *rows = eb_table_memory_take(&set->memory, bytes, loading->fault);
    if (!rows || !load_rows(loading, file, planned, rows)) {
        return false;
    }
    struct eb_named_table *table = &set->tables[set->count++];
    *table = (struct eb_named_table){
        .name = planned->name,
        .rank = tensor->rank,
        .resident_bytes = bytes,
        .table =
            {
                .rows = rows,
                .row_count = tensor->dims[0],
                .row_stride_bytes = planned->row_stride_bytes,
                .row_elements = (uint32_t)eb_tensor_row_elements(tensor),
                .storage = tensor->storage,
                .type = eb_storage_type(tensor->storage),
                .unknown_row = -1,
            },
    };
    memcpy(table->dims, tensor->dims, sizeof table->dims);
    planned->name = NULL;
    return true;
}

/* Loads the tables of one file, which are the next in the plan. */
static bool load_file(struct loading *loading, size_t index)
{
    struct eb_table_plan *plan = loading->plan;
    const struct eb_planned_file *planned = &plan->files[index];
    struct eb_table_file file;
    if (!eb_table_file_open(planned->path, &file, loading->fault)) {
        return false;
    }
    bool is_good =
        eb_table_file_is_same(&file, &planned->look) ||
        eb_file_fault_set(loading->fault,
            "the file has changed since the load began; write versions elsewhere and rename them "
            "into place");
    for (size_t i = loading->set->count;
         is_good && i < plan->table_count && plan->tables[i].file == index; i++) {
        is_good = load_table(loading, &file, &plan->tables[i]);
    }
    eb_table_file_close(&file);
    return is_good;
}

static bool load_files(struct loading *loading)
{
    struct eb_table_plan *plan = loading->plan;
    loading->set->tables = calloc(plan->table_count, sizeof *loading->set->tables);
    if (!loading->set->tables) {
        return eb_file_fault_set(loading->fault, "out of memory");
    }
    for (size_t i = 0; i < plan->file_count; i++) {
        if (!load_file(loading, i)) {
            return eb_file_fault_locate(loading->fault, plan->files[i].path);
        }
    }
    assert(loading->set->count == plan->table_count);
    return true;
}

/* Compares what is needed with what is there; pages of a pool are reserved at once. */
static bool check_memory(const char *directory, const struct eb_table_plan *plan,
    struct eb_table_memory *memory, struct eb_file_fault *fault)
{
    if (eb_table_memory_reserve(memory, plan->memory_bytes)) {
        return true;
    }
    uint64_t available = eb_memory_available_bytes();
    return plan->memory_bytes <= available ||
           eb_file_fault_set(fault,
               "%s: its tables need %" PRIu64 " bytes of memory, %" PRIu64 " are available; free "
               "some or raise the container's limit",
               directory, plan->memory_bytes, available);
}

static int compare_tables(const void *left, const void *right)
{
    const struct eb_named_table *a = left;
    const struct eb_named_table *b = right;
    return strcmp(a->name, b->name);
}

/* FNV-1a. */
static size_t hash_name(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *at = name; *at; at++) {
        hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    }
    return (size_t)(hash ^ hash >> 32);
}

/* Where `name` is in the index, or the empty slot where it belongs. A slot holds the table's
 * number plus one, 0 where it is empty; at least half of them are. */
static uint32_t *find_slot(const struct eb_table_set *set, const char *name)
{
    size_t mask = set->name_index_size - 1;
    size_t at = hash_name(name) & mask;
    while (
        set->name_index[at] != 0 && strcmp(set->tables[set->name_index[at] - 1].name, name) != 0) {
        at = (at + 1) & mask;
    }
    return &set->name_index[at];
}

static bool index_names(struct eb_table_set *set, struct eb_file_fault *fault)
{
    if (set->count >= UINT32_MAX) {
        return eb_file_fault_set(fault, "more tables than can be counted");
    }
    size_t size = 2;
    while (size < set->count * 2) {
        size *= 2;
    }
    set->name_index = calloc(size, sizeof *set->name_index);
    if (!set->name_index) {
        return eb_file_fault_set(fault, "out of memory");
    }
    set->name_index_size = size;
    for (size_t i = 0; i < set->count; i++) {
        assert(eb_table_is_sound(&set->tables[i].table));
        *find_slot(set, set->tables[i].name) = (uint32_t)(i + 1);
    }
    return true;
}

/* Counts the pages that the tables have come to lie in. */
static void count_pages(struct eb_table_set *set)
{
    struct eb_page_report report;
    set->pages_error = eb_page_report_open(&report, "");
    for (size_t i = 0; i < set->count; i++) {
        struct eb_named_table *table = &set->tables[i];
        table->pages = eb_page_report_count(&report, table->table.rows, table->resident_bytes);
        set->pages.bytes += table->pages.bytes;
        set->pages.bytes_2m += table->pages.bytes_2m;
        set->pages.bytes_1g += table->pages.bytes_1g;
    }
    eb_page_report_close(&report);
}

static bool load_plan(const char *directory, struct loading *loading)
{
    struct eb_table_set *set = loading->set;
    if (!check_memory(directory, loading->plan, &set->memory, loading->fault) ||
        !load_files(loading)) {
        return false;
    }
    set->bytes = set->memory.mapped_bytes;
    qsort(set->tables, set->count, sizeof *set->tables, compare_tables);
    if (!index_names(set, loading->fault) || !eb_table_memory_seal(&set->memory, loading->fault)) {
        return eb_file_fault_locate(loading->fault, directory);
    }
    count_pages(set);
    return true;
}

bool eb_table_set_load(const char *directory, const struct eb_table_options *options,
    const struct eb_load_progress *progress, struct eb_table_set *set, struct eb_file_fault *fault)
{
    *set = (struct eb_table_set){.memory = {.options = options->memory}};
    struct eb_table_plan plan;
    if (!eb_table_plan_read(directory, options, &plan, fault)) {
        return false;
    }
    struct loading loading = {
        .plan = &plan,
        .set = set,
        .progress = progress,
        .reported_s = read_clock_s(),
        .fault = fault,
    };
    bool is_good = load_plan(directory, &loading);
    eb_table_plan_deinit(&plan);
    if (!is_good) {
        eb_table_set_deinit(set);
    }
    return is_good;
}

void eb_table_set_deinit(struct eb_table_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        free(set->tables[i].name);
    }
    free(set->tables);
    free(set->name_index);
    eb_table_memory_deinit(&set->memory);
    *set = (struct eb_table_set){0};
}

const struct eb_named_table *eb_table_set_find(const struct eb_table_set *set, const char *name)
{
    if (set->count == 0) {
        return NULL;
    }
    uint32_t slot = *find_slot(set, name);
    return slot == 0 ? NULL : &set->tables[slot - 1];
}
