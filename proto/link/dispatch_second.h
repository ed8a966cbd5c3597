/* Second attempts of a dispatcher's calls (dispatcher.h), beside the ones that are sent: hedges,
 * and rescues from servers that are silent. Private to the dispatcher. Thread: the loop's. Memory:
 * none. */
#pragma once

#include "proto/link/dispatch_state.h"

/* Hedges a call that is late, within the bounds of hedge.h, unless no other server answers. */
void eb_dispatch_hedge(struct eb_dispatch_call *call);
/* Sends a call whose server is silent to another one as well: once for nothing, as after a lost
 * connection, and then as the budget allows. Returns false if another server only lacks room; then
 * the call is rescued later. */
bool eb_dispatch_rescue(struct eb_dispatch_call *call);
/* Rescues all lookups that a server has, because nothing comes from it. */
void eb_dispatch_rescue_from(struct eb_peer *peer);
/* Rescues lookups at silent servers for which no other server had room before. */
void eb_dispatch_rescue_again(struct eb_dispatcher *dispatcher);
