/* Chooses how the kernels run on this machine. The setting `isa` gives the instruction set. The
 * setting `prefetch` says how far ahead of the arithmetic rows are prefetched; if it is auto, that
 * is the default for the processor, or what measurements on the largest loaded tables have shown to
 * be clearly better. Logs each choice with its reason.
 * Threads: main, before the threads that compute or serve start, because they would disturb the
 * measurement. Memory: none is kept. */
#pragma once

#include "kernels/bag_ops.h"
#include "kernels/bag_prefetch.h"
#include "server/base/failure.h"
#include "server/models/snapshot.h"

/* The value of `prefetch` if it is not set. */
#define EB_KERNEL_CHOICE_AUTO "auto"

/* Returns the kernels of the instruction set called `name`, or of the best one if it is NULL.
 * Returns NULL if they are not available; one log line has said why, and which ones are. */
const struct eb_bag_ops *eb_kernel_choice_ops(const char *name);

/* Returns whether the text is EB_KERNEL_CHOICE_AUTO or a schedule. If not, *failure says what is
 * wrong with it. */
bool eb_kernel_choice_check_prefetch(const char *text, struct eb_failure *failure);
/* Sets *out as `prefetch` says. The text must have been checked; NULL means EB_KERNEL_CHOICE_AUTO.
 * Measuring takes at most 300 ms. If it is not possible, *out has the defaults. Returns whether the
 * schedules were measured. */
bool eb_kernel_choice_schedules(const char *prefetch, const struct eb_bag_ops *ops,
    const struct eb_snapshot *snapshot, struct eb_bag_schedules *out);

/* ---- schedules that an earlier start has measured ---- */

/* Room for the text of measured schedules. */
#define EB_KERNEL_CHOICE_TEXT_BYTES 512

/* Writes the measured schedules as a text: a line with the processor and the instruction set, then
 * a line for each class of rows. Returns its length. */
size_t eb_kernel_choice_write(const struct eb_bag_ops *ops,
    const struct eb_bag_schedules *schedules, char out[EB_KERNEL_CHOICE_TEXT_BYTES]);
/* Sets *out to the defaults with the schedules of such a text, and logs them. Returns false if the
 * text is not valid, or is for another processor or instruction set. */
bool eb_kernel_choice_read(
    const struct eb_bag_ops *ops, const char *text, struct eb_bag_schedules *out);
