#include "server/rpc/infer_service.h"

#include "proto/codec_infer.h"
#include "server/rpc/infer_catalogue.h"
#include "server/rpc/infer_query.h"
#include "server/rpc/lookup_state.h"

static struct eb_wire_request *read_infer_message(struct eb_lookup *lookup,
    const struct eb_codec_limits *limits, struct eb_decode_failure *failure)
{
    struct eb_infer_request *infer = eb_infer_request_decode(
        &lookup->arena, lookup->message.bytes, lookup->message.size, limits, failure);
    return infer ? &infer->request : NULL;
}

static bool resolve_infer_model(struct eb_lookup *lookup)
{
    return eb_infer_query_make(lookup->request->infer, lookup->version, &lookup->arena,
        lookup->pool->context->limits->queries_max, &lookup->error);
}

static const struct eb_lookup_codec codec = {
    .read = read_infer_message,
    .resolve = resolve_infer_model,
};

static const struct eb_method methods[] = {
    {"ServerLive", EB_METHOD_UNARY, .is_probe = true, .answer = eb_infer_catalogue_server_live},
    {"ServerReady", EB_METHOD_UNARY, .is_probe = true, .answer = eb_infer_catalogue_server_ready},
    {"ModelReady", EB_METHOD_UNARY, .answer = eb_infer_catalogue_model_ready},
    {"ServerMetadata", EB_METHOD_UNARY, .answer = eb_infer_catalogue_server_metadata},
    {"ModelMetadata", EB_METHOD_UNARY, .answer = eb_infer_catalogue_model_metadata},
    {"ModelConfig", EB_METHOD_UNARY, .answer = eb_infer_catalogue_model_config},
    {"ModelInfer", EB_METHOD_UNARY, .codec = &codec},
};

const struct eb_method_table eb_infer_service_methods = {
    .service = "inference.GRPCInferenceService",
    .methods = methods,
    .count = sizeof methods / sizeof methods[0],
};
