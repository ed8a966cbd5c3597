#include "client/models_call.h"

#include "proto/codec.h"
#include "proto/codec_admin.h"
#include "proto/grpc_text.h"
#include "proto/link/request_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory for decoding one progress message, with its text, which eb_codec_answer_limits bounds. */
#define PROGRESS_ARENA_BYTES ((size_t)128 << 10)
/* Memory that decoding may take in addition to eight times the message: the description of a table
 * takes more memory than bytes in the message. */
#define ARENA_BYTES_SPARE (16 * 1024 * 1024)

/* ---- requests ---- */

struct eb_outgoing *eb_models_call_encode(
    const char *model, uint64_t version, const struct eb_memory *memory, struct eb_error *error)
{
    struct eb_wire_model_query request = {model ? model : "", version};
    struct eb_outgoing *outgoing =
        eb_request_message_create(memory, 0, eb_version_request_bytes(&request));
    if (!outgoing) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the request");
        return NULL;
    }
    eb_version_request_encode(&request, outgoing->bytes + EB_GRPC_PREFIX_BYTES);
    return outgoing;
}

/* ---- lists ---- */

/* Returns whether the shapes of a version's tables fit embag_table. If not, *error is set. */
static bool check_shapes(const struct eb_wire_version *version, struct eb_error *error)
{
    for (size_t i = 0; i < version->table_count; i++) {
        if (version->tables[i].shape_count > EMBAG_RANK_MAX) {
            eb_error_set(error, EB_STATUS_INTERNAL, "table \"%s\" has more than %d dims",
                version->tables[i].name, EMBAG_RANK_MAX);
            return false;
        }
    }
    return true;
}

static bool check_list(const struct eb_wire_model_list *wire, struct eb_error *error)
{
    for (size_t m = 0; m < wire->count; m++) {
        for (size_t v = 0; v < wire->models[m].version_count; v++) {
            if (!check_shapes(&wire->models[m].versions[v], error)) {
                return false;
            }
        }
    }
    return true;
}

static void copy_table(const struct eb_wire_table *in, struct embag_table *out)
{
    *out = (struct embag_table){
        .name = in->name,
        .rows = in->rows,
        .rank = (uint32_t)in->shape_count,
        .type = (enum embag_type)in->type,
        .storage = in->storage,
        .resident_bytes = in->resident_bytes,
        .digest = in->digest,
        .keyed = in->keyed,
        .missing = (enum embag_missing)in->missing,
        .has_default = in->has_default,
        .default_index = in->default_index,
        .has_unknown_row = in->has_unknown_row,
        .unknown_row = in->unknown_row,
        .default_vector = in->default_vector,
        .default_vector_bytes = in->default_vector_bytes,
        .unknown_vector = in->unknown_vector,
        .placement = in->placement ? in->placement : "",
        .part = (int64_t)in->part - 1,
    };
    for (size_t i = 0; i < in->shape_count; i++) {
        out->shape[i] = in->shape[i];
    }
}

static struct embag_feature copy_feature(const struct eb_wire_feature *in)
{
    return (struct embag_feature){
        .name = in->name,
        .table = in->table,
        .reduction = (enum embag_reduction)in->reduction,
        .missing = (enum embag_missing)in->missing,
        .has_default = in->has_default,
        .default_index = in->default_index,
        .id_map = in->id_map,
        .seed = in->seed,
        .max_ids = in->max_ids,
    };
}

/* Copies features and groups. */
static bool copy_features(
    struct eb_arena *arena, const struct eb_wire_version *in, struct embag_model_version *out)
{
    struct embag_feature *features =
        eb_arena_take(arena, (in->feature_count + 1) * sizeof *features);
    struct embag_feature_list *groups =
        eb_arena_take(arena, (in->group_count + 1) * sizeof *groups);
    if (!features || !groups) {
        return false;
    }
    for (size_t i = 0; i < in->feature_count; i++) {
        features[i] = copy_feature(&in->features[i]);
    }
    for (size_t i = 0; i < in->group_count; i++) {
        const struct eb_wire_feature_list *group = &in->groups[i];
        groups[i] = (struct embag_feature_list){group->name, group->feature_count, group->features};
    }
    out->feature_count = in->feature_count;
    out->features = features;
    out->group_count = in->group_count;
    out->groups = groups;
    return true;
}

static bool copy_answer_version(
    struct eb_arena *arena, const struct eb_wire_version *in, struct embag_model_version *out)
{
    struct embag_table *tables = eb_arena_take(arena, (in->table_count + 1) * sizeof *tables);
    if (!tables) {
        return false;
    }
    for (size_t i = 0; i < in->table_count; i++) {
        copy_table(&in->tables[i], &tables[i]);
    }
    *out = (struct embag_model_version){
        .version = in->version,
        .serving = in->state == EB_WIRE_STATE_SERVING,
        .error = in->error,
        .table_count = in->table_count,
        .tables = tables,
        .state = (enum embag_version_state)in->state,
        .bytes = in->bytes,
        .label_count = in->label_count,
        .labels = in->labels,
        .held = in->held,
        .digest = in->digest,
        .loaded_unix_ms = in->loaded_unix_ms,
        .load_ms = in->load_ms,
        .parts = in->parts,
        .ready_part_count = in->owned_part_count,
        .ready_parts = in->owned_parts,
    };
    return copy_features(arena, in, out);
}

static bool copy_answer_model(
    struct eb_arena *arena, const struct eb_wire_model *in, struct embag_model *out)
{
    struct embag_model_version *versions =
        eb_arena_take(arena, (in->version_count + 1) * sizeof *versions);
    if (!versions) {
        return false;
    }
    for (size_t i = 0; i < in->version_count; i++) {
        if (!copy_answer_version(arena, &in->versions[i], &versions[i])) {
            return false;
        }
    }
    *out = (struct embag_model){
        .name = in->name,
        .served_version = in->served_version,
        .commanded_version = in->commanded_version,
        .config_error = in->config_error,
        .version_count = in->version_count,
        .versions = versions,
    };
    return true;
}

static bool copy_list(struct eb_models_list *list, const struct eb_wire_model_list *wire)
{
    struct embag_model *models = eb_arena_take(&list->arena, (wire->count + 1) * sizeof *models);
    if (!models) {
        return false;
    }
    for (size_t i = 0; i < wire->count; i++) {
        if (!copy_answer_model(&list->arena, &wire->models[i], &models[i])) {
            return false;
        }
    }
    list->list = (struct embag_model_list){.count = wire->count, .models = models};
    return true;
}

/* Decodes a list. The list may point into the message, so it owns a copy of the message. */
static bool fill_list(
    struct eb_models_list *list, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    uint8_t *copy = eb_arena_take(&list->arena, size + 1);
    if (!copy) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the list of models");
        return false;
    }
    memcpy(copy, bytes, size);
    const struct eb_wire_model_list *wire = eb_model_list_decode(&list->arena, copy, size, error);
    if (!wire || !check_list(wire, error)) {
        return false;
    }
    if (!copy_list(list, wire)) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the list of models");
        return false;
    }
    return true;
}

struct eb_models_list *eb_models_call_decode(
    const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_models_list *list = calloc(1, sizeof *list);
    if (!list) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the list of models");
        return NULL;
    }
    eb_arena_init(&list->arena, &eb_memory_heap);
    eb_arena_reset(&list->arena, 8 * size + ARENA_BYTES_SPARE);
    if (!fill_list(list, bytes, size, error)) {
        eb_models_call_free(list);
        return NULL;
    }
    return list;
}

void eb_models_call_free(struct eb_models_list *list)
{
    if (list) {
        eb_arena_deinit(&list->arena);
        free(list);
    }
}

/* ---- progress ---- */

/* Decodes a progress message into *progress. Returns false with *error set. */
static bool read_progress(struct eb_arena *arena, const uint8_t *bytes, size_t size,
    struct eb_models_progress *progress, struct eb_error *error)
{
    const struct eb_wire_progress *wire = eb_version_progress_decode(arena, bytes, size, error);
    if (!wire) {
        return false;
    }
    progress->done_bytes = wire->done_bytes;
    progress->total_bytes = wire->total_bytes;
    progress->done = wire->done;
    snprintf(progress->text, sizeof progress->text, "%s", wire->text);
    return true;
}

struct eb_models_progress *eb_models_call_decode_progress(
    const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_models_progress *progress = malloc(sizeof *progress);
    if (!progress) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the answer");
        return NULL;
    }
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, PROGRESS_ARENA_BYTES);
    bool is_good = read_progress(&arena, bytes, size, progress, error);
    eb_arena_deinit(&arena);
    if (!is_good) {
        free(progress);
        return NULL;
    }
    return progress;
}
