/* Decides on which servers the tables of a version in parts lie: everywhere, whole in one part, or
 * with their rows divided among all parts.
 * Thread: pure. Memory: the plan's lists are on the heap. */
#pragma once

#include "server/formats/parts_manifest.h"

/* Defaults of the command's flags. */
#define EB_SPLIT_EVERYWHERE_BELOW (UINT64_C(64) << 20)
#define EB_SPLIT_EVERYWHERE_BYTES_MAX (UINT64_C(1) << 30)
/* Most parts: each has a file open, with one block of it in memory. */
#define EB_SPLIT_PARTS_MAX 512

/* The memory and the lookups that a table or a part needs. */
struct eb_split_demand {
    uint64_t bytes;      /* of rows, keys and index in memory */
    double rows_touched; /* rows looked up in some time; 0: none, or not known */
    double bags;         /* bags that had some of these rows, in the same time */
};

struct eb_split_table {
    const char *name; /* borrowed */
    uint64_t bytes;   /* of rows, keys and index in memory */
    uint64_t rows;
    double rows_touched; /* rows looked up in some time; 0: none, or not known */
    double bags;         /* bags looked up in the same time */
    bool is_counted;     /* whether rows_touched and bags are known */
    bool is_given;       /* `placement`, and `part` if it is WHOLE, are given */
    enum eb_placement placement;
    uint32_t part;   /* of WHOLE; UINT32_MAX: not given */
    double sort_key; /* private */
};

struct eb_split_plan {
    uint32_t parts;
    uint64_t everywhere_below;     /* tables of fewer bytes may lie everywhere */
    uint64_t everywhere_bytes_max; /* most bytes of all that do, apart from those that are given */
    size_t count;
    struct eb_split_table *tables;        /* [count] */
    struct eb_split_demand *part_demands; /* [parts] result; allocated by eb_split_plan_place */
    uint64_t everywhere_bytes;            /* result */
    struct eb_split_table **by_name;      /* private: the tables sorted by name */
};

/* Chooses a placement for each table that has none:
 *   1. Tables below everywhere_below lie everywhere as long as they fit into
 *      everywhere_bytes_max: those with the most bags per byte first, because each bag there saves
 *      a request to a part, and among equals (if nothing is counted, all are) the smallest first.
 *   2. Of the rest, the largest first: a table lies whole in the part that then has the least, if
 *      that is at most a tenth more than a part's share; otherwise its rows are divided. A table
 *      without rows, and one of at most a tenth of a share, lies whole. The tenth keeps small
 *      tables from being divided: each part that a request needs costs it more than uneven parts
 *      do.
 * The size of a table, and what a part has, is the largest of three fractions: of the bytes, of the
 * rows touched and of the bags of all tables that do not lie everywhere. So a table that is small
 * but looked up more than the others is divided too. A bag of a divided table counts in each part
 * that has rows of it. If its bags have as many rows as there are parts, on average, a table is not
 * divided for the number of its bags, because every part would have them all.
 * Returns false with *failure set if out of memory. */
bool eb_split_plan_place(struct eb_split_plan *plan, struct eb_failure *failure);
/* Accepts a zeroed plan. Leaves the tables. */
void eb_split_plan_deinit(struct eb_split_plan *plan);

/* Prepares eb_split_plan_find. Returns false with *failure set if out of memory. */
bool eb_split_plan_index(struct eb_split_plan *plan, struct eb_failure *failure);
/* Returns the table of that name, or NULL. Needs eb_split_plan_index. */
struct eb_split_table *eb_split_plan_find(const struct eb_split_plan *plan, const char *name);

/* Reads placements from a YAML file. Its only key, `tables`, is a list of {name, placement, part},
 * where `part` is optional. Returns false with *failure set, including the path, if that
 * fails or if the plan has no table of a name. */
bool eb_split_plan_read(struct eb_split_plan *plan, const char *path, struct eb_failure *failure);
