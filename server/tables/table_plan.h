/* Plans the load of a version directory: finds the tables in its files, checks them, lays them out
 * as the model's description requires, and computes their memory. No data is read yet.
 * Thread: one at a time. Memory: the lists are on the heap; entries of options->config are
 * borrowed. */
#pragma once

#include "server/tables/planned_table.h"

/* Makes the plan. Returns false with *plan empty if something is wrong: *failure names the file, or
 * the position in model.yaml, and the reason. Possible reasons are those of eb_version_scan_read,
 * pieces that are missing or do not match, keys without a table or too few keys, a name that is not
 * allowed or given twice, a row that is too wide, a storage that the table cannot have, a
 * description of a table that does not exist, and a directory without any table. With
 * options->part, plans the tables of that part; with options->is_router, those placed everywhere,
 * and all others as remote. Further reasons are then those of part_plan.h. */
bool eb_table_plan_read(const char *directory, const struct eb_table_options *options,
    struct eb_table_plan *plan, struct eb_failure *failure);
struct eb_part_plan;

/* Plans, from the manifest alone, what a version in parts is and, for a router, its remote tables.
 * The tables that are loaded are not in the plan. Returns false as eb_table_plan_read does. */
bool eb_table_plan_recall(const struct eb_part_plan *part, const struct eb_table_options *options,
    struct eb_table_plan *plan, struct eb_failure *failure);
/* Sets the plan's sums of bytes. Called again when some of its tables have turned out to be
 * resident, or have been given their memory. */
void eb_table_plan_measure(struct eb_table_plan *plan);
/* Accepts a zeroed plan. */
void eb_table_plan_deinit(struct eb_table_plan *plan);
