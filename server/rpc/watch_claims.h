/* The claims of one call of WatchModels on their way to the model manager and back.
 * Thread: the call's loop. Memory: on the heap; after eb_watch_claims_end until the manager has
 * given them back, for which the loop is held. */
#pragma once

#include "proto/codec_watch.h"
#include "server/rpc/conn_state.h"

/* Most claims of all calls of one loop. At this limit a call gets RESOURCE_EXHAUSTED. */
#define EB_WATCH_LOOP_CLAIMS_MAX 4096

struct eb_watch_claims;

/* Sends the request's claims to the manager, apart from those of models that the caller may not
 * see. Sets *claims, to NULL if there is none. Returns false with *error set: PERMISSION_DENIED if
 * the caller is no router, RESOURCE_EXHAUSTED if the loop has too many claims or is out of
 * memory. */
bool eb_watch_claims_begin(struct eb_service_loop *loop, const struct eb_principal *caller,
    const struct eb_wire_watch_request *request, struct eb_watch_claims **claims,
    struct eb_error *error);
/* Takes the claims back. Accepts NULL. */
void eb_watch_claims_end(struct eb_watch_claims *claims);
