/* Plans the load of a version directory: which tables its files make, checked and laid out as the
 * model's description asks, and how much memory they take. No data is read yet.
 * Thread: one at a time. Memory: the lists are on the heap; entries of the description that the
 * options name are borrowed. */
#pragma once

#include "server/tables/planned_table.h"

/* false: *failure names the file, or the place in model.yaml, and what is wrong: what the scan
 * finds wrong, parts that are missing or do not fit together, keys without a table or too few, a
 * name that is not allowed or given twice, a row too wide, a storage that the table cannot have, a
 * description of a table that is not there, no table at all. *plan is empty then. */
bool eb_table_plan_read(const char *directory, const struct eb_table_options *options,
    struct eb_table_plan *plan, struct eb_failure *failure);
/* Sets the plan's bytes. Called again after some of its tables have turned out to be resident. */
void eb_table_plan_measure(struct eb_table_plan *plan);
/* Accepts a zeroed plan. */
void eb_table_plan_deinit(struct eb_table_plan *plan);
