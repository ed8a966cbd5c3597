/* Fails the n-th request for memory of a load, for each n. The linker sends the requests of
 * server/models here (--wrap). */
#include "server/models/registry.h"

#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/parts_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LARGE_BYTES 2400000

/* Counts as an allocation, because sealing memory can fail, too. */
static int refuse_mprotect(void *at, size_t bytes, int protection)
{
    if (eb_faults_refuse_allocation()) {
        errno = ENOMEM;
        return -1;
    }
    return __real_mprotect(at, bytes, protection);
}

static int arm_mprotect(void **state)
{
    (void)state;
    eb_faults.mprotect = refuse_mprotect;
    return 0;
}

static void write_model(const struct eb_scratch *scratch)
{
    static const char yaml[] = "tables: [{name: u, source: n, storage: int8},\n"
                               "  {name: c, format: codes_int8, scales: s, biases: b}]\n"
                               "features: [{name: f, table: k}]\n"
                               "groups: [{name: g, features: [f]}]\n"
                               "versions: {labels: [{name: l, version: 1}]}\n";
    static const char list[] = "{\"weight_map\":{\"a\":\"s-00001-of-00001.safetensors\"}}";
    static const char halves[] = "{\"a\":{\"dtype\":\"F16\",\"shape\":[2,2],"
                                 "\"data_offsets\":[0,8]}}";
    static const char keys[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }";
    static const char rows[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
    static const char part[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }";
    static const char codes[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }";
    eb_scratch_write(scratch, "m/model.yaml", yaml, sizeof yaml - 1);
    eb_scratch_write_npy(scratch, "m/1/c.npy", codes, 6);
    eb_scratch_write_npy(scratch, "m/1/s.npy", rows, 8);
    eb_scratch_write_npy(scratch, "m/1/b.npy", rows, 8);
    eb_scratch_write_npy(scratch, "m/1/n-00000-of-00002.npy", part, 40);
    eb_scratch_write_npy(scratch, "m/1/n-00001-of-00002.npy", part, 40);
    eb_scratch_write_npy(scratch, "m/1/k.npy", rows, 8);
    eb_scratch_write_npy(scratch, "m/1/k.keys.npy", keys, 16);
    eb_scratch_write(scratch, "m/1/s.safetensors.index.json", list, sizeof list - 1);
    eb_scratch_write_safetensors(scratch, "m/1/s-00001-of-00001.safetensors", halves, 8);
}

static void write_parted_model(const struct eb_scratch *scratch)
{
    static const char yaml[] = "tables: [{name: w, source: t, default_vector: [1, 2]}]\n"
                               "features: [{name: f, table: w}, {name: g, table: h}]\n"
                               "groups: [{name: g, features: [f, g]}]\n";
    static const struct eb_parts_fixture_table tables[] = {
        {.name = "h", .placement = EB_PLACEMENT_EVERYWHERE, .rows = 7, .elements = 8},
        {.name = "r", .placement = EB_PLACEMENT_ROWS, .is_keyed = true, .rows = 9, .elements = 8},
        {.name = "t", .placement = EB_PLACEMENT_WHOLE, .rows = 9, .elements = 2},
    };
    eb_scratch_write_text(scratch, "m/model.yaml", yaml);
    eb_parts_fixture_write(scratch, "m/1", 2, "a line", tables, 3);
}

/* Loads the next version, if there is one. */
static void load_next(
    struct eb_registry *registry, const struct eb_table_options *limits, struct eb_failure *failure)
{
    struct eb_registry_version *version;
    const struct eb_registry_model *model = eb_registry_next(registry, &version);
    char *path = model ? eb_registry_path(model, version) : NULL;
    if (!path) {
        return;
    }
    struct eb_version_source source = {.model = model->name,
        .version = version->number,
        .path = path,
        .settings = model->settings};
    struct eb_model_version *loaded = eb_model_version_load(&source, limits, NULL, failure);
    free(path);
    if (loaded) {
        eb_registry_note_loaded(registry, loaded, 1);
    } else {
        eb_registry_fail(registry, model->name, version->number, failure->text, EB_REGISTRY_BROKEN);
    }
}

/* Sets *failure to the reason why model.yaml was not read, if there is one. The model waits
 * for that file. */
static void take_config_failure(const struct eb_repository *seen, struct eb_failure *failure)
{
    if (seen->count > 0 && seen->models[0].config_failure) {
        eb_failure_set(failure, "%s", seen->models[0].config_failure);
    }
}

/* Scans the disk, loads the version and makes a snapshot. Returns whether the snapshot has a
 * version that is served. */
static bool load_all(
    const char *root, const struct eb_table_options *limits, struct eb_failure *failure)
{
    struct eb_repository_terms terms = eb_repository_terms_of(limits);
    struct eb_repository seen;
    struct eb_registry registry = {0};
    uint64_t wake_ms;
    bool is_served = false;
    eb_failure_set(failure, "out of memory");
    if (eb_repository_scan(root, &terms, NULL, &seen, failure) &&
        eb_registry_update(&registry, &seen)) {
        take_config_failure(&seen, failure);
        load_next(&registry, limits, failure);
        eb_registry_decide(&registry, 1, &wake_ms);
        struct eb_snapshot *snapshot = eb_registry_snapshot(&registry);
        is_served = snapshot && snapshot->count == 1 && snapshot->models[0].served;
        eb_snapshot_free(snapshot);
    }
    eb_registry_deinit(&registry);
    eb_repository_deinit(&seen);
    return is_served;
}

/* Loads the model that `write` writes, refusing another request each time. */
static void survive_refusals(
    void (*write)(const struct eb_scratch *scratch), const struct eb_table_options *limits)
{
    struct eb_scratch scratch;
    eb_scratch_init(&scratch);
    write(&scratch);
    bool is_refused = true;
    unsigned tries = 0;
    while (is_refused && tries < 1000) {
        struct eb_failure failure = {.text = ""};
        eb_faults_fail_allocation(++tries);
        bool is_open = load_all(scratch.root, limits, &failure);
        is_refused = eb_faults_allocation_count() >= tries;
        eb_faults_fail_allocation(0);
        if (!is_open && !strstr(failure.text, "memory") && !strstr(failure.text, "read-only")) {
            fail_msg("request %u refused: %s", tries, failure.text);
        }
        assert_true(is_open || is_refused);
    }
    print_message("%u requests refused in turn\n", tries - 1);
    assert_in_range(tries, 20, 999);
    eb_scratch_deinit(&scratch);
}

static void survives_every_refused_request(void **state)
{
    (void)state;
    survive_refusals(
        write_model, &(struct eb_table_options){.row_bytes_max = 65536, .name_bytes_max = 255});
}

static void survives_every_refused_request_of_a_router(void **state)
{
    (void)state;
    survive_refusals(
        write_parted_model, &(struct eb_table_options){
                                .row_bytes_max = 65536, .name_bytes_max = 255, .is_router = true});
}

/* Loads version 2 beside version 1, whose table it shares. */
static bool load_beside(
    const char *root, struct eb_model_version *resident, struct eb_failure *failure)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_table_options limits = {.row_bytes_max = 65536, .name_bytes_max = 255};
    struct eb_version_source source = {
        .model = "m", .version = 2, .path = path, .residents = &resident, .resident_count = 1};
    snprintf(path, sizeof path, "%s/m/2", root);
    struct eb_model_version *loaded = eb_model_version_load(&source, &limits, NULL, failure);
    if (!loaded) {
        return false;
    }
    assert_int_equal(loaded->tables.memory.shared_bytes, loaded->tables.bytes);
    assert_int_equal(eb_model_version_own_bytes(resident), 0);
    eb_model_version_give(loaded);
    return true;
}

static void write_large(const struct eb_scratch *scratch, const char *name)
{
    static uint8_t file[EB_SCRATCH_TABLE_BYTES + LARGE_BYTES];
    struct eb_scratch_table header;
    eb_scratch_npy(&header, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (600000,), }", 0);
    memcpy(file, header.bytes, header.size);
    eb_scratch_write(scratch, name, file, header.size + LARGE_BYTES);
}

static void shares_nothing_where_a_request_is_refused(void **state)
{
    (void)state;
    struct eb_scratch scratch;
    struct eb_failure failure = {.text = ""};
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_init(&scratch);
    write_large(&scratch, "m/1/t.npy");
    write_large(&scratch, "m/2/t.npy");
    eb_scratch_path(&scratch, "m/1", path);
    struct eb_table_options limits = {.row_bytes_max = 65536, .name_bytes_max = 255};
    struct eb_version_source source = {.model = "m", .version = 1, .path = path};
    struct eb_model_version *resident = eb_model_version_load(&source, &limits, NULL, &failure);
    assert_non_null(resident);
    bool is_loaded = false;
    unsigned tries = 0;
    while (!is_loaded && tries < 1000) {
        eb_faults_fail_allocation(++tries);
        is_loaded = load_beside(scratch.root, resident, &failure);
        eb_faults_fail_allocation(0);
        if (!is_loaded) {
            eb_scratch_expect(failure.text, "memory");
        }
        assert_int_equal(eb_model_version_own_bytes(resident), resident->tables.bytes);
    }
    print_message("%u requests refused in turn\n", tries - 1);
    assert_in_range(tries, 10, 999);
    eb_model_version_give(resident);
    eb_scratch_deinit(&scratch);
}

EB_TEST_GROUP(table_allocation)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survives_every_refused_request),
        cmocka_unit_test(survives_every_refused_request_of_a_router),
        cmocka_unit_test(shares_nothing_where_a_request_is_refused),
    };
    return cmocka_run_group_tests(tests, arm_mprotect, eb_faults_tear_down);
}
