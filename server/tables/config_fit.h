/* Whether a model.yaml fits the tables of a version: what of it cannot be told from the file alone.
 * The keys that stand for empty bags are looked up once tables are loaded (table_set.h).
 * Thread: any one. Memory: none. */
#pragma once

#include "server/tables/table_plan.h"

/* The plan's tables are sorted by name, each a different one. false: *error names the table, the
 * feature or the group, the value, and what is wrong with it. */
bool eb_config_fit_check(const struct eb_model_config *config, const struct eb_table_plan *plan,
    struct eb_failure *failure);
