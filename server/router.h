/* Makes the process a router: watches the part servers, decides with them which versions are served
 * (route/model_flips.h), tells the model manager, and opens each loop's leg link.
 * Thread: main's. Memory: owns everything from open to destroy. */
#pragma once

#include "server/config.h"
#include "server/models/routed.h"

#include <uv.h>

struct eb_loop;
struct eb_route_facts;
struct eb_router; /* opaque */

/* Who is told what the router knows. */
struct eb_router_listener {
    /* Takes over new facts. Called from within eb_router_start and from main's loop. */
    void (*on_facts)(void *context, struct eb_route_facts *facts);
    void *context;
};

/* Reads the settings of a router, with the files of its credentials. Returns NULL if that fails;
 * one log line has said why and what to do. `config` is borrowed for the router's life. */
struct eb_router *eb_router_open(
    const struct eb_config *config, const struct eb_router_listener *listener);
/* Opens the loops' leg links and tells the loops what the router knows, before they start. `loops`
 * is borrowed. Returns false after a log line if that fails; eb_router_destroy then cleans up. */
bool eb_router_attach(struct eb_router *router, struct eb_loop **loops, uint32_t count);
/* Connects to the part servers from now on, on main's loop. Returns 0, or a negative libuv code
 * with nothing started. */
int eb_router_start(struct eb_router *router, uv_loop_t *uv);
/* Sends the choices to `manager` from now on. */
void eb_router_set_manager(struct eb_router *router, struct eb_manager *manager);
/* The callbacks on_models and is_settled of struct eb_manager_options: takes over what the manager
 * has; returns whether the start need not wait any longer for part servers or for a choice. */
void eb_router_on_models(void *router, const struct eb_routed_model *models, size_t count);
bool eb_router_is_settled(const void *router);
/* Stops deciding, and closes the handles of main's loop. The leg links stay open. May be called
 * twice, or without start. */
void eb_router_stop(struct eb_router *router);
/* Frees a router whose loops are destroyed, once main's loop has ended. Accepts NULL. */
void eb_router_destroy(struct eb_router *router);
