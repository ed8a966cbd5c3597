#include "server/rpc/reply.h"

#include "proto/grpc_text.h"
#include "proto/list.h"

#include <assert.h>

/* Size of the head. It makes the message begin on a new cache line. */
#define HEAD_BYTES 128

struct reply {
    struct eb_outgoing outgoing;
    struct eb_buffer_pool *pool;
    uint64_t held_bytes; /* bytes taken from the pool */
    uint64_t *charged;   /* sum that includes held_bytes (eb_reply_charge); NULL if there is none */
    struct eb_reply_terms terms;
};

static_assert(sizeof(struct reply) <= HEAD_BYTES, "a reply's head must fit in front of its bytes");

static void release_reply(struct eb_outgoing *outgoing)
{
    struct reply *reply = EB_CONTAINER_OF(outgoing, struct reply, outgoing);
    if (outgoing->is_timed && reply->terms.on_gone) {
        reply->terms.on_gone(&reply->terms, outgoing->has_left);
    }
    if (reply->charged) {
        *reply->charged -= reply->held_bytes;
    }
    eb_buffer_pool_give(reply->pool, reply, HEAD_BYTES + outgoing->size);
}

struct eb_outgoing *eb_reply_take(struct eb_buffer_pool *pool, size_t size)
{
    assert(size <= UINT32_MAX);
    size_t whole = EB_GRPC_PREFIX_BYTES + size;
    struct reply *reply = eb_buffer_pool_take(pool, HEAD_BYTES + whole);
    if (!reply) {
        return NULL;
    }
    *reply = (struct reply){
        .outgoing = {.bytes = (uint8_t *)reply + HEAD_BYTES,
            .size = whole,
            .holds = 1,
            .release = release_reply},
        .pool = pool,
        .held_bytes = eb_buffer_pool_rounded(HEAD_BYTES + whole),
    };
    eb_grpc_prefix_write(reply->outgoing.bytes, (uint32_t)size);
    return &reply->outgoing;
}

uint64_t eb_reply_held_bytes(const struct eb_outgoing *outgoing)
{
    return EB_CONTAINER_OF(outgoing, const struct reply, outgoing)->held_bytes;
}

void eb_reply_charge(struct eb_outgoing *outgoing, uint64_t *sum)
{
    struct reply *reply = EB_CONTAINER_OF(outgoing, struct reply, outgoing);
    assert(!reply->charged);
    reply->charged = sum;
    *sum += reply->held_bytes;
}

void eb_reply_set_terms(struct eb_outgoing *outgoing, const struct eb_reply_terms *terms)
{
    EB_CONTAINER_OF(outgoing, struct reply, outgoing)->terms = *terms;
    outgoing->is_timed = true;
}

const struct eb_reply_terms *eb_reply_find_terms(const struct eb_outgoing *outgoing)
{
    assert(outgoing->is_timed);
    return &EB_CONTAINER_OF(outgoing, const struct reply, outgoing)->terms;
}

void eb_reply_drop(struct eb_outgoing *outgoing)
{
    outgoing->is_timed = false;
    eb_outgoing_drop(outgoing);
}

uint8_t *eb_reply_body(struct eb_outgoing *reply)
{
    return reply->bytes + EB_GRPC_PREFIX_BYTES;
}
