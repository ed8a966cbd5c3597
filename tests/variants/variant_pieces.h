/* Computes a trial's job as a thread of a team does: split into jobs, tiles and columns, with rows
 * prefetched.
 * Thread: one only. Memory: none; uses the fixture's. */
#pragma once

#include "tests/variants/variant_fixture.h"

/* Pools all bags into the fixture's cleared memory, and checks that prefetching stays within its
 * distance ahead of pooling. */
void pool_in_pieces(const struct fixture *fixture, const struct eb_bag_ops *ops);
