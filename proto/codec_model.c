/* Model, ListModelsResponse and Server. */
#include "proto/codec.h"
#include "proto/codec_common.h"
#include "proto/field.h"

#include "embag/v1/embedding_bag.fields.h"
#include "embag/v1/embedding_bag.pb-c.h"

static void write_model_table(struct eb_field_writer *writer, const struct eb_wire_table *table)
{
    eb_field_put_text(writer, EB_FIELD_TABLE_NAME, table->name);
    eb_field_put_number(writer, EB_FIELD_TABLE_ROWS, table->rows);
    eb_field_put_packed(writer, EB_FIELD_TABLE_SHAPE, table->shape, table->shape_count);
    eb_field_put_enum(writer, EB_FIELD_TABLE_TYPE, table->type);
    eb_field_put_text(writer, EB_FIELD_TABLE_STORAGE, table->storage);
    eb_field_put_number(writer, EB_FIELD_TABLE_KEYED, table->keyed);
    eb_field_put_number(writer, EB_FIELD_TABLE_RESIDENT_BYTES, table->resident_bytes);
    eb_field_put_enum(writer, EB_FIELD_TABLE_MISSING, table->missing);
    if (table->has_default) {
        eb_field_put_present(writer, EB_FIELD_TABLE_DEFAULT_INDEX, (uint64_t)table->default_index);
    }
    if (table->has_unknown_row) {
        eb_field_put_present(writer, EB_FIELD_TABLE_UNKNOWN_ROW, (uint64_t)table->unknown_row);
    }
    eb_field_put_fixed64(writer, EB_FIELD_TABLE_DIGEST, table->digest);
    if (table->placement) {
        eb_field_put_text(writer, EB_FIELD_TABLE_PLACEMENT, table->placement);
    }
    eb_field_put_number(writer, EB_FIELD_TABLE_PART, table->part);
    eb_field_put_bytes(
        writer, EB_FIELD_TABLE_DEFAULT_VECTOR, table->default_vector, table->default_vector_bytes);
    eb_field_put_number(writer, EB_FIELD_TABLE_UNKNOWN_VECTOR, table->unknown_vector);
}

static size_t table_bytes(const struct eb_wire_table *table)
{
    struct eb_field_writer counter = {.out = NULL};
    write_model_table(&counter, table);
    return counter.bytes;
}

static void write_feature(struct eb_field_writer *writer, const struct eb_wire_feature *feature)
{
    eb_field_put_text(writer, EB_FIELD_FEATURE_NAME, feature->name);
    eb_field_put_text(writer, EB_FIELD_FEATURE_TABLE, feature->table);
    eb_field_put_enum(writer, EB_FIELD_FEATURE_REDUCTION, feature->reduction);
    eb_field_put_enum(writer, EB_FIELD_FEATURE_MISSING, feature->missing);
    if (feature->has_default) {
        eb_field_put_present(
            writer, EB_FIELD_FEATURE_DEFAULT_INDEX, (uint64_t)feature->default_index);
    }
    eb_field_put_text(writer, EB_FIELD_FEATURE_ID_MAP, feature->id_map);
    eb_field_put_number(writer, EB_FIELD_FEATURE_SEED, feature->seed);
    eb_field_put_number(writer, EB_FIELD_FEATURE_MAX_IDS, feature->max_ids);
}

static size_t feature_bytes(const struct eb_wire_feature *feature)
{
    struct eb_field_writer counter = {.out = NULL};
    write_feature(&counter, feature);
    return counter.bytes;
}

static void write_group(struct eb_field_writer *writer, const struct eb_wire_feature_list *group)
{
    eb_field_put_text(writer, EB_FIELD_GROUP_NAME, group->name);
    for (size_t i = 0; i < group->feature_count; i++) {
        eb_field_put_text(writer, EB_FIELD_GROUP_FEATURES, group->features[i]);
    }
}

static size_t measure_model_group(const struct eb_wire_feature_list *group)
{
    struct eb_field_writer counter = {.out = NULL};
    write_group(&counter, group);
    return counter.bytes;
}

/* Writes the parts, the number 0 included. */
static void put_owned_parts(struct eb_field_writer *writer, const struct eb_wire_version *version)
{
    for (size_t i = 0; i < version->owned_part_count; i++) {
        eb_field_put_present(writer, EB_FIELD_MODEL_VERSION_OWNED_PARTS, version->owned_parts[i]);
    }
}

static void write_model_version(
    struct eb_field_writer *writer, const struct eb_wire_version *version)
{
    eb_field_put_number(writer, EB_FIELD_MODEL_VERSION_VERSION, version->version);
    eb_field_put_enum(writer, EB_FIELD_MODEL_VERSION_STATE, version->state);
    eb_field_put_fixed64(writer, EB_FIELD_MODEL_VERSION_DIGEST, version->digest);
    for (size_t i = 0; i < version->table_count; i++) {
        eb_field_put_length(
            writer, EB_FIELD_MODEL_VERSION_TABLES, table_bytes(&version->tables[i]));
        write_model_table(writer, &version->tables[i]);
    }
    for (size_t i = 0; i < version->feature_count; i++) {
        eb_field_put_length(
            writer, EB_FIELD_MODEL_VERSION_FEATURES, feature_bytes(&version->features[i]));
        write_feature(writer, &version->features[i]);
    }
    for (size_t i = 0; i < version->group_count; i++) {
        eb_field_put_length(
            writer, EB_FIELD_MODEL_VERSION_GROUPS, measure_model_group(&version->groups[i]));
        write_group(writer, &version->groups[i]);
    }
    for (size_t i = 0; i < version->label_count; i++) {
        eb_field_put_text(writer, EB_FIELD_MODEL_VERSION_LABELS, version->labels[i]);
    }
    eb_field_put_number(writer, EB_FIELD_MODEL_VERSION_PARTS, version->parts);
    put_owned_parts(writer, version);
    eb_field_put_text(writer, EB_FIELD_MODEL_VERSION_ERROR, version->error);
    eb_field_put_number(writer, EB_FIELD_MODEL_VERSION_BYTES, version->bytes);
    eb_field_put_number(writer, EB_FIELD_MODEL_VERSION_LOADED_UNIX_MS, version->loaded_unix_ms);
    eb_field_put_number(writer, EB_FIELD_MODEL_VERSION_LOAD_MS, version->load_ms);
    eb_field_put_number(writer, EB_FIELD_MODEL_VERSION_HELD, version->held);
}

static size_t version_bytes(const struct eb_wire_version *version)
{
    struct eb_field_writer counter = {.out = NULL};
    write_model_version(&counter, version);
    return counter.bytes;
}

static void write_model_message(struct eb_field_writer *writer, const struct eb_wire_model *model)
{
    eb_field_put_text(writer, EB_FIELD_MODEL_NAME, model->name);
    eb_field_put_number(writer, EB_FIELD_MODEL_SERVED_VERSION, model->served_version);
    for (size_t i = 0; i < model->version_count; i++) {
        eb_field_put_length(writer, EB_FIELD_MODEL_VERSIONS, version_bytes(&model->versions[i]));
        write_model_version(writer, &model->versions[i]);
    }
    eb_field_put_number(writer, EB_FIELD_MODEL_COMMANDED_VERSION, model->commanded_version);
    eb_field_put_text(writer, EB_FIELD_MODEL_CONFIG_ERROR, model->config_error);
}

size_t eb_model_bytes(const struct eb_wire_model *model)
{
    struct eb_field_writer counter = {.out = NULL};
    write_model_message(&counter, model);
    return counter.bytes;
}

void eb_model_encode(const struct eb_wire_model *model, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_model_message(&writer, model);
}

static void write_model_list(struct eb_field_writer *writer, const struct eb_wire_model_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        eb_field_put_length(
            writer, EB_FIELD_LIST_MODELS_RESPONSE_MODELS, eb_model_bytes(&list->models[i]));
        write_model_message(writer, &list->models[i]);
    }
}

size_t eb_model_list_bytes(const struct eb_wire_model_list *list)
{
    struct eb_field_writer counter = {.out = NULL};
    write_model_list(&counter, list);
    return counter.bytes;
}

void eb_model_list_encode(const struct eb_wire_model_list *list, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_model_list(&writer, list);
}

static void write_limit(struct eb_field_writer *writer, const struct eb_wire_limit *limit)
{
    eb_field_put_text(writer, EB_FIELD_LIMIT_NAME, limit->name);
    eb_field_put_number(writer, EB_FIELD_LIMIT_VALUE, limit->value);
}

static size_t limit_bytes(const struct eb_wire_limit *limit)
{
    struct eb_field_writer counter = {.out = NULL};
    write_limit(&counter, limit);
    return counter.bytes;
}

static void write_model_server(struct eb_field_writer *writer, const struct eb_wire_server *server)
{
    eb_field_put_text(writer, EB_FIELD_SERVER_VERSION, server->version);
    eb_field_put_text(writer, EB_FIELD_SERVER_BUILD, server->build);
    eb_field_put_text(writer, EB_FIELD_SERVER_ISA, server->isa);
    for (size_t i = 0; i < server->limit_count; i++) {
        eb_field_put_length(writer, EB_FIELD_SERVER_LIMITS, limit_bytes(&server->limits[i]));
        write_limit(writer, &server->limits[i]);
    }
    eb_field_put_number(writer, EB_FIELD_SERVER_LOOPS, server->loops);
    eb_field_put_number(writer, EB_FIELD_SERVER_THREADS, server->threads);
    eb_field_put_text(writer, EB_FIELD_SERVER_ROLE, server->role);
    eb_field_put_fixed64(writer, EB_FIELD_SERVER_INSTANCE, server->instance);
}

size_t eb_server_bytes(const struct eb_wire_server *server)
{
    struct eb_field_writer counter = {.out = NULL};
    write_model_server(&counter, server);
    return counter.bytes;
}

void eb_server_encode(const struct eb_wire_server *server, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_model_server(&writer, server);
}

static struct eb_wire_table translate_table(const Embag__V1__Table *table)
{
    return (struct eb_wire_table){
        .name = table->name,
        .rows = table->rows,
        .shape_count = table->n_shape,
        .shape = table->shape,
        .type = (int32_t)table->type,
        .storage = table->storage,
        .keyed = table->keyed,
        .resident_bytes = table->resident_bytes,
        .digest = table->digest,
        .placement = table->placement,
        .part = table->part,
        .missing = (int32_t)table->missing,
        .has_default = table->default_row_case != 0,
        .default_index = table->default_index,
        .has_unknown_row = table->unknown_case != 0,
        .unknown_row = table->unknown_row,
        .default_vector = table->default_vector.data,
        .default_vector_bytes = table->default_vector.len,
        .unknown_vector = table->unknown_vector,
    };
}

static struct eb_wire_feature translate_feature(const Embag__V1__Feature *feature)
{
    return (struct eb_wire_feature){
        .name = feature->name,
        .table = feature->table,
        .reduction = (int32_t)feature->reduction,
        .missing = (int32_t)feature->missing,
        .has_default = feature->default_row_case != 0,
        .default_index = feature->default_index,
        .id_map = feature->id_map,
        .seed = feature->seed,
        .max_ids = feature->max_ids,
    };
}

static struct eb_wire_feature_list translate_group(const Embag__V1__Group *group)
{
    return (struct eb_wire_feature_list){
        .name = group->name,
        .feature_count = group->n_features,
        .features = (const char *const *)group->features,
    };
}

/* Translates the features and groups of a version. */
static bool translate_features(struct eb_arena *arena, const Embag__V1__ModelVersion *version,
    struct eb_wire_version *out, struct eb_error *error)
{
    struct eb_wire_feature *features =
        eb_codec_take_elements(arena, version->n_features, sizeof *features, error);
    struct eb_wire_feature_list *groups =
        features ? eb_codec_take_elements(arena, version->n_groups, sizeof *groups, error) : NULL;
    if (!groups) {
        return false;
    }
    for (size_t i = 0; i < version->n_features; i++) {
        features[i] = translate_feature(version->features[i]);
    }
    for (size_t i = 0; i < version->n_groups; i++) {
        groups[i] = translate_group(version->groups[i]);
    }
    out->feature_count = version->n_features;
    out->features = features;
    out->group_count = version->n_groups;
    out->groups = groups;
    return true;
}

static bool translate_version(struct eb_arena *arena, const Embag__V1__ModelVersion *version,
    struct eb_wire_version *out, struct eb_error *error)
{
    struct eb_wire_table *tables =
        eb_codec_take_elements(arena, version->n_tables, sizeof *tables, error);
    if (!tables) {
        return false;
    }
    for (size_t i = 0; i < version->n_tables; i++) {
        tables[i] = translate_table(version->tables[i]);
    }
    *out = (struct eb_wire_version){
        .version = version->version,
        .state = (int32_t)version->state,
        .error = version->error,
        .label_count = version->n_labels,
        .labels = (const char *const *)version->labels,
        .bytes = version->bytes,
        .digest = version->digest,
        .loaded_unix_ms = version->loaded_unix_ms,
        .load_ms = version->load_ms,
        .held = version->held,
        .parts = version->parts,
        .owned_part_count = version->n_owned_parts,
        .owned_parts = version->owned_parts,
        .table_count = version->n_tables,
        .tables = tables,
    };
    return translate_features(arena, version, out, error);
}

static bool translate_model(struct eb_arena *arena, const Embag__V1__Model *model,
    struct eb_wire_model *out, struct eb_error *error)
{
    struct eb_wire_version *versions =
        eb_codec_take_elements(arena, model->n_versions, sizeof *versions, error);
    if (!versions) {
        return false;
    }
    for (size_t i = 0; i < model->n_versions; i++) {
        if (!translate_version(arena, model->versions[i], &versions[i], error)) {
            return false;
        }
    }
    *out = (struct eb_wire_model){
        .name = model->name,
        .served_version = model->served_version,
        .commanded_version = model->commanded_version,
        .config_error = model->config_error,
        .version_count = model->n_versions,
        .versions = versions,
    };
    return true;
}

struct eb_wire_server *eb_server_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_codec_input input = {
        &embag__v1__server__descriptor, bytes, size, eb_codec_answer_limits};
    const Embag__V1__Server *message = eb_codec_unpack(arena, &input, error);
    struct eb_wire_server *server =
        message ? eb_codec_take_elements(arena, 1, sizeof *server, error) : NULL;
    struct eb_wire_limit *limits =
        server ? eb_codec_take_elements(arena, message->n_limits, sizeof *limits, error) : NULL;
    if (!limits) {
        return NULL;
    }
    for (size_t i = 0; i < message->n_limits; i++) {
        limits[i] = (struct eb_wire_limit){message->limits[i]->name, message->limits[i]->value};
    }
    *server = (struct eb_wire_server){
        .version = message->version,
        .build = message->build,
        .isa = message->isa,
        .limit_count = message->n_limits,
        .limits = limits,
        .loops = message->loops,
        .threads = message->threads,
        .role = message->role,
        .instance = message->instance,
    };
    return server;
}

struct eb_wire_model_list *eb_model_list_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_codec_input input = {
        &embag__v1__list_models_response__descriptor, bytes, size, eb_codec_answer_limits};
    const Embag__V1__ListModelsResponse *message = eb_codec_unpack(arena, &input, error);
    struct eb_wire_model_list *list =
        message ? eb_codec_take_elements(arena, 1, sizeof *list, error) : NULL;
    struct eb_wire_model *models =
        list ? eb_codec_take_elements(arena, message->n_models, sizeof *models, error) : NULL;
    if (!models) {
        return NULL;
    }
    for (size_t i = 0; i < message->n_models; i++) {
        if (!translate_model(arena, message->models[i], &models[i], error)) {
            return NULL;
        }
    }
    *list = (struct eb_wire_model_list){message->n_models, models};
    return list;
}
