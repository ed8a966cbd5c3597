/* The slices of a lookup's remote queries (route_slice.h): memory for the sums that the parts of a
 * slice send, and its results once all have come. A lookup with a large answer thus holds the sums
 * of a few slices, and not those of all bags: one slab (route_slab_bytes), beside the one slab of
 * the answers that are on their way.
 *
 * Thread: the loop's. Memory: the remote arena; the rows of slices and the results of queries that
 * are cut into slices come from the loop's answer pool by themselves. */
#pragma once

#include "server/rpc/remote_state.h"

/* A slice has at most this fraction of a slab of sums, unless it is a single bag. The loop's thread
 * pools them at once, which takes some 0.2 ms with the default of 8 MiB. */
#define EB_SLICES_PER_SLAB 8
/* Most slices of that size whose sub-queries one leg may carry, or as many smaller ones as have no
 * more bytes of sums. */
#define EB_SLICES_PER_LEG (EB_SLICES_PER_SLAB / 2)

/* Cuts the queries of a remote whose `queries` have their plans and jobs, and splits each slice
 * into sub-queries. Returns false if memory is short. */
bool eb_remote_slices_begin(struct eb_remote *remote);

/* Returns whether the slices of the next leg to a part may have memory for their rows: if the rows
 * of all slices then fit into a slab, or if other slices may be waiting for these. */
bool eb_remote_slices_may_open(const struct eb_remote *remote, const struct eb_route_leg *leg);
/* Takes that memory. Returns false if it is short. */
bool eb_remote_slices_open(struct eb_remote *remote, const struct eb_route_leg *leg);

/* Notes that a leg is over. Computes the results of the slices that have waited for it alone, and
 * gives back the memory of their rows. Returns false if memory is short. */
bool eb_remote_slices_note_over(struct eb_remote *remote, const struct remote_leg *sent);

/* Gives back the memory that does not come from the arena. */
void eb_remote_slices_free(struct eb_remote *remote);
