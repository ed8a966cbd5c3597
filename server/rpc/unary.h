/* Requests that are answered at once, from data that does not change meanwhile. Defines the
 * arguments of the functions that answer them.
 * Thread: the loop's. Memory: answers come from the given pool, working memory from the arena. */
#pragma once

#include "proto/arena.h"
#include "proto/codec.h"
#include "server/base/limits.h"
#include "server/net/buffer_pool.h"
#include "server/rpc/model_choice.h"

/* Facts that do not change while a server runs. */
struct eb_server_facts {
    const char *version;
    const char *build;
    const char *isa;
    uint32_t loops;
    uint32_t threads;  /* threads of the executor */
    uint32_t cpus;     /* CPUs that the process may use */
    uint64_t instance; /* of this process, not 0 */
    struct eb_part_choice part;
    bool is_router;
    const char *admin_listen; /* address for commands; NULL if they have none of their own */
    bool is_admin_on_data_port;
};

struct eb_route_table;

/* One request, and the data that it is answered from. */
struct eb_unary_request {
    const struct eb_snapshot *snapshot;
    const struct eb_route_table *routes; /* where remote tables are; NULL if this is no router */
    const struct eb_principal *caller;   /* gets answers only about models that it may see */
    const struct eb_server_facts *facts;
    const struct eb_limits *limits;
    struct eb_arena *arena;
    struct eb_buffer_pool *pool;
    bool is_leaving;      /* whether the server drains, or will after drain_delay_ms */
    bool is_unready;      /* whether this is a router that should get no requests now */
    const uint8_t *bytes; /* the request's message */
    size_t size;
};

/* Returns the answer, with one hold. Returns NULL with *error set. */
typedef struct eb_outgoing *(*eb_unary_fn)(
    const struct eb_unary_request *unary, struct eb_error *error);

/* Returns the choice of a request that names a model. The choice requires that the caller may see
 * the model. */
struct eb_model_choice eb_unary_choose(
    const struct eb_unary_request *unary, const struct eb_wire_model_query *query);
/* Returns the decoding limits of a request that names at most one model. */
struct eb_codec_limits eb_unary_limits(const struct eb_unary_request *unary);
/* Returns an answer of `size` bytes; the caller writes its eb_reply_body. Returns NULL with *error
 * set. */
struct eb_outgoing *eb_unary_reply(
    const struct eb_unary_request *unary, size_t size, struct eb_error *error);
/* Sets *error to the message that no memory is left for the answer. Always returns NULL. */
struct eb_outgoing *eb_unary_refuse_memory(struct eb_error *error);
