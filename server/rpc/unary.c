#include "server/rpc/unary.h"

#include "server/rpc/reply.h"

struct eb_model_choice eb_unary_choose(
    const struct eb_unary_request *unary, const struct eb_wire_model_query *query)
{
    return (struct eb_model_choice){
        .snapshot = unary->snapshot,
        .caller = unary->caller,
        .right = EB_MODEL_RIGHT_SEE,
        .model = query->model,
        .version = query->version,
        .is_router = unary->facts->is_router,
    };
}

struct eb_codec_limits eb_unary_limits(const struct eb_unary_request *unary)
{
    return (struct eb_codec_limits){
        .queries_max = 1, .name_bytes_max = (uint32_t)unary->limits->name_bytes_max};
}

struct eb_outgoing *eb_unary_refuse_memory(struct eb_error *error)
{
    eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
        "no memory left for the answer (answer_memory_bytes); retry later");
    return NULL;
}

struct eb_outgoing *eb_unary_reply(
    const struct eb_unary_request *unary, size_t size, struct eb_error *error)
{
    struct eb_outgoing *answer = eb_reply_take(unary->pool, size);
    return answer ? answer : eb_unary_refuse_memory(error);
}
