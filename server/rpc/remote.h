/* The remote queries of a lookup: those on tables that part servers hold, divided or whole. Sends a
 * leg to each part that is concerned, and merges their answers (server/route/): each such query's
 * job is replaced by one on the rows that came back. The lookup then goes on as if those rows had
 * been here.
 *
 * Thread: the loop's. Memory: the lookup's remote arena, which takes from the loop's answer pool;
 * legs are messages in that pool too. */
#pragma once

#include "server/rpc/lookup_state.h"

/* Divides the remote queries of a checked lookup into legs, and takes memory for the rows that they
 * will bring. Returns false with lookup->error set if that is not possible. */
bool eb_remote_prepare(struct eb_lookup *lookup);
/* Sends the legs: at once as many as have answers that fit into two slabs (route_slab_bytes), and
 * the others as these are answered. One leg to each part need not wait, unless queries are cut into
 * slices (remote_slice.h). Returns false with lookup->error set if that is not possible; then
 * nothing is in flight. Otherwise pool->on_remote_over follows when all legs are over, never from
 * within this call. It does not follow if no leg is needed, as eb_remote_is_open says. */
bool eb_remote_send(struct eb_lookup *lookup);
/* Returns whether a leg of the lookup is in flight. */
bool eb_remote_is_open(const struct eb_lookup *lookup);

/* Replaces the jobs of the queries whose legs were answered. Returns false with lookup->error set
 * if a leg failed, a key is missing under the policy ERROR or as default_index, or memory is short.
 * With errors_per_query and without concat, a failed leg or a missing key fails only the results
 * that need it, unless the leg's status is RESOURCE_EXHAUSTED. With allow_incomplete, the rows of a
 * part that was not reached are left out instead. */
bool eb_remote_end(struct eb_lookup *lookup);

/* Completes jobs of a lookup that have been pooled: copies default rows over empty bags, and sets
 * bag_count of those that had been pooled before. Does nothing for jobs that are not remote. */
void eb_remote_complete(struct eb_lookup *lookup, const struct eb_work *work);

/* Gives back what belongs to lookup->remote, once its jobs have been computed or will not be. No
 * leg may be in flight. */
void eb_remote_free(struct eb_lookup *lookup);

/* Gives up the legs that are in flight. pool->on_remote_over follows from within this call. */
void eb_remote_abandon(struct eb_lookup *lookup);
