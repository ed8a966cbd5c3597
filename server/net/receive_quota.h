/* What one connection takes of its loop's receive memory, so that none can fill it: a connection
 * takes more only while it holds no more than it leaves to all others. One alone comes to half of
 * the memory, and each further one that takes what it can to half of what is left.
 * Thread: the loop's. Memory: on the heap from create until it is closed and all that was taken is
 * given back, which may be after its connection's end. */
#pragma once

#include "server/net/buffer_pool.h"

struct eb_receive_quota; /* opaque */

/* `pool` is borrowed for the share's life. NULL: no memory. */
struct eb_receive_quota *eb_receive_quota_create(struct eb_buffer_pool *pool);
/* Nothing is taken any more; what is held may still be given back. Accepts NULL. */
void eb_receive_quota_close(struct eb_receive_quota *share);
/* Takes from the pool and gives back to it; take gives NULL where the share or the pool is used up.
 * Valid for as long as the share is. */
const struct eb_memory *eb_receive_quota_memory(const struct eb_receive_quota *share);
