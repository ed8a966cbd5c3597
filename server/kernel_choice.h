/* How the kernels run on this machine: with which instruction set, as the setting `isa` says, and
 * how far ahead of the arithmetic they prefetch rows, as the setting `prefetch` says or as is
 * measured on the largest tables that were loaded. What was chosen, and why, is logged.
 * Threads: main, before those that compute or serve: they would disturb what is measured. Memory:
 * none is kept. */
#pragma once

#include "kernels/bag_ops.h"
#include "kernels/bag_prefetch.h"
#include "server/base/failure.h"
#include "server/models/snapshot.h"

/* The value of `prefetch` if it is not set. */
#define EB_KERNEL_CHOICE_AUTO "auto"

/* Returns the kernels of the instruction set of that name; NULL: of the best one. Returns NULL if
 * it cannot be had; one log line has said why and which ones can. */
const struct eb_bag_ops *eb_kernel_choice_ops(const char *name);

/* Returns whether the text is EB_KERNEL_CHOICE_AUTO or a schedule; if not, *failure says what is
 * wrong with it. */
bool eb_kernel_choice_check_prefetch(const char *text, struct eb_failure *failure);
/* Fills *out as `prefetch` says, which has been checked; NULL: EB_KERNEL_CHOICE_AUTO. Measuring
 * takes some tens of milliseconds; if it is not possible, *out are the defaults. */
void eb_kernel_choice_schedules(const char *prefetch, const struct eb_bag_ops *ops,
    const struct eb_snapshot *snapshot, struct eb_bag_schedules *out);
