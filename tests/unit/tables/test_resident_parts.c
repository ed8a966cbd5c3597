/* Opens versions in parts from resident files and a record, as part servers and routers do. */
#include "server/tables/resident_set.h"

#include "server/contents/model_config.h"
#include "server/tables/set_load.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/parts_fixture.h"
#include "tests/unit/tables/resident_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PARTS 3

/* `few` has fewer rows than there are parts. */
static const struct eb_parts_fixture_table tables[] = {
    {.name = "few", .placement = EB_PLACEMENT_ROWS, .rows = 2, .elements = 4},
    {.name = "here", .placement = EB_PLACEMENT_EVERYWHERE, .rows = 7, .elements = 8},
    {.name = "here_keys",
        .placement = EB_PLACEMENT_EVERYWHERE,
        .is_keyed = true,
        .rows = 5,
        .elements = 4},
    {.name = "keyed",
        .placement = EB_PLACEMENT_ROWS,
        .is_keyed = true,
        .has_unknown_row = true,
        .unknown_row = 2,
        .rows = 50,
        .elements = 4},
    {.name = "rows",
        .placement = EB_PLACEMENT_ROWS,
        .has_unknown_row = true,
        .unknown_row = 6,
        .rows = 100,
        .elements = 16},
    {.name = "whole", .placement = EB_PLACEMENT_WHOLE, .part = 1, .rows = 20, .elements = 3},
};

#define TABLE_COUNT (sizeof tables / sizeof tables[0])

/* A version that is loaded into resident files, and its record. */
struct fixture {
    struct eb_scratch scratch;
    char root[EB_RESIDENT_FIXTURE_BYTES];
    struct eb_resident_dir dir;
    struct eb_model_config config;
    struct eb_table_options options;
    struct eb_table_set set;
    struct eb_served_version served;
    struct eb_served_table listed[TABLE_COUNT];
};

static int set_up(void **state)
{
    static const char yaml[] = "tables: [{name: renamed, source: rows}, {name: mine, source: here},"
                               " {name: far, source: whole, missing: zero}]\n";
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct eb_failure failure;
    if (!fixture) {
        return -1;
    }
    eb_scratch_init(&fixture->scratch);
    eb_parts_fixture_write(&fixture->scratch, "1", PARTS, "a line", tables, TABLE_COUNT);
    assert_true(eb_model_config_parse(
        (const uint8_t *)yaml, sizeof yaml - 1, 255, &fixture->config, &failure));
    fixture->options = (struct eb_table_options){
        .row_bytes_max = 4096, .name_bytes_max = 255, .config = &fixture->config};
    fixture->dir.descriptor = -1;
    (void)eb_resident_fixture_make(fixture->root); /* without a tmpfs the tests are skipped */
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_faults_disarm();
    eb_table_set_deinit(&fixture->set);
    eb_model_config_deinit(&fixture->config);
    eb_resident_dir_close(&fixture->dir);
    eb_resident_fixture_remove(fixture->root);
    eb_scratch_deinit(&fixture->scratch);
    free(fixture);
    return 0;
}

/* Describes the loaded set as the keeper of the directory does. */
static void record_set(struct fixture *fixture)
{
    const struct eb_table_set *set = &fixture->set;
    fixture->served = (struct eb_served_version){
        .version = 1,
        .digest = set->digest,
        .is_complete = true,
        .manifest_yaml = set->manifest_yaml,
        .part = set->part,
        .is_router = set->is_router,
        .tables = fixture->listed,
    };
    for (size_t i = 0; i < set->count; i++) {
        const struct eb_named_table *table = &set->tables[i];
        if (!table->is_remote) {
            struct eb_served_table *listed = &fixture->listed[fixture->served.table_count++];
            *listed = (struct eb_served_table){.name = table->name,
                .unknown_row = table->table.unknown_row,
                .slot = table->file_slot};
            strcpy(listed->file, eb_table_memory_find(&set->memory, table->base)->name);
        }
    }
}

/* Loads a part of the version in the directory `name`, or with PARTS what a router has, and records
 * it. */
static void load_recorded(struct fixture *fixture, const char *name, uint32_t part)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_failure failure = {.text = ""};
    if (fixture->root[0] == '\0') {
        skip();
    }
    if (fixture->dir.descriptor < 0 &&
        !eb_resident_dir_open(&fixture->dir, fixture->root, false, &failure)) {
        fail_msg("%s", failure.text);
    }
    fixture->options.resident = (struct eb_resident_options){.dir = &fixture->dir,
        .may_be_small = true,
        .embag_version = "1.2.3",
        .model = "m",
        .version = 1};
    fixture->options.is_router = part == PARTS;
    fixture->options.part =
        part == PARTS ? (struct eb_part_choice){0} : (struct eb_part_choice){part, PARTS};
    eb_scratch_path(&fixture->scratch, name, path);
    if (!eb_set_load(path, &fixture->options, NULL, &fixture->set, &failure)) {
        fail_msg("%s", failure.text);
    }
    record_set(fixture);
}

static void expect_same_table(const struct eb_named_table *table, const struct eb_named_table *from)
{
    struct eb_table plain = table->table;
    plain.rows = from->table.rows;
    plain.scales = from->table.scales;
    plain.keys = from->table.keys;
    assert_memory_equal(&plain, &from->table, sizeof plain);
    assert_string_equal(table->name, from->name);
    assert_int_equal(table->rank, from->rank);
    assert_memory_equal(table->dims, from->dims, sizeof from->dims);
    assert_int_equal(table->part, from->part);
    assert_int_equal(table->placement, from->placement);
    assert_int_equal(table->is_remote, from->is_remote);
    assert_memory_equal(&table->remote, &from->remote, sizeof from->remote);
    assert_int_equal(table->missing, from->missing);
    assert_true(table->digest == from->digest);
    assert_int_equal(!table->table.keys, !from->table.keys);
    assert_int_equal(table->resident_bytes, from->resident_bytes);
    if (from->is_remote) {
        assert_null(table->base);
        assert_ptr_equal(table->table.keys, from->table.keys);
    } else {
        assert_memory_equal(table->base, from->base, from->resident_bytes);
    }
}

static void opens_what_was_loaded(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t part = 0; part <= PARTS; part++) {
        struct eb_table_set set;
        struct eb_failure failure = {.text = ""};
        load_recorded(fixture, "1", part);
        if (!eb_resident_set_open(&fixture->served, &fixture->options, &set, &failure)) {
            fail_msg("part %u: %s", (unsigned)part, failure.text);
        }
        assert_int_equal(set.count, fixture->set.count);
        for (size_t i = 0; i < set.count; i++) {
            expect_same_table(&set.tables[i], &fixture->set.tables[i]);
        }
        assert_true(set.digest == fixture->set.digest);
        assert_true(set.manifest != 0 && set.manifest == fixture->set.manifest);
        assert_string_equal(set.manifest_yaml, fixture->set.manifest_yaml);
        assert_string_equal(set.lineage, "a line");
        assert_int_equal(set.part.part, fixture->set.part.part);
        assert_int_equal(set.part.parts, PARTS);
        assert_int_equal(set.is_router, part == PARTS);
        eb_table_set_deinit(&set);
        eb_table_set_deinit(&fixture->set);
    }
}

static void expect_unopened(struct fixture *fixture, const char *part)
{
    static const struct eb_table_set empty;
    struct eb_table_set set;
    struct eb_failure failure = {.text = ""};
    assert_false(eb_resident_set_open(&fixture->served, &fixture->options, &set, &failure));
    assert_memory_equal(&set, &empty, sizeof set);
    eb_scratch_expect(failure.text, part);
}

static void refuses_a_record_that_does_not_fit(void **state)
{
    struct fixture *fixture = *state;
    load_recorded(fixture, "1", 1);
    char *yaml = fixture->served.manifest_yaml;
    char *torn = strdup(yaml);
    assert_non_null(torn);
    fixture->served.manifest_yaml = torn;
    char *second = strstr(strstr(torn, "\n  - ") + 1, "\n  - "); /* of the tables */
    assert_non_null(second);
    second[1] = '\0';
    expect_unopened(fixture, "does not list its table");
    torn[20] = '\0';
    expect_unopened(fixture, "manifest.yaml as recorded");
    free(torn);
    fixture->served.manifest_yaml = yaml;
    fixture->options.part.parts = PARTS + 1;
    expect_unopened(fixture, "the version is in 3 parts");
    fixture->options.part.parts = PARTS;
    fixture->listed[0].name = "unknown";
    expect_unopened(fixture, "does not list its table 'unknown'");
    fixture->listed[0].name = fixture->set.tables[0].name;
    fixture->served.digest++;
    expect_unopened(fixture, "not those that were recorded");
    fixture->served.digest--;
    fixture->served.table_count--;
    expect_unopened(fixture, "not those that were recorded");
    eb_table_set_deinit(&fixture->set);
    load_recorded(fixture, "1", PARTS);
    fixture->options.row_bytes_max = 8;
    expect_unopened(fixture, "row");
}

static void opens_a_router_that_has_no_table(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set set;
    struct eb_failure failure = {.text = ""};
    eb_parts_fixture_write(&fixture->scratch, "2", PARTS, "", &tables[4], 2);
    fixture->options.config = NULL;
    load_recorded(fixture, "2", PARTS);
    assert_int_equal(fixture->served.table_count, 0);
    if (!eb_resident_set_open(&fixture->served, &fixture->options, &set, &failure)) {
        fail_msg("%s", failure.text);
    }
    assert_int_equal(set.count, 2);
    assert_true(set.tables[0].is_remote && set.tables[1].is_remote);
    assert_string_equal(set.lineage, "");
    eb_table_set_deinit(&set);
}

/* Returns the number of allocations, or 0 if one was refused. */
static unsigned open_refused(struct fixture *fixture, unsigned refused)
{
    struct eb_table_set set;
    struct eb_failure failure = {.text = ""};
    eb_faults_fail_allocation(refused);
    bool is_good = eb_resident_set_open(&fixture->served, &fixture->options, &set, &failure);
    unsigned count = eb_faults_allocation_count();
    eb_faults_fail_allocation(0);
    assert_true(is_good || failure.text[0] != '\0');
    assert_int_equal(set.count, is_good ? fixture->set.count : 0);
    eb_table_set_deinit(&set);
    return is_good ? count : 0;
}

static void opens_all_or_nothing_where_memory_runs_out(void **state)
{
    struct fixture *fixture = *state;
    for (uint32_t part = PARTS - 1; part <= PARTS; part++) {
        load_recorded(fixture, "1", part);
        unsigned count = open_refused(fixture, 0);
        assert_true(count > 20);
        for (unsigned number = 1; number <= count; number++) {
            (void)open_refused(fixture, number);
        }
        assert_int_equal(open_refused(fixture, count + 1), count);
        eb_table_set_deinit(&fixture->set);
    }
}

EB_TEST_GROUP(resident_parts)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(opens_what_was_loaded),
        FIXTURE(refuses_a_record_that_does_not_fit),
        FIXTURE(opens_a_router_that_has_no_table),
        FIXTURE(opens_all_or_nothing_where_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
