/* Opens the tables of a version from resident files alone, as the record of what is served
 * describes them (served_record.h), without the files that they were loaded from.
 * Thread: any one. Memory: the set's. */
#pragma once

#include "server/tables/served_record.h"
#include "server/tables/table_set.h"

/* Opens all tables of a recorded version, which must be complete and of the same part, or a
 * router's, as options->part and options->is_router say, from options->resident.dir. Describes a
 * router's remote tables as the recorded manifest does. options->config is the configuration in the
 * record's model.yaml. Returns false with *set empty and *failure set if a file is missing,
 * damaged, or does not hold the table that the record names, or if the manifest does not fit the
 * rest. */
bool eb_resident_set_open(const struct eb_served_version *served,
    const struct eb_table_options *options, struct eb_table_set *set, struct eb_failure *failure);
