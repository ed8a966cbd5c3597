/* What ListModels, GetModel, GetServer and ListVersions say.
 * Thread: pure over what does not change. Memory: answers from the pool given; working memory from
 * the arena. */
#pragma once

#include "proto/arena.h"
#include "proto/codec.h"
#include "server/config.h"
#include "server/models/snapshot.h"
#include "server/net/buffer_pool.h"

/* What does not change while a server runs. */
struct eb_server_facts {
    const char *version;
    const char *build;
    const char *isa;
    const struct eb_config *config;
};

/* Where one call's answer is made. */
struct eb_catalogue_call {
    const struct eb_snapshot *snapshot;
    const struct eb_server_facts *facts;
    struct eb_arena *arena;
    struct eb_buffer_pool *pool;
    const uint8_t *bytes; /* the request's */
    size_t size;
};

/* The answer, one hold; NULL: *error. */
typedef struct eb_outgoing *(*eb_catalogue_fn)(
    const struct eb_catalogue_call *call, struct eb_error *error);

struct eb_outgoing *eb_catalogue_list_models(
    const struct eb_catalogue_call *call, struct eb_error *error);
struct eb_outgoing *eb_catalogue_get_model(
    const struct eb_catalogue_call *call, struct eb_error *error);
struct eb_outgoing *eb_catalogue_list_versions(
    const struct eb_catalogue_call *call, struct eb_error *error);
struct eb_outgoing *eb_catalogue_get_server(
    const struct eb_catalogue_call *call, struct eb_error *error);
