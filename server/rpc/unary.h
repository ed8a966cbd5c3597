/* Requests that are answered at once, from what does not change while they are: what the functions
 * that answer them are given.
 * Thread: the loop's. Memory: answers from the pool given; working memory from the arena. */
#pragma once

#include "proto/arena.h"
#include "proto/codec.h"
#include "server/base/limits.h"
#include "server/net/buffer_pool.h"
#include "server/rpc/model_choice.h"

/* What does not change while a server runs. */
struct eb_server_facts {
    const char *version;
    const char *build;
    const char *isa;
    const struct eb_limits *limits;
    uint32_t loops;
    uint32_t threads;         /* of the executor */
    uint32_t access_log;      /* one of eb_access_log_mode */
    const char *admin_listen; /* where commands arrive; NULL: nowhere of their own */
    bool is_admin_on_data_port;
};

/* Where one request is answered. */
struct eb_unary_request {
    const struct eb_snapshot *snapshot;
    const struct eb_principal *caller; /* is told of the models that it may see */
    const struct eb_server_facts *facts;
    struct eb_arena *arena;
    struct eb_buffer_pool *pool;
    bool is_leaving;      /* the server is draining, or will after drain_delay_ms */
    const uint8_t *bytes; /* the request's */
    size_t size;
};

/* The answer, one hold; NULL: *error. */
typedef struct eb_outgoing *(*eb_unary_fn)(
    const struct eb_unary_request *unary, struct eb_error *error);

/* What a request asks for that names a model which its caller must see. */
struct eb_model_choice eb_unary_choose(
    const struct eb_unary_request *unary, const struct eb_wire_model_query *query);
/* What a request may hold that names at most one model. */
struct eb_codec_limits eb_unary_limits(const struct eb_unary_request *unary);
/* An answer of `size` bytes, whose eb_reply_body is to be written. NULL: *error. */
struct eb_outgoing *eb_unary_reply(
    const struct eb_unary_request *unary, size_t size, struct eb_error *error);
/* "No memory left for the answer": always NULL. */
struct eb_outgoing *eb_unary_refuse_memory(struct eb_error *error);
