#include "server/rpc/catalogue.h"

#include "proto/grpc_text.h"
#include "server/route/route_table.h"
#include "server/rpc/reply.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/publish/manager_host.h"
#include "tests/unit/tables/parts_fixture.h"

#include "embag/v1/model_admin.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARENA_BYTES (UINT64_C(1) << 20)

static const struct eb_limits server_limits = {
#define X(name, effect, fallback, min, max, what) .name = (fallback),
    EB_LIMIT_LIST(X)
#undef X
};
static const struct eb_server_facts facts = {
    .version = "1.2.3", .build = "a build", .isa = "ref", .loops = 2, .threads = 3, .instance = 4};

/* "alpha" has versions 1 (never tried), 2 (served) and 3 (broken). "beta" has version 5 with two
 * labels. */
static struct manager_host models;
static struct eb_snapshot *snapshot;

/* One call and the bytes of its answer. */
struct asked {
    struct eb_buffer_pool pool;
    struct eb_memory memory;
    size_t arena_cap_bytes;
    struct eb_arena arena;
    struct eb_error error;
    struct eb_outgoing *answer;
};

static void asked_init(struct asked *asked)
{
    *asked = (struct asked){.arena_cap_bytes = ARENA_BYTES};
    eb_buffer_pool_init(&asked->pool, UINT64_C(1) << 24);
    asked->memory = eb_buffer_pool_memory(&asked->pool);
}

/* Releases the answer and checks that nothing of it remains. */
static void asked_reset(struct asked *asked)
{
    if (asked->answer) {
        eb_outgoing_drop(asked->answer);
        asked->answer = NULL;
    }
    eb_arena_deinit(&asked->arena);
    assert_int_equal(asked->pool.taken_bytes, 0);
}

static void asked_deinit(struct asked *asked)
{
    asked_reset(asked);
    eb_buffer_pool_deinit(&asked->pool);
}

/* The caller of all requests. */
static const struct eb_principal *caller = &eb_auth_anybody;
/* Of the router that answers all requests; NULL: it is no router. */
static struct eb_route_table *routes;

static bool ask_catalogue(struct asked *asked, eb_unary_fn method, const void *bytes, size_t size)
{
    asked_reset(asked);
    eb_arena_init(&asked->arena, &asked->memory);
    eb_arena_reset(&asked->arena, asked->arena_cap_bytes);
    struct eb_unary_request call = {
        .snapshot = snapshot,
        .routes = routes,
        .caller = caller,
        .facts = &facts,
        .limits = &server_limits,
        .arena = &asked->arena,
        .pool = &asked->pool,
        .bytes = bytes,
        .size = size,
    };
    asked->answer = method(&call, &asked->error);
    return asked->answer;
}

static bool ask_for_model(struct asked *asked, const char *name, uint64_t version)
{
    char name_copy[512];
    uint8_t bytes[1024];
    Embag__V1__GetModelRequest query = EMBAG__V1__GET_MODEL_REQUEST__INIT;
    snprintf(name_copy, sizeof name_copy, "%s", name);
    query.model = name_copy;
    query.version = version;
    return ask_catalogue(
        asked, eb_catalogue_get_model, bytes, embag__v1__get_model_request__pack(&query, bytes));
}

static size_t catalogue_bytes(const struct asked *asked)
{
    return asked->answer->size - EB_GRPC_PREFIX_BYTES;
}

/* Returns the decoded model. The caller frees it with protobuf's function. */
static Embag__V1__Model *decode_model(const struct asked *asked)
{
    Embag__V1__Model *model =
        embag__v1__model__unpack(NULL, catalogue_bytes(asked), eb_reply_body(asked->answer));
    assert_non_null(model);
    return model;
}

static void expect_catalogue_refused(
    const struct asked *asked, enum eb_status status, const char *part)
{
    assert_null(asked->answer);
    assert_int_equal(asked->error.status, status);
    eb_scratch_expect(asked->error.text, part);
}

/* ---- models ---- */

static void expect_alpha(const Embag__V1__Model *model)
{
    assert_string_equal(model->name, "alpha");
    assert_int_equal(model->served_version, 2);
    assert_int_equal(model->n_versions, 2);
    assert_int_equal(model->versions[0]->version, 3);
    assert_int_equal(model->versions[0]->state, EMBAG__V1__MODEL_VERSION__STATE__STATE_FAILED);
    assert_int_equal(model->versions[0]->n_tables, 0);
    eb_scratch_expect(model->versions[0]->error, "line.npy");
    assert_int_equal(model->versions[1]->version, 2);
    assert_int_equal(model->versions[1]->state, EMBAG__V1__MODEL_VERSION__STATE__STATE_SERVING);
    assert_string_equal(model->versions[1]->error, "");
    assert_true(model->versions[1]->bytes > 0);
    assert_int_equal(model->versions[1]->n_tables, 2);
}

static void expect_features(const Embag__V1__ModelVersion *version)
{
    assert_int_equal(version->n_features, 2);
    const Embag__V1__Feature *first = version->features[0];
    assert_string_equal(first->name, "first");
    assert_string_equal(first->table, "cube");
    assert_int_equal(first->reduction, EB_REDUCTION_MEAN);
    assert_int_equal(first->missing, EB_MISSING_SKIP);
    assert_int_equal(first->default_row_case, EMBAG__V1__FEATURE__DEFAULT_ROW_DEFAULT_INDEX);
    assert_int_equal(first->default_index, 1);
    assert_string_equal(first->id_map, "hash_modulo");
    assert_int_equal(first->seed, 42);
    assert_int_equal(first->max_ids, 9);
    const Embag__V1__Feature *second = version->features[1];
    assert_string_equal(second->name, "second");
    assert_int_equal(second->reduction, EB_REDUCTION_SUM);
    assert_int_equal(second->missing, EB_MISSING_ERROR);
    assert_int_equal(second->default_row_case, EMBAG__V1__FEATURE__DEFAULT_ROW__NOT_SET);
    assert_string_equal(second->id_map, "none");
    assert_int_equal(version->n_groups, 1);
    assert_string_equal(version->groups[0]->name, "both");
    assert_int_equal(version->groups[0]->n_features, 2);
    assert_string_equal(version->groups[0]->features[0], "second");
    assert_int_equal(version->tables[0]->missing, EB_MISSING_ERROR);
    assert_int_equal(version->tables[0]->unknown_row, 1);
    assert_int_equal(version->tables[0]->default_vector.len, 0);
    assert_false(version->tables[0]->unknown_vector);
    assert_int_equal(version->tables[1]->unknown_case, EMBAG__V1__TABLE__UNKNOWN__NOT_SET);
    assert_int_equal(version->tables[1]->default_row_case, EMBAG__V1__TABLE__DEFAULT_ROW__NOT_SET);
    assert_int_equal(version->tables[1]->default_vector.len, sizeof(int16_t));
    assert_memory_equal(version->tables[1]->default_vector.data, "\xfe\xff", sizeof(int16_t));
    assert_true(version->tables[1]->unknown_vector);
}

static void expect_catalogue_tables(const Embag__V1__ModelVersion *version)
{
    const Embag__V1__Table *cube = version->tables[0];
    const Embag__V1__Table *line = version->tables[1];
    assert_string_equal(cube->name, "cube");
    assert_int_equal(cube->rows, 2);
    assert_int_equal(cube->n_shape, 2);
    assert_int_equal(cube->shape[0], 3);
    assert_int_equal(cube->shape[1], 4);
    assert_int_equal(cube->type, EB_F32);
    assert_string_equal(cube->storage, "f32");
    assert_false(cube->keyed);
    assert_true(cube->resident_bytes >= 96);
    assert_true(cube->digest != 0);
    assert_string_equal(line->name, "line");
    assert_int_equal(line->rows, 5);
    assert_int_equal(line->n_shape, 0);
    assert_int_equal(line->type, EB_I16);
    assert_string_equal(line->storage, "i16");
}

static void lists_models_with_the_versions_that_were_tried(void **state)
{
    (void)state;
    struct asked asked;
    asked_init(&asked);
    assert_true(ask_catalogue(&asked, eb_catalogue_list_models, NULL, 0));
    Embag__V1__ListModelsResponse *list = embag__v1__list_models_response__unpack(
        NULL, catalogue_bytes(&asked), eb_reply_body(asked.answer));
    assert_non_null(list);
    assert_int_equal(list->n_models, 2);
    expect_alpha(list->models[0]);
    expect_catalogue_tables(list->models[0]->versions[1]);
    expect_features(list->models[0]->versions[1]);
    assert_string_equal(list->models[1]->name, "beta");
    assert_int_equal(list->models[1]->served_version, 5);
    assert_int_equal(list->models[1]->n_versions, 1);
    assert_int_equal(list->models[1]->versions[0]->n_labels, 2);
    assert_string_equal(list->models[1]->versions[0]->labels[0], "odd");
    assert_string_equal(list->models[1]->versions[0]->labels[1], "stable");
    embag__v1__list_models_response__free_unpacked(list, NULL);
    asked_deinit(&asked);
}

static void describes_one_model(void **state)
{
    (void)state;
    struct asked asked;
    asked_init(&asked);
    assert_true(ask_for_model(&asked, "alpha", 0));
    Embag__V1__Model *model = decode_model(&asked);
    expect_alpha(model);
    expect_catalogue_tables(model->versions[1]);
    embag__v1__model__free_unpacked(model, NULL);
    asked_deinit(&asked);
}

static void describes_one_version(void **state)
{
    (void)state;
    struct asked asked;
    asked_init(&asked);
    assert_true(ask_for_model(&asked, "alpha", 2));
    Embag__V1__Model *model = decode_model(&asked);
    assert_int_equal(model->served_version, 2);
    assert_int_equal(model->n_versions, 1);
    expect_catalogue_tables(model->versions[0]);
    embag__v1__model__free_unpacked(model, NULL);
    assert_true(ask_for_model(&asked, "alpha", 3));
    model = decode_model(&asked);
    assert_int_equal(model->n_versions, 1);
    assert_int_equal(model->versions[0]->state, EMBAG__V1__MODEL_VERSION__STATE__STATE_FAILED);
    embag__v1__model__free_unpacked(model, NULL);
    asked_deinit(&asked);
}

/* Lists versions. Returns a list that the caller frees, or NULL if the request was refused. */
static Embag__V1__ListModelsResponse *list_versions(
    struct asked *asked, const char *name, uint64_t version)
{
    char name_copy[512];
    uint8_t bytes[1024];
    Embag__V1__VersionRequest query = EMBAG__V1__VERSION_REQUEST__INIT;
    snprintf(name_copy, sizeof name_copy, "%s", name);
    query.model = name_copy;
    query.version = version;
    size_t size = embag__v1__version_request__pack(&query, bytes);
    return ask_catalogue(asked, eb_catalogue_list_versions, bytes, size)
               ? embag__v1__list_models_response__unpack(
                     NULL, catalogue_bytes(asked), eb_reply_body(asked->answer))
               : NULL;
}

static void lists_versions_without_their_tables(void **state)
{
    (void)state;
    struct asked asked;
    asked_init(&asked);
    Embag__V1__ListModelsResponse *list = list_versions(&asked, "", 0);
    assert_non_null(list);
    assert_int_equal(list->n_models, 2);
    assert_int_equal(list->models[0]->n_versions, 2);
    const Embag__V1__ModelVersion *served = list->models[0]->versions[1];
    assert_int_equal(served->n_tables, 0);
    assert_true(served->bytes > 0);
    assert_true(served->digest != 0);
    assert_true(served->loaded_unix_ms > UINT64_C(1600000000000));
    assert_true(served->load_ms < 600000);
    assert_int_equal(list->models[0]->versions[0]->loaded_unix_ms, 0);
    embag__v1__list_models_response__free_unpacked(list, NULL);
    list = list_versions(&asked, "alpha", 3);
    assert_non_null(list);
    assert_int_equal(list->n_models, 1);
    assert_int_equal(list->models[0]->n_versions, 1);
    assert_int_equal(list->models[0]->versions[0]->version, 3);
    embag__v1__list_models_response__free_unpacked(list, NULL);
    assert_null(list_versions(&asked, "gamma", 0));
    expect_catalogue_refused(&asked, EB_STATUS_NOT_FOUND, "\"gamma\"");
    assert_null(list_versions(&asked, "alpha", 9));
    expect_catalogue_refused(&asked, EB_STATUS_NOT_FOUND, "\"alpha\" has no version 9");
    asked_deinit(&asked);
}

/* config_error stays until model.yaml is fixed. The other two fields are results of commands. */
static void tells_what_differs_from_model_yaml(void **state)
{
    (void)state;
    struct asked asked;
    struct eb_snapshot_model *beta = &snapshot->models[1];
    asked_init(&asked);
    beta->commanded = 5;
    beta->failure = strdup("broken");
    beta->versions[0].is_held = true;
    Embag__V1__ListModelsResponse *list = list_versions(&asked, "beta", 0);
    assert_non_null(list);
    assert_int_equal(list->models[0]->commanded_version, 5);
    assert_string_equal(list->models[0]->config_error, "broken");
    assert_true(list->models[0]->versions[0]->held);
    embag__v1__list_models_response__free_unpacked(list, NULL);
    beta->commanded = 0;
    free(beta->failure);
    beta->failure = NULL;
    beta->versions[0].is_held = false;
    asked_deinit(&asked);
}

static void refuses_models_that_are_not_there(void **state)
{
    (void)state;
    struct asked asked;
    asked_init(&asked);
    assert_false(ask_for_model(&asked, "gamma", 0));
    expect_catalogue_refused(&asked, EB_STATUS_NOT_FOUND, "\"gamma\"");
    assert_false(ask_for_model(&asked, "", 0));
    expect_catalogue_refused(&asked, EB_STATUS_NOT_FOUND, "model");
    assert_false(ask_for_model(&asked, "alpha", 4));
    expect_catalogue_refused(&asked, EB_STATUS_NOT_FOUND, "\"alpha\" has no version 4");
    assert_false(ask_for_model(&asked, "alpha", 1));
    expect_catalogue_refused(&asked, EB_STATUS_NOT_FOUND, "\"alpha\" has no version 1");
    asked_deinit(&asked);
}

static void keeps_names_to_their_limit(void **state)
{
    (void)state;
    struct asked asked;
    char name[258];
    asked_init(&asked);
    memset(name, 'n', sizeof name);
    name[255] = '\0';
    assert_false(ask_for_model(&asked, name, 0));
    assert_int_equal(asked.error.status, EB_STATUS_NOT_FOUND);
    name[255] = 'n';
    name[256] = '\0';
    assert_false(ask_for_model(&asked, name, 0));
    assert_int_equal(asked.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    asked_deinit(&asked);
}

/* ---- the server ---- */

static void tells_the_facts_and_every_limit(void **state)
{
    (void)state;
    static const char *const names[] = {
#define X(name, effect, fallback, min, max, what) #name,
        EB_LIMIT_LIST(X)
#undef X
    };
    struct asked asked;
    asked_init(&asked);
    assert_true(ask_catalogue(&asked, eb_catalogue_get_server, NULL, 0));
    Embag__V1__Server *server =
        embag__v1__server__unpack(NULL, catalogue_bytes(&asked), eb_reply_body(asked.answer));
    assert_non_null(server);
    assert_string_equal(server->version, "1.2.3");
    assert_string_equal(server->build, "a build");
    assert_string_equal(server->isa, "ref");
    assert_int_equal(server->loops, 2);
    assert_int_equal(server->threads, 3);
    assert_string_equal(server->role, "server");
    assert_int_equal(server->instance, 4);
    assert_int_equal(server->n_limits, sizeof names / sizeof names[0]);
    for (size_t i = 0; i < server->n_limits; i++) {
        assert_string_equal(server->limits[i]->name, names[i]);
    }
    assert_int_equal(server->limits[0]->value, server_limits.request_bytes_max);
    embag__v1__server__free_unpacked(server, NULL);
    asked_deinit(&asked);
}

/* ---- errors ---- */

static const eb_unary_fn methods[] = {eb_catalogue_list_models, eb_catalogue_get_model,
    eb_catalogue_get_server, eb_catalogue_list_versions};
/* Field 1 is "alpha": a GetModelRequest or VersionRequest for that model. The requests of the other
 * two methods have no field 1. */
static const uint8_t request[] = {10, 5, 'a', 'l', 'p', 'h', 'a'};

static void refuses_bytes_that_are_no_message(void **state)
{
    (void)state;
    struct asked asked;
    asked_init(&asked);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        assert_false(ask_catalogue(&asked, methods[i], request, sizeof request - 1));
        assert_int_equal(asked.error.status, EB_STATUS_INTERNAL);
    }
    asked_deinit(&asked);
}

static void skips_unknown_fields(void **state)
{
    (void)state;
    static const uint8_t unknown[] = {0xf8, 7, 1, 10, 5, 'a', 'l', 'p', 'h', 'a'};
    struct asked asked;
    asked_init(&asked);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        assert_true(ask_catalogue(&asked, methods[i], unknown, sizeof unknown));
    }
    asked_deinit(&asked);
}

/* Raises *cap until the method answers. Until then every call is refused and leaves nothing
 * behind. */
static void expect_catalogue_refused_below(
    struct asked *asked, eb_unary_fn method, uint64_t *cap, uint64_t step)
{
    int refused_count = 0;
    for (*cap = 0; !ask_catalogue(asked, method, request, sizeof request); *cap += step) {
        assert_int_equal(asked->error.status, EB_STATUS_RESOURCE_EXHAUSTED);
        assert_true(refused_count++ < 1000);
    }
    assert_true(refused_count > 0);
}

static void refuses_what_memory_does_not_hold(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        struct asked asked;
        asked_init(&asked);
        expect_catalogue_refused_below(&asked, methods[i], &asked.pool.cap_bytes, 1024);
        if (methods[i] != eb_catalogue_get_server) {
            expect_catalogue_refused_below(&asked, methods[i], &asked.arena_cap_bytes, 16);
        }
        asked_deinit(&asked);
    }
}

static int load_models(void **state)
{
    static const char cube[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4)}";
    static const char yaml[] =
        "versions: {labels: [{name: odd, version: 5}, {name: stable, version: 5}]}\n";
    static const char alpha[] =
        "tables: [{name: cube, unknown_row: 1},\n"
        "  {name: line, default_vector: [-2], unknown_row: default_vector}]\n"
        "features:\n"
        "- {name: second, table: cube}\n"
        "- {name: first, table: cube, reduction: mean, missing: skip, default_index: 1,\n"
        "   id_map: hash_modulo, seed: 42, max_ids: 9}\n"
        "groups: [{name: both, features: [second, first]}]\n";
    static const char line[] = "{'descr': '<i2', 'fortran_order': False, 'shape': (5,)}";
    struct eb_scratch scratch;
    struct eb_failure failure;
    (void)state;
    eb_scratch_init(&scratch);
    eb_scratch_write_npy(&scratch, "alpha/1/line.npy", line, 10);
    eb_scratch_write_npy(&scratch, "alpha/2/cube.npy", cube, 96);
    eb_scratch_write_npy(&scratch, "alpha/2/line.npy", line, 10);
    eb_scratch_write_npy(&scratch, "alpha/3/line.npy", line, 9);
    eb_scratch_write_npy(&scratch, "beta/5/line.npy", line, 10);
    eb_scratch_write(&scratch, "alpha/model.yaml", alpha, sizeof alpha - 1);
    eb_scratch_write(&scratch, "beta/model.yaml", yaml, sizeof yaml - 1);
    snapshot = manager_host_load(&models, scratch.root, &failure);
    eb_scratch_deinit(&scratch);
    return snapshot ? 0 : -1;
}

static int free_models(void **state)
{
    (void)state;
    manager_host_free(&models);
    return 0;
}

/* ---- versions in parts ---- */

/* Asks about a version in three parts that is loaded with these options. The caller frees both. */
static Embag__V1__Model *describe_in_parts(
    struct eb_table_options options, struct eb_model_version **version)
{
    static const struct eb_parts_fixture_table tables[] = {
        {.name = "a", .placement = EB_PLACEMENT_EVERYWHERE, .rows = 7, .elements = 8},
        {.name = "b",
            .placement = EB_PLACEMENT_ROWS,
            .is_keyed = true,
            .rows = 600,
            .elements = 16,
            .has_unknown_row = true,
            .unknown_row = 5},
        {.name = "c", .placement = EB_PLACEMENT_WHOLE, .part = 2, .rows = 20, .elements = 16},
    };
    static char model_name[] = "parts";
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_scratch scratch;
    struct eb_failure failure = {.text = ""};
    struct asked asked;
    options.row_bytes_max = 65536;
    options.name_bytes_max = 255;
    eb_scratch_init(&scratch);
    eb_parts_fixture_write(&scratch, "1", 3, "", tables, 3);
    eb_scratch_path(&scratch, "1", path);
    struct eb_version_source source = {.model = model_name, .version = 1, .path = path};
    *version = eb_model_version_load(&source, &options, NULL, &failure);
    if (!*version) {
        fail_msg("%s", failure.text);
    }
    struct eb_snapshot_version held = {
        .number = 1, .state = EB_VERSION_SERVING, .loaded = *version};
    struct eb_snapshot_model model = {
        .name = model_name, .served = *version, .version_count = 1, .versions = &held};
    struct eb_snapshot in_parts = {.count = 1, .models = &model};
    struct eb_snapshot *others = snapshot;
    snapshot = &in_parts;
    asked_init(&asked);
    assert_true(ask_for_model(&asked, model_name, 1));
    snapshot = others;
    Embag__V1__Model *described = decode_model(&asked);
    asked_deinit(&asked);
    eb_scratch_deinit(&scratch);
    return described;
}

static void expect_placed(
    const Embag__V1__Table *table, const char *placement, uint32_t part, uint64_t rows)
{
    assert_string_equal(table->placement, placement);
    assert_int_equal(table->part, part);
    assert_int_equal(table->rows, rows);
}

static void describes_whole_tables_of_a_router(void **state)
{
    (void)state;
    struct eb_model_version *version;
    Embag__V1__Model *model =
        describe_in_parts((struct eb_table_options){.is_router = true}, &version);
    const Embag__V1__ModelVersion *described = model->versions[0];
    assert_int_equal(described->parts, 3);
    assert_int_equal(described->n_owned_parts, 0);
    assert_true(described->digest == version->tables.manifest);
    assert_int_equal(described->n_tables, 3);
    expect_placed(described->tables[0], "everywhere", 0, 7);
    expect_placed(described->tables[1], "rows", 0, 600);
    expect_placed(described->tables[2], "whole", 3, 20);
    assert_true(described->tables[1]->keyed);
    assert_int_equal(described->tables[1]->unknown_row, 5);
    uint64_t stride = version->tables.tables[1].table.row_stride_bytes;
    assert_int_equal(described->tables[1]->resident_bytes, 600 * stride);
    assert_int_equal(described->tables[2]->resident_bytes, 20 * stride);
    assert_int_equal(
        described->tables[0]->resident_bytes, version->tables.tables[0].resident_bytes);
    assert_int_equal(described->bytes, version->tables.bytes + 620 * stride);
    embag__v1__model__free_unpacked(model, NULL);
    eb_model_version_give(version);
}

static void describes_what_a_part_has_of_its_tables(void **state)
{
    (void)state;
    struct eb_model_version *version;
    Embag__V1__Model *model =
        describe_in_parts((struct eb_table_options){.part = {2, 3}}, &version);
    const Embag__V1__ModelVersion *described = model->versions[0];
    assert_int_equal(described->parts, 3);
    assert_int_equal(described->n_owned_parts, 1);
    assert_int_equal(described->owned_parts[0], 2);
    assert_int_equal(described->bytes, version->tables.bytes);
    assert_int_equal(described->n_tables, 2);
    expect_placed(described->tables[0], "rows", 0, 200);
    expect_placed(described->tables[1], "whole", 3, 20);
    embag__v1__model__free_unpacked(model, NULL);
    eb_model_version_give(version);
}

static void route_failed(const char *model, uint64_t version)
{
    struct eb_route_entry *entry = eb_route_table_append(routes, model, version, 77, 3);
    assert_non_null(entry);
    assert_true(eb_route_entry_add(entry, 0, 100) && eb_route_entry_add(entry, 2, 101));
    assert_true(eb_route_entry_fail(entry, "part 1: junk"));
}

static int free_routes(void **state)
{
    (void)state;
    eb_route_table_destroy(routes);
    routes = NULL;
    return 0;
}

static void lists_versions_that_failed_at_part_servers_alone(void **state)
{
    (void)state;
    struct asked asked;
    routes = eb_route_table_create();
    assert_non_null(routes);
    route_failed("alpha", 1);
    route_failed("beta", 6);
    route_failed("alpha", 9);
    route_failed("alpha", 3); /* It has failed here, too. */
    asked_init(&asked);
    assert_true(ask_for_model(&asked, "alpha", 0));
    Embag__V1__Model *model = decode_model(&asked);
    assert_int_equal(model->n_versions, 4);
    for (size_t i = 0; i < 4; i++) {
        static const uint64_t numbers[] = {9, 3, 2, 1};
        assert_int_equal(model->versions[i]->version, numbers[i]);
        assert_int_equal(
            model->versions[i]->state, i == 2 ? EB_VERSION_SERVING : EB_VERSION_FAILED);
    }
    const Embag__V1__ModelVersion *failed = model->versions[0];
    assert_string_equal(failed->error, "part 1: junk");
    assert_int_equal(failed->parts, 3);
    assert_int_equal(failed->n_owned_parts, 2);
    assert_int_equal(failed->owned_parts[1], 2);
    assert_true(failed->digest == 77);
    assert_null(strstr(model->versions[1]->error, "part 1"));
    embag__v1__model__free_unpacked(model, NULL);
    assert_true(ask_for_model(&asked, "alpha", 9));
    model = decode_model(&asked);
    assert_int_equal(model->n_versions, 1);
    assert_int_equal(model->versions[0]->version, 9);
    embag__v1__model__free_unpacked(model, NULL);
    expect_catalogue_refused_below(&asked, eb_catalogue_list_models, &asked.arena_cap_bytes, 16);
    asked_deinit(&asked);
}

EB_TEST_GROUP(catalogue)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_models_with_the_versions_that_were_tried),
        cmocka_unit_test(describes_one_model),
        cmocka_unit_test(describes_one_version),
        cmocka_unit_test(lists_versions_without_their_tables),
        cmocka_unit_test(tells_what_differs_from_model_yaml),
        cmocka_unit_test(refuses_models_that_are_not_there),
        cmocka_unit_test(keeps_names_to_their_limit),
        cmocka_unit_test(tells_the_facts_and_every_limit),
        cmocka_unit_test(refuses_bytes_that_are_no_message),
        cmocka_unit_test(skips_unknown_fields),
        cmocka_unit_test(refuses_what_memory_does_not_hold),
        cmocka_unit_test(describes_whole_tables_of_a_router),
        cmocka_unit_test(describes_what_a_part_has_of_its_tables),
        cmocka_unit_test_teardown(lists_versions_that_failed_at_part_servers_alone, free_routes),
    };
    return cmocka_run_group_tests(tests, load_models, free_models);
}
