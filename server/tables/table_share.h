/* Finds the tables of a plan that need not be loaded, because a version in memory has the same
 * tables and can share their memory. There are two ways to find out that a table is resident:
 *  - Nothing is read. The table comes from the same ranges of the same files as the resident one,
 * or of files with the same digests in their manifests, or from a packed file with the same digest.
 * The files may have been given new links. The names may differ.
 *  - The files are read up to the first difference. The table has the same name, shape, storage and
 * content as the resident one.
 * Tables with less than 2 MiB of rows, and tables in pages of the system's pool, are always loaded.
 * Tables in a mapping that is outdated (table_mapping.h) are not shared.
 * Thread: one at a time. Memory: some MiB of the heap while files are read. */
#pragma once

#include "server/base/load_meter.h"
#include "server/tables/planned_table.h"

/* Sets the origins of the plan's tables, and the resident tables that can be found without reading.
 * The plan's bytes then count the tables that are certain to be loaded. */
void eb_table_share_find_known(struct eb_table_plan *plan, const struct eb_table_options *options);
/* Called after eb_table_share_find_known. Reads the tables whose is_open is set, and sets their
 * resident tables and the plan's bytes. Returns false with *failure set if a file cannot be read or
 * converted, or if the load is cancelled. */
bool eb_table_share_find_equal(struct eb_table_plan *plan, const struct eb_table_options *options,
    struct eb_load_meter *meter, struct eb_failure *failure);
