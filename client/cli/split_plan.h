/* Decides on which servers the tables of a version in parts lie: everywhere, whole in one part, or
 * with their rows divided among all parts.
 * Thread: pure. Memory: the plan's lists are on the heap. */
#pragma once

#include "server/formats/parts_manifest.h"

/* Defaults of the command's flags. */
#define EB_SPLIT_EVERYWHERE_BELOW (UINT64_C(64) << 20)
#define EB_SPLIT_EVERYWHERE_MAX (UINT64_C(1) << 30)
/* Most parts: each has a file open, with one block of it in memory. */
#define EB_SPLIT_PARTS_MAX 512

struct eb_split_table {
    const char *name; /* borrowed */
    uint64_t bytes;   /* of rows, keys and index in memory */
    uint64_t rows;
    uint64_t work; /* rows and bags that were looked up in some time; 0: none, or not known */
    bool is_given; /* `placement`, and `part` if it is WHOLE, are given */
    enum eb_placement placement;
    uint32_t part;   /* of WHOLE; UINT32_MAX: not given */
    double fraction; /* private */
};

struct eb_split_plan {
    uint32_t parts;
    uint64_t everywhere_below; /* tables of fewer bytes may lie everywhere */
    uint64_t everywhere_max;   /* most bytes of all that do, apart from those that are given */
    size_t count;
    struct eb_split_table *tables;   /* [count] */
    uint64_t *part_bytes;            /* [parts] result; allocated by eb_split_plan_place */
    uint64_t *part_work;             /* [parts] the same for the tables' work */
    uint64_t everywhere_bytes;       /* result */
    struct eb_split_table **by_name; /* private: the tables sorted by name */
};

/* Chooses a placement for each table that has none:
 *   1. Tables below everywhere_below lie everywhere, the smallest first, up to everywhere_max.
 *   2. Of the rest, the largest first: a table lies whole in the part that has the least, if that
 *      part then has at most a tenth more than its share; otherwise its rows are divided. A table
 *      without rows lies whole. The tenth keeps small tables from being divided: each part that a
 *      request needs costs it more than uneven parts do.
 * The size of a table, and what a part has, is the larger of two fractions: of the bytes, and of
 * the work, of all tables that do not lie everywhere. So a table that is small but looked up more
 * than all others is divided too.
 * Returns false with *failure set if out of memory. */
bool eb_split_plan_place(struct eb_split_plan *plan, struct eb_failure *failure);
/* Accepts a zeroed plan. Leaves the tables. */
void eb_split_plan_deinit(struct eb_split_plan *plan);

/* Sets the tables' work from the metrics of a running server in Prometheus' text format: the sums
 * of embag_table_rows_touched_total and embag_table_bags_total of `model`. Returns false with
 * *failure set, including the path, if the file cannot be read or has no such metric. A path of "-"
 * is standard input. */
bool eb_split_plan_read_metrics(
    struct eb_split_plan *plan, const char *path, const char *model, struct eb_failure *failure);

/* Reads placements from a YAML file. Its only key, `tables`, is a list of {name, placement, part},
 * where `part` is optional. Returns false with *failure set, including the path, if that
 * fails or if the plan has no table of a name. */
bool eb_split_plan_read(struct eb_split_plan *plan, const char *path, struct eb_failure *failure);
