/* The arithmetic: a table of functions for each instruction set. One table is chosen at start.
 * Thread: the tables are const; any thread may pool. Memory: none. */
#pragma once

#include "kernels/bag.h"
#include "kernels/processor.h"

struct eb_bag_variant;

/* Returns the table called `name` ("ref", "avx2", "avx512vl", "avx512", "neon"), or the fastest
 * that this machine can run if `name` is NULL. Returns NULL if this build has no such table, or if
 * this machine cannot run it. */
const struct eb_bag_ops *eb_bag_ops_find(const char *name);

/* Returns the table that is the fastest on processors of a family, among those that this machine
 * can run. */
const struct eb_bag_ops *eb_bag_ops_fastest_on(enum eb_processor_family family);

/* Returns the n-th table of this build, slowest first, even if it cannot run here. Returns NULL
 * past the last. */
const struct eb_bag_ops *eb_bag_ops_at(size_t n);
const char *eb_bag_ops_name(const struct eb_bag_ops *ops);
bool eb_bag_ops_runs_here(const struct eb_bag_ops *ops);

/* Returns roughly how many times longer than vector functions the table's functions take for the
 * same bytes: 1 for all tables except the reference's. Callers use this to decide where work
 * runs. */
unsigned eb_bag_ops_slowness(const struct eb_bag_ops *ops);

/* Returns the functions themselves (bag_variant.h), for the files of kernels that call them. */
const struct eb_bag_variant *eb_bag_ops_variant(const struct eb_bag_ops *ops);
