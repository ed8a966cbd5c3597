#include "server/models/table_set.h"

#include "server/models/memory_available.h"
#include "server/models/table_plan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes read at a time: large enough to cost nothing, small enough to report progress from. */
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

static bool load_rows(struct loading *loading, const struct eb_table_file *file,
    const struct eb_planned_table *planned, uint8_t *rows)
{
    const struct eb_tensor *tensor = &planned->tensor;
    for (uint64_t at = 0; at < tensor->data_bytes;) {
        uint64_t left = tensor->data_bytes - at;
        uint64_t chunk = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        if (!eb_table_file_read(file, tensor->data_offset + at, rows + at, chunk, loading->fault)) {
            return false;
        }
        at += chunk;
        loading->done_bytes += chunk;
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
    uint8_t *rows = eb_table_memory_take(&set->memory, tensor->data_bytes, loading->fault);
    if (!rows || !load_rows(loading, file, planned, rows)) {
        return false;
    }
    uint32_t elements = (uint32_t)eb_tensor_row_elements(tensor);
    struct eb_named_table *table = &set->tables[set->count++];
    *table = (struct eb_named_table){
        .name = planned->name,
        .rank = tensor->rank,
        .resident_bytes = tensor->data_bytes,
        .table =
            {
                .rows = rows,
                .row_count = tensor->dims[0],
                .row_stride_bytes = elements * eb_storage_bytes(tensor->storage),
                .row_elements = elements,
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

static bool check_memory(
    const char *directory, const struct eb_table_plan *plan, struct eb_file_fault *fault)
{
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
        *find_slot(set, set->tables[i].name) = (uint32_t)(i + 1);
    }
    return true;
}

static bool load_plan(const char *directory, struct loading *loading)
{
    struct eb_table_set *set = loading->set;
    if (!check_memory(directory, loading->plan, loading->fault) || !load_files(loading)) {
        return false;
    }
    set->bytes = set->memory.mapped_bytes;
    qsort(set->tables, set->count, sizeof *set->tables, compare_tables);
    return (index_names(set, loading->fault) &&
               eb_table_memory_seal(&set->memory, loading->fault)) ||
           eb_file_fault_locate(loading->fault, directory);
}

bool eb_table_set_load(const char *directory, const struct eb_table_limits *limits,
    const struct eb_load_progress *progress, struct eb_table_set *set, struct eb_file_fault *fault)
{
    *set = (struct eb_table_set){0};
    struct eb_table_plan plan;
    if (!eb_table_plan_read(directory, limits, &plan, fault)) {
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
