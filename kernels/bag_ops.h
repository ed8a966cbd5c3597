/* The arithmetic, one table of functions per instruction set, chosen once at start.
 * Thread: the tables are const; any thread may pool. Memory: none. */
#pragma once

#include "kernels/bag.h"

struct eb_bag_variant;

/* The table called `name` ("ref", "avx2", "avx512", "neon"), or the fastest this machine can run
 * where name is NULL. NULL: no such table in this build, or this machine cannot run it. */
const struct eb_bag_ops *eb_bag_ops_find(const char *name);

/* The n-th table of this build, slowest first, runnable or not; NULL past the last. */
const struct eb_bag_ops *eb_bag_ops_at(size_t n);
const char *eb_bag_ops_name(const struct eb_bag_ops *ops);
bool eb_bag_ops_runs_here(const struct eb_bag_ops *ops);

/* Roughly how many times longer than vector functions the table's take for the same bytes: 1 for
 * all but the reference's. For deciding where work runs. */
unsigned eb_bag_ops_slowness(const struct eb_bag_ops *ops);

/* The functions themselves (bag_variant.h), for the files of kernels that call them. */
const struct eb_bag_variant *eb_bag_ops_variant(const struct eb_bag_ops *ops);
