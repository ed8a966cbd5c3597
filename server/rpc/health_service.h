/* The service grpc.health.v1.Health: of the whole server, of its services and of its models, by
 * name, whether they answer. To a caller that may not see a model there is none of that name.
 * Thread: the loop's of the call. Memory: each watch is on the heap until its call is over. */
#pragma once

#include "server/rpc/conn_state.h"

/* Watches of one connection: beyond, a call gets RESOURCE_EXHAUSTED. */
#define EB_HEALTH_WATCHES_MAX 32

extern const struct eb_method_table eb_health_service_methods;

/* The loop answers from another snapshot now: tells who watches what has changed by that. */
void eb_health_service_update(struct eb_service_loop *loop);
