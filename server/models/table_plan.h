/* What a version directory will load: its files' headers read and checked, no data yet.
 * Thread: one at a time. Memory: the lists are on the heap. */
#pragma once

#include "server/models/table_file.h"
#include "server/models/table_set.h"

struct eb_planned_table {
    char *name;
    struct eb_tensor tensor;
    uint64_t row_bytes;
    uint64_t row_stride_bytes; /* in memory; in the file rows have no gaps */
    size_t file;               /* in eb_table_plan.files */
};

struct eb_planned_file {
    char *path;
    struct eb_table_file look; /* closed again; what it was when its header was read */
};

struct eb_table_plan {
    size_t file_count;
    struct eb_planned_file *files;
    size_t table_count;
    struct eb_planned_table *tables; /* file by file, in the order of their data */
    uint64_t data_bytes;             /* of all tables together, in their files */
    uint64_t memory_bytes;           /* their footprints together; at most UINT64_MAX */
};

/* false: *fault names the file and what is wrong: anything that is not read yet (keys, split and
 * packed files, model.yaml), a broken header, a name that is not allowed or given twice, a row too
 * wide, no table at all. *plan is empty then. */
bool eb_table_plan_read(const char *directory, const struct eb_table_options *options,
    struct eb_table_plan *plan, struct eb_file_fault *fault);
/* Accepts a zeroed plan. */
void eb_table_plan_deinit(struct eb_table_plan *plan);
