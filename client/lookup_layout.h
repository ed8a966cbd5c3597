/* The layout of a query: which fields say where its bags begin and end, and how many bags that is.
 * Thread: pure. Memory: none. */
#pragma once

#include "client/embag_types.h"
#include "proto/message.h"

struct embag_query;

/* Returns the layout that the caller means, as BagLayout has it. It goes onto the wire, where
 * arrays that are there but empty leave no trace. */
int32_t eb_lookup_layout_find(const struct embag_query *query);
/* Returns the number of bags of a query whose layout is set. If the server will refuse the query,
 * that is any number. */
uint64_t eb_lookup_layout_count_bags(const struct eb_wire_query *query);
