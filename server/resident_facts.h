/* Facts about the directory of resident tables, for the metrics.
 * Thread: main. Memory: none. */
#pragma once

#include "server/stats/stats.h"
#include "server/tables/resident_dir.h"

/* Sets *facts, with is_complete as given. A directory that is not open counts as not used. */
void eb_resident_facts_take(
    struct eb_resident_dir *dir, bool is_complete, struct eb_resident_facts *facts);
