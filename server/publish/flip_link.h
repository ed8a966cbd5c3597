/* Passes models from a router's manager to its flip (route/flip.h), and the flip's choices back
 * (models/routed.h). Thread: the manager's. Memory: a list on the heap while the flip is told. */
#pragma once

#include "server/models/registry.h"

#include <uv.h>

struct eb_flip_link {
    struct eb_registry *registry;
    /* As in struct eb_manager_options. NULL: the server is no router, and nothing is told. */
    void (*on_models)(void *context, const struct eb_routed_model *models, size_t count);
    bool (*is_settled)(const void *context); /* or NULL */
    void *context;
    bool is_pending; /* the flip must be told again, at a later time */
    /* Private. */
    bool is_new;     /* the flip has chosen anew since it was last told */
    bool is_telling; /* on_models is being called */
    unsigned tells;  /* calls of on_models in a row */
};

/* Tells the flip of all models. Returns whether it has chosen anew meanwhile: the caller then lets
 * the registry decide, and calls again. If the flip cannot be told for lack of memory, which is
 * logged, or chooses anew each time, returns false with is_pending set, so that the caller first
 * turns to other events. */
bool eb_flip_link_tell(struct eb_flip_link *link);
/* The same at the start: if the flip has not chosen anew when it was told, runs the loop until it
 * has, or is settled. */
bool eb_flip_link_await(struct eb_flip_link *link, uv_loop_t *loop);
/* Takes over a choice, as eb_registry_route does. Returns whether the registry must decide again
 * because of it. If on_models is being called, returns false: eb_flip_link_tell then returns true,
 * or sets is_pending. */
bool eb_flip_link_take(struct eb_flip_link *link, const struct eb_routed_choice *choice);
