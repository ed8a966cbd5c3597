/* Which of the machine's instruction sets the kernels use.
 * Thread: any. Memory: none. */
#pragma once

#include "kernels/bag_ops.h"

/* By its name, or the best one where that is NULL. NULL: one log line has said why it cannot be had
 * and which ones can. */
const struct eb_bag_ops *eb_isa_choose(const char *name);
