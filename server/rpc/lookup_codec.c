#include "server/rpc/lookup_codec.h"

#include "server/rpc/lookup.h"

static struct eb_wire_request *read_lookup_message(struct eb_lookup *lookup,
    const struct eb_codec_limits *limits, struct eb_decode_failure *failure)
{
    return eb_lookup_request_decode(
        &lookup->arena, lookup->message.bytes, lookup->message.size, limits, failure);
}

const struct eb_lookup_codec eb_lookup_codec_embag = {
    .read = read_lookup_message,
    .set_times = eb_lookup_response_set_times,
};
