/* A trial's job computed the way a thread of a team does: cut into jobs, tiles and columns, rows
 * called ahead.
 * Thread: one only. Memory: none; works on the trial's. */
#pragma once

#include "tests/variants/variant_fixture.h"

/* Pools all bags into the trial's cleared memory, and checks that the calls ahead keep pace. */
void pool_in_pieces(const struct fixture *fixture, const struct eb_bag_ops *ops);
