/* Which tables of a plan need not be loaded, since a version in memory has the same ones: their
 * memory is shared. A table is the same
 *  - whatever its name, if it comes from the same place in the same files, which may have got
 *    further links, or from a packed file with the same digest: nothing of it is read for that;
 *  - if one of its name, shape and storage has the same content: its files are read for that, up to
 *    the first difference.
 * Tables with less than 2 MiB of rows, and those in pages of the system's pool, are loaded anew.
 * Thread: one at a time. Memory: some MiB of the heap while files are read. */
#pragma once

#include "server/base/load_meter.h"
#include "server/tables/planned_table.h"

/* Sets origins of the plan's tables, and residents as far as they are known without reading. The
 * plan's bytes are those of tables that are to be loaded whatever the others prove to be. */
void eb_table_share_find_known(struct eb_table_plan *plan, const struct eb_table_options *options);
/* Then sets residents of tables that are open, and the plan's bytes. false: *failure, a file cannot
 * be read or converted, or the load is given up. */
bool eb_table_share_find_equal(struct eb_table_plan *plan, const struct eb_table_options *options,
    struct eb_load_meter *meter, struct eb_failure *failure);
