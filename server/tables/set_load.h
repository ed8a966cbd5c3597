/* Loads the tables of one version directory: from npy, safetensors and packed files, whole or in
 * pieces, with keys, stored as the model's description says.
 * Thread: any one. Memory: the set's; some MiB of the heap while it loads. */
#pragma once

#include "server/base/load_meter.h"
#include "server/tables/table_set.h"

/* Loads all tables of a directory. Shares the tables that options->residents have already. Compares
 * the memory that is needed with what is available before it takes any. Returns false with *set
 * empty if that fails: *failure names the file and what is wrong. progress may be NULL. */
bool eb_set_load(const char *directory, const struct eb_table_options *options,
    const struct eb_load_progress *progress, struct eb_table_set *set, struct eb_failure *failure);
