#include "server/rpc/infer_service.h"

#include "inference/open_inference.pb-c.h"
#include "proto/codec_infer.h"
#include "server/rpc/catalogue.h"
#include "server/rpc/infer_query.h"
#include "server/rpc/lookup_state.h"
#include "server/rpc/reply.h"

/* ---- the server and its models ---- */

#define NAME "embag"

/* Most fields in a request that names a model. Leaves room for the fields that later clients may
 * add. */
#define REQUEST_FIELDS_MAX 4096

/* Names of Triton's extensions. This one is the name of the method ModelConfig. */
static const char *const extensions[] = {"model_configuration"};

static struct eb_outgoing *answer_flag(
    const struct eb_unary_request *unary, bool flag, struct eb_error *error)
{
    struct eb_outgoing *answer = eb_unary_reply(unary, eb_infer_flag_bytes(flag), error);
    if (answer) {
        eb_infer_flag_encode(flag, eb_reply_body(answer));
    }
    return answer;
}

struct eb_outgoing *eb_infer_service_server_live(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    return eb_empty_decode(unary->bytes, unary->size, error) ? answer_flag(unary, true, error)
                                                             : NULL;
}

struct eb_outgoing *eb_infer_service_server_ready(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    bool is_ready = !unary->is_leaving && !unary->is_unready && !unary->snapshot->not_ready;
    return eb_empty_decode(unary->bytes, unary->size, error) ? answer_flag(unary, is_ready, error)
                                                             : NULL;
}

struct eb_outgoing *eb_infer_service_server_metadata(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    struct eb_infer_server server = {
        .name = NAME,
        .version = unary->facts->version,
        .extension_count = sizeof extensions / sizeof extensions[0],
        .extensions = extensions,
    };
    if (!eb_empty_decode(unary->bytes, unary->size, error)) {
        return NULL;
    }
    struct eb_outgoing *answer = eb_unary_reply(unary, eb_infer_server_bytes(&server), error);
    if (answer) {
        eb_infer_server_encode(&server, eb_reply_body(answer));
    }
    return answer;
}

/* Decodes which model and version are requested. Returns NULL with *error set. */
static struct eb_wire_model_query *read_infer_query(const struct eb_unary_request *unary,
    const ProtobufCMessageDescriptor *descriptor, struct eb_error *error)
{
    struct eb_codec_input input = {
        .descriptor = descriptor,
        .bytes = unary->bytes,
        .size = unary->size,
        .limits =
            {
                .fields_max = REQUEST_FIELDS_MAX,
                .name_bytes_max = eb_unary_limits(unary).name_bytes_max,
            },
    };
    return eb_infer_model_query_decode(unary->arena, &input, error);
}

struct eb_outgoing *eb_infer_service_model_ready(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    const struct eb_wire_model_query *query =
        read_infer_query(unary, &inference__model_ready_request__descriptor, error);
    if (!query) {
        return NULL;
    }
    struct eb_model_choice choice = eb_unary_choose(unary, query);
    const struct eb_snapshot_model *model = eb_model_choice_find(&choice, error);
    if (!model && error->status != EB_STATUS_NOT_FOUND) {
        return NULL;
    }
    const struct eb_model_version *version =
        model ? eb_snapshot_find_version(model, query->version) : NULL;
    bool is_ready = !unary->is_leaving && eb_catalogue_is_complete(unary->routes, version);
    return answer_flag(unary, is_ready, error);
}

/* ---- a model's tensors ---- */

static struct eb_infer_feature describe_infer_feature(const struct eb_feature *feature)
{
    const struct eb_named_table *table = feature->table;
    enum eb_type type = table->table.type;
    return (struct eb_infer_feature){
        .name = feature->name,
        .type = (int32_t)type,
        .weights_type = (int32_t)(eb_type_is_float(type) ? EB_F32 : type),
        .dim_count = table->rank - 1,
        .dims = table->dims + 1,
    };
}

/* Lists the versions that answer lookups. Returns false if the arena is full. */
static bool describe_versions(
    struct eb_arena *arena, const struct eb_snapshot_model *model, struct eb_infer_model *out)
{
    uint64_t *versions = eb_arena_take(arena, (model->version_count + 1) * sizeof *versions);
    if (!versions) {
        return false;
    }
    out->versions = versions;
    for (size_t i = 0; i < model->version_count; i++) {
        if (model->versions[i].loaded) {
            versions[out->version_count++] = model->versions[i].number;
        }
    }
    return true;
}

static bool describe_infer_model(struct eb_arena *arena, const struct eb_snapshot_model *model,
    const struct eb_model_version *version, struct eb_infer_model *out)
{
    const struct eb_feature_set *set = &version->features;
    struct eb_infer_feature *features = eb_arena_take(arena, (set->count + 1) * sizeof *features);
    if (!features) {
        return false;
    }
    *out = (struct eb_infer_model){
        .name = model->name, .platform = NAME, .feature_count = set->count, .features = features};
    for (size_t i = 0; i < set->count; i++) {
        features[i] = describe_infer_feature(&set->features[i]);
    }
    return describe_versions(arena, model, out);
}

/* Describes the requested model. Returns false with *error set. */
static bool find_infer_model(const struct eb_unary_request *unary,
    const ProtobufCMessageDescriptor *descriptor, struct eb_infer_model *out,
    struct eb_error *error)
{
    const struct eb_wire_model_query *query = read_infer_query(unary, descriptor, error);
    if (!query) {
        return false;
    }
    struct eb_model_choice choice = eb_unary_choose(unary, query);
    const struct eb_snapshot_model *model = eb_model_choice_find(&choice, error);
    const struct eb_model_version *version =
        model ? eb_model_choice_find_version(&choice, model, error) : NULL;
    if (!version) {
        return false;
    }
    if (!describe_infer_model(unary->arena, model, version, out)) {
        (void)eb_unary_refuse_memory(error);
        return false;
    }
    return true;
}

struct eb_outgoing *eb_infer_service_model_metadata(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    struct eb_infer_model model;
    if (!find_infer_model(unary, &inference__model_metadata_request__descriptor, &model, error)) {
        return NULL;
    }
    struct eb_outgoing *answer = eb_unary_reply(unary, eb_infer_metadata_bytes(&model), error);
    if (answer) {
        eb_infer_metadata_encode(&model, eb_reply_body(answer));
    }
    return answer;
}

struct eb_outgoing *eb_infer_service_model_config(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    struct eb_infer_model model;
    if (!find_infer_model(unary, &inference__model_config_request__descriptor, &model, error)) {
        return NULL;
    }
    struct eb_outgoing *answer = eb_unary_reply(unary, eb_infer_config_bytes(&model), error);
    if (answer) {
        eb_infer_config_encode(&model, eb_reply_body(answer));
    }
    return answer;
}

/* ---- lookups ---- */

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
        lookup->pool->limits.queries_max, &lookup->error);
}

static const struct eb_lookup_codec codec = {
    .read = read_infer_message,
    .resolve = resolve_infer_model,
};

static const struct eb_method methods[] = {
    {"ServerLive", EB_METHOD_UNARY, .is_probe = true, .answer = eb_infer_service_server_live},
    {"ServerReady", EB_METHOD_UNARY, .is_probe = true, .answer = eb_infer_service_server_ready},
    {"ModelReady", EB_METHOD_UNARY, .answer = eb_infer_service_model_ready},
    {"ServerMetadata", EB_METHOD_UNARY, .answer = eb_infer_service_server_metadata},
    {"ModelMetadata", EB_METHOD_UNARY, .answer = eb_infer_service_model_metadata},
    {"ModelConfig", EB_METHOD_UNARY, .answer = eb_infer_service_model_config},
    {"ModelInfer", EB_METHOD_UNARY, .codec = &codec},
};

const struct eb_method_table eb_infer_service_methods = {
    .service = "inference.GRPCInferenceService",
    .methods = methods,
    .count = sizeof methods / sizeof methods[0],
};
