#include "server/rpc/catalogue.h"

#include "proto/codec_admin.h"
#include "server/route/route_table.h"
#include "server/rpc/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Room for "part 4095/4096". */
#define ROLE_BYTES 32

/* Returns the role of this server; writes to `role` if it is a part server. */
static const char *name_role(const struct eb_server_facts *facts, char role[ROLE_BYTES])
{
    const struct eb_part_choice *part = &facts->part;
    if (facts->is_router) {
        return "router";
    }
    if (part->parts == 0) {
        return "server";
    }
    snprintf(role, ROLE_BYTES, "part %" PRIu32 "/%" PRIu32, part->part, part->parts);
    return role;
}

/* Returns 1 + the part in which a table of the version lies whole, or 0 if it does not. */
static uint32_t number_part(const struct eb_table_set *set, const struct eb_named_table *table)
{
    if (set->part.parts == 0 || table->placement != EB_PLACEMENT_WHOLE) {
        return 0;
    }
    return 1 + (table->is_remote ? table->remote.part : set->part.part);
}

static struct eb_wire_table describe_catalogue_table(
    const struct eb_feature *feature, const struct eb_table_set *set)
{
    const struct eb_named_table *named = feature->table;
    const struct eb_table *table = &named->table;
    return (struct eb_wire_table){
        .name = named->name,
        .rows = named->table.row_count,
        .shape_count = named->rank - 1,
        .shape = named->dims + 1,
        .type = (int32_t)named->table.type,
        .storage = eb_storage_name(named->table.storage),
        .keyed = named->table.keys,
        .resident_bytes = eb_table_set_copy_bytes(named),
        .digest = named->digest,
        .placement = set->part.parts > 0 ? eb_placement_name(named->placement) : NULL,
        .part = number_part(set, named),
        .missing = (int32_t)feature->missing,
        .has_default = feature->has_default,
        .default_index = feature->default_index,
        .has_unknown_row = table->unknown_row >= 0,
        .unknown_row = table->unknown_row,
        .default_vector = table->vector,
        .default_vector_bytes =
            table->vector ? table->row_elements * eb_type_bytes(table->type) : 0,
        .unknown_vector = table->unknown_row == EB_ROW_VECTOR,
    };
}

static struct eb_wire_feature describe_catalogue_feature(const struct eb_feature *feature)
{
    return (struct eb_wire_feature){
        .name = feature->name,
        .table = feature->table->name,
        .reduction = (int32_t)feature->reduction,
        .missing = (int32_t)feature->missing,
        .has_default = feature->has_default,
        .default_index = feature->default_index,
        .id_map = eb_id_map_name(feature->id_map ? feature->id_map->kind : EB_ID_MAP_NONE),
        .seed = feature->id_map ? feature->id_map->seed : 0,
        .max_ids = feature->max_ids,
    };
}

/* Describes the tables, features and groups of a loaded version. Returns false if the arena is
 * full. */
static bool describe_features(
    struct eb_arena *arena, const struct eb_model_version *loaded, struct eb_wire_version *out)
{
    const struct eb_feature_set *set = &loaded->features;
    size_t feature_count = set->count - set->table_count;
    struct eb_wire_table *tables = eb_arena_take(arena, (set->table_count + 1) * sizeof *tables);
    struct eb_wire_feature *features = eb_arena_take(arena, (feature_count + 1) * sizeof *features);
    struct eb_wire_feature_list *groups =
        eb_arena_take(arena, (set->group_count + 1) * sizeof *groups);
    if (!tables || !features || !groups) {
        return false;
    }
    for (size_t i = 0; i < set->table_count; i++) {
        tables[i] = describe_catalogue_table(&set->features[i], &loaded->tables);
    }
    for (size_t i = 0; i < feature_count; i++) {
        features[i] = describe_catalogue_feature(&set->features[set->table_count + i]);
    }
    for (size_t i = 0; i < set->group_count; i++) {
        const struct eb_feature_group *group = &set->groups[i];
        groups[i] = (struct eb_wire_feature_list){group->name, group->count, group->names};
    }
    out->tables = tables;
    out->table_count = set->table_count;
    out->features = features;
    out->feature_count = feature_count;
    out->groups = groups;
    out->group_count = set->group_count;
    return true;
}

/* Describes the labels of a version. Returns false if the arena is full. */
static bool describe_labels(struct eb_arena *arena, const struct eb_snapshot_model *model,
    uint64_t number, struct eb_wire_version *out)
{
    const char **labels = eb_arena_take(arena, (model->label_count + 1) * sizeof *labels);
    if (!labels) {
        return false;
    }
    out->labels = labels;
    for (size_t i = 0; i < model->label_count; i++) {
        if (model->labels[i].version == number) {
            labels[out->label_count++] = model->labels[i].name;
        }
    }
    return true;
}

/* Returns the bytes that one copy of the tables takes: those in memory here, and those that remote
 * tables take on other servers. */
static uint64_t count_copy_bytes(const struct eb_table_set *set)
{
    uint64_t bytes = set->bytes;
    for (size_t i = 0; i < set->count; i++) {
        uint64_t more = set->tables[i].is_remote ? eb_table_set_copy_bytes(&set->tables[i]) : 0;
        bytes = bytes > UINT64_MAX - more ? UINT64_MAX : bytes + more;
    }
    return bytes;
}

/* The requested part of the catalogue. */
struct selection {
    uint64_t only; /* number of the only version; 0: all versions */
    bool has_tables;
};

static const struct eb_route_entry *find_entry(
    const struct eb_route_table *routes, const struct eb_model_version *version)
{
    return eb_route_table_find(routes, version->model, version->version, version->tables.manifest);
}

/* Returns the entry of a version that has failed at the part servers, whatever its digest. Returns
 * NULL if there is none. */
static const struct eb_route_entry *find_failed_entry(
    const struct eb_route_table *routes, const char *model, uint64_t number)
{
    for (size_t i = 0; routes && i < routes->count; i++) {
        const struct eb_route_entry *entry = &routes->entries[i];
        if (entry->failure && entry->version == number && strcmp(entry->model, model) == 0) {
            return entry;
        }
    }
    return NULL;
}

bool eb_catalogue_is_complete(
    const struct eb_route_table *routes, const struct eb_model_version *version)
{
    return version &&
           (!version->tables.is_router || eb_route_entry_is_complete(find_entry(routes, version)));
}

/* Lists the parts of a router's version that are at some server. A version with missing parts is
 * LOADING, or FAILED if all servers of a part cannot load it, unless it is served anyway. `entry`
 * is NULL if nothing is known of its parts. Returns false if the arena is full. */
static bool describe_parts(const struct eb_unary_request *unary, const struct eb_route_entry *entry,
    struct eb_wire_version *out)
{
    uint32_t parts = entry ? entry->parts : 0;
    uint32_t *owned = eb_arena_take(unary->arena, (parts + 1) * sizeof *owned);
    if (!owned) {
        return false;
    }
    out->owned_parts = owned;
    out->owned_part_count = 0;
    for (uint32_t part = 0; part < parts; part++) {
        size_t count;
        (void)eb_route_entry_instances(entry, part, &count);
        if (count > 0) {
            owned[out->owned_part_count++] = part;
        }
    }
    if (out->state == EB_VERSION_READY && !eb_route_entry_is_complete(entry)) {
        out->state = EB_VERSION_LOADING;
    }
    if (entry && entry->failure && out->state != EB_VERSION_FAILED) {
        out->error = entry->failure;
        out->state = out->state == EB_VERSION_LOADING ? EB_VERSION_FAILED : out->state;
    }
    return true;
}

static bool describe_version(const struct eb_unary_request *unary,
    const struct eb_snapshot_model *model, const struct eb_snapshot_version *version,
    bool has_tables, struct eb_wire_version *out)
{
    struct eb_arena *arena = unary->arena;
    const struct eb_model_version *loaded = version->loaded;
    *out = (struct eb_wire_version){
        .version = version->number,
        .state = (int32_t)version->state,
        .error = version->failure ? version->failure : "",
        .held = version->is_held,
    };
    if (loaded) {
        out->bytes = count_copy_bytes(&loaded->tables);
        const struct eb_part_choice *part = &loaded->tables.part;
        out->digest = part->parts > 0 ? loaded->tables.manifest : loaded->tables.digest;
        out->parts = part->parts;
        out->owned_part_count = part->parts > 0;
        out->owned_parts = &part->part;
        out->loaded_unix_ms = loaded->loaded_unix_ms;
        out->load_ms = loaded->load_ms;
    }
    const struct eb_route_entry *entry =
        loaded ? find_entry(unary->routes, loaded)
               : find_failed_entry(unary->routes, model->name, version->number);
    bool is_remote = entry || (loaded && loaded->tables.is_router);
    return (!is_remote || describe_parts(unary, entry, out)) &&
           describe_labels(arena, model, version->number, out) &&
           (!loaded || !has_tables || describe_features(arena, loaded, out));
}

static bool has_version(const struct eb_snapshot_model *model, uint64_t number)
{
    for (size_t i = 0; i < model->version_count; i++) {
        if (model->versions[i].number == number) {
            return true;
        }
    }
    return false;
}

/* Puts the last version of a model, whose others are sorted, in its place: the highest comes first.
 */
static void place_last(struct eb_wire_version *versions, size_t count)
{
    for (size_t i = count - 1; i > 0 && versions[i].version > versions[i - 1].version; i--) {
        struct eb_wire_version higher = versions[i];
        versions[i] = versions[i - 1];
        versions[i - 1] = higher;
    }
}

/* Adds the versions of a router that failed at the part servers and are not in memory here to the
 * *count versions, after which there is room. Returns false if the arena is full. */
static bool add_failed(const struct eb_unary_request *unary, const struct eb_snapshot_model *model,
    uint64_t only, struct eb_wire_version *versions, size_t *count)
{
    const struct eb_route_table *routes = unary->routes;
    for (size_t i = 0; routes && i < routes->count; i++) {
        const struct eb_route_entry *entry = &routes->entries[i];
        bool is_wanted = entry->failure && strcmp(entry->model, model->name) == 0 &&
                         (only == 0 || only == entry->version);
        if (!is_wanted || has_version(model, entry->version)) {
            continue;
        }
        struct eb_wire_version *version = &versions[(*count)++];
        *version = (struct eb_wire_version){.version = entry->version,
            .state = EB_VERSION_LOADING,
            .error = "",
            .digest = entry->digest,
            .parts = entry->parts};
        if (!describe_parts(unary, entry, version) ||
            !describe_labels(unary->arena, model, entry->version, version)) {
            return false;
        }
        place_last(versions, *count);
    }
    return true;
}

static bool describe_catalogue_model(const struct eb_unary_request *unary,
    const struct eb_snapshot_model *model, struct selection selection, struct eb_wire_model *out)
{
    size_t room = model->version_count + (unary->routes ? unary->routes->count : 0);
    struct eb_wire_version *versions = eb_arena_take(unary->arena, (room + 1) * sizeof *versions);
    if (!versions) {
        return false;
    }
    *out = (struct eb_wire_model){.name = model->name,
        .served_version = model->served ? model->served->version : 0,
        .commanded_version = model->commanded,
        .config_error = model->failure ? model->failure : "",
        .versions = versions};
    for (size_t i = 0; i < model->version_count; i++) {
        const struct eb_snapshot_version *version = &model->versions[i];
        if (selection.only != 0 && version->number != selection.only) {
            continue;
        }
        if (!describe_version(
                unary, model, version, selection.has_tables, &versions[out->version_count++])) {
            return false;
        }
    }
    return add_failed(unary, model, selection.only, versions, &out->version_count);
}

static struct eb_outgoing *answer_list(const struct eb_unary_request *unary,
    const struct eb_wire_model_list *list, struct eb_error *error)
{
    struct eb_outgoing *answer = eb_unary_reply(unary, eb_model_list_bytes(list), error);
    if (answer) {
        eb_model_list_encode(list, eb_reply_body(answer));
    }
    return answer;
}

static struct eb_outgoing *answer_all(
    const struct eb_unary_request *unary, struct selection selection, struct eb_error *error)
{
    size_t count = unary->snapshot->count;
    struct eb_wire_model *models = eb_arena_take(unary->arena, (count + 1) * sizeof *models);
    if (!models) {
        return eb_unary_refuse_memory(error);
    }
    struct eb_wire_model_list list = {0, models};
    for (size_t i = 0; i < count; i++) {
        const struct eb_snapshot_model *model = &unary->snapshot->models[i];
        if (!eb_principal_may_see(unary->caller, model->name)) {
            continue;
        }
        if (!describe_catalogue_model(unary, model, selection, &models[list.count++])) {
            return eb_unary_refuse_memory(error);
        }
    }
    return answer_list(unary, &list, error);
}

struct eb_outgoing *eb_catalogue_list_models(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    if (!eb_empty_decode(unary->bytes, unary->size, error)) {
        return NULL;
    }
    return answer_all(unary, (struct selection){.has_tables = true}, error);
}

/* Describes the requested model. Returns false with *error set. */
static bool find_described(const struct eb_unary_request *unary,
    const struct eb_wire_model_query *query, bool has_tables, struct eb_wire_model *described,
    struct eb_error *error)
{
    struct selection selection = {.only = query->version, .has_tables = has_tables};
    struct eb_model_choice choice = eb_unary_choose(unary, query);
    const struct eb_snapshot_model *model = eb_model_choice_find(&choice, error);
    if (!model) {
        return false;
    }
    if (!describe_catalogue_model(unary, model, selection, described)) {
        eb_unary_refuse_memory(error);
        return false;
    }
    if (query->version != 0 && described->version_count == 0) {
        eb_error_set(error, EB_STATUS_NOT_FOUND, "model \"%s\" has no version %llu", model->name,
            (unsigned long long)query->version);
        return false;
    }
    return true;
}

struct eb_outgoing *eb_catalogue_get_model(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    struct eb_codec_limits limits = eb_unary_limits(unary);
    const struct eb_wire_model_query *query =
        eb_model_query_decode(unary->arena, unary->bytes, unary->size, &limits, error);
    struct eb_wire_model described;
    if (!query || !find_described(unary, query, true, &described, error)) {
        return NULL;
    }
    struct eb_outgoing *answer = eb_unary_reply(unary, eb_model_bytes(&described), error);
    if (answer) {
        eb_model_encode(&described, eb_reply_body(answer));
    }
    return answer;
}

struct eb_outgoing *eb_catalogue_list_versions(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    struct eb_codec_limits limits = eb_unary_limits(unary);
    const struct eb_wire_model_query *query =
        eb_version_request_decode(unary->arena, unary->bytes, unary->size, &limits, error);
    struct eb_wire_model described;
    if (!query) {
        return NULL;
    }
    if (query->model[0] == '\0') {
        return answer_all(unary, (struct selection){.only = query->version}, error);
    }
    if (!find_described(unary, query, false, &described, error)) {
        return NULL;
    }
    return answer_list(unary, &(struct eb_wire_model_list){1, &described}, error);
}

struct eb_outgoing *eb_catalogue_get_server(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    if (!eb_empty_decode(unary->bytes, unary->size, error)) {
        return NULL;
    }
    const struct eb_server_facts *facts = unary->facts;
    const struct eb_limits *values = unary->limits;
    const struct eb_wire_limit limits[] = {
#define X(limit, effect, fallback, min, max, what) {#limit, values->limit},
        EB_LIMIT_LIST(X)
#undef X
    };
    char role[ROLE_BYTES];
    struct eb_wire_server server = {
        .version = facts->version,
        .build = facts->build,
        .isa = facts->isa,
        .limit_count = sizeof limits / sizeof limits[0],
        .limits = limits,
        .loops = facts->loops,
        .threads = facts->threads,
        .role = name_role(facts, role),
        .instance = facts->instance,
    };
    struct eb_outgoing *answer = eb_unary_reply(unary, eb_server_bytes(&server), error);
    if (answer) {
        eb_server_encode(&server, eb_reply_body(answer));
    }
    return answer;
}
