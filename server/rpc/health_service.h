/* The service grpc.health.v1.Health: reports whether the whole server, a service or a model can
 * answer, whichever the request names. A model of a router can while every part of its served
 * version is at some server. A caller that may not see a model gets the same answer as for a model
 * that does not exist. Thread: the call's loop. Memory: each watch is on the heap until its call is
 * over. */
#pragma once

#include "server/rpc/conn_state.h"

/* Most watches of one connection. At this limit a call gets RESOURCE_EXHAUSTED. */
#define EB_HEALTH_WATCHES_MAX 32

extern const struct eb_method_table eb_health_service_methods;

/* Sends the watches of a loop the statuses that have changed. Called when the loop's snapshot or
 * route table was replaced, when a router has become ready or unready, and when the server begins
 * to leave. */
void eb_health_service_update(struct eb_service_loop *loop);
