/* How far ahead of the arithmetic rows are called into the caches: as the setting `prefetch` says,
 * or as is measured on the largest table that was loaded. What was chosen, and why, is logged.
 * Thread: main, before those that compute or serve: they would disturb what is measured. Memory:
 * what is measured with is given back at once. */
#pragma once

#include "kernels/bag_ops.h"
#include "kernels/bag_prefetch.h"
#include "server/models/snapshot.h"

/* What the setting is called where it is not given. */
#define EB_PREFETCH_AUTO "auto"

/* NULL: the text is EB_PREFETCH_AUTO or a schedule; else what is wrong with it. */
const char *eb_prefetch_check(const char *setting);

/* `setting` has been checked; NULL: EB_PREFETCH_AUTO. Takes some tens of milliseconds where it
 * measures; where it cannot, *out are the defaults. */
void eb_prefetch_choose(const char *setting, const struct eb_bag_ops *ops,
    const struct eb_snapshot *snapshot, struct eb_bag_schedules *out);
