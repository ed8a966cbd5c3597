#include "server/rpc/lookup_form.h"

#include "server/rpc/lookup.h"

static struct eb_wire_request *read_request(struct eb_lookup *lookup,
    const struct eb_codec_limits *limits, struct eb_decode_failure *failure)
{
    return eb_lookup_request_decode(
        &lookup->arena, lookup->message.bytes, lookup->message.size, limits, failure);
}

static struct eb_outgoing *lay_out(struct eb_lookup *lookup, size_t first, size_t count)
{
    return eb_plan_answer(&lookup->plan, first, count, &lookup->error);
}

const struct eb_lookup_form eb_lookup_form_embag = {
    .read = read_request,
    .lay_out = lay_out,
    .set_times = eb_lookup_response_set_times,
};
