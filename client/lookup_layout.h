/* The layout of a query: which fields say where its bags begin and end, and the number of bags.
 * Thread: pure. Memory: none. */
#pragma once

#include "client/embag_types.h"
#include "proto/message.h"

struct embag_query;

/* Returns the layout that the caller means, as a BagLayout. The layout must be sent, because the
 * server cannot tell an array that is present but empty from an absent one. */
int32_t eb_lookup_layout_find(const struct embag_query *query);
/* Returns the number of bags of a query whose layout is set. If the server will refuse the query,
 * the number means nothing. */
uint64_t eb_lookup_layout_count_bags(const struct eb_wire_query *query);
