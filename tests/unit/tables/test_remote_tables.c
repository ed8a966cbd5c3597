/* Loads versions in parts as routers and part servers do. */
#include "server/contents/model_config.h"
#include "server/formats/manifest_text.h"
#include "server/tables/page_collapse.h"
#include "server/tables/set_load.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/packed_fixture.h"
#include "tests/unit/tables/parts_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#define PARTS 3
#define ROW_BYTES_MAX 4096
#define LARGE_ROWS 300000 /* of 16 bytes: more than 2 MiB */

/* `here` and `here_keys` are everywhere; `rows` and `keyed` are divided; `whole` and `keyed_whole`
 * are in part 1. */
static const struct eb_parts_fixture_table tables[] = {
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
        .unknown_key = -8,
        .rows = 50,
        .elements = 4},
    {.name = "keyed_whole",
        .placement = EB_PLACEMENT_WHOLE,
        .part = 1,
        .is_keyed = true,
        .rows = 9,
        .storage = EB_STORAGE_I64,
        .type = EB_I64},
    {.name = "rows",
        .placement = EB_PLACEMENT_ROWS,
        .has_unknown_row = true,
        .unknown_row = 6,
        .rows = 100,
        .elements = 16},
    {.name = "whole",
        .placement = EB_PLACEMENT_WHOLE,
        .part = 1,
        .rows = 20,
        .elements = 3,
        .storage = EB_STORAGE_F16,
        .type = EB_F32},
};

#define TABLE_COUNT (sizeof tables / sizeof tables[0])

/* How a version is loaded. */
struct loaded_as {
    bool is_router;
    struct eb_part_choice part;
    const struct eb_table_set *resident;
};

static const struct loaded_as router = {.is_router = true};

static bool try_load_parts(const struct eb_scratch *scratch, const char *name, const char *yaml,
    const struct loaded_as *as, struct eb_table_set *set, struct eb_failure *failure)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_model_config config;
    if (!eb_model_config_parse((const uint8_t *)yaml, strlen(yaml), 255, &config, failure)) {
        fail_msg("%s: %s", yaml, failure->text);
    }
    struct eb_table_options options = {.row_bytes_max = ROW_BYTES_MAX,
        .name_bytes_max = 11,
        .config = &config,
        .is_router = as->is_router,
        .part = as->part,
        .residents = &as->resident,
        .resident_count = as->resident ? 1 : 0};
    eb_scratch_path(scratch, name, path);
    bool is_good = eb_set_load(path, &options, NULL, set, failure);
    eb_model_config_deinit(&config);
    return is_good;
}

static void load_parts(const struct eb_scratch *scratch, const char *name, const char *yaml,
    const struct loaded_as *as, struct eb_table_set *set)
{
    struct eb_failure failure = {.text = ""};
    if (!try_load_parts(scratch, name, yaml, as, set, &failure)) {
        fail_msg("%s: %s", yaml, failure.text);
    }
}

static void expect_parts_unloaded(const struct eb_scratch *scratch, const char *name,
    const char *yaml, const struct loaded_as *as, const char *part)
{
    static const struct eb_table_set empty;
    struct eb_table_set set;
    struct eb_failure failure = {.text = ""};
    if (try_load_parts(scratch, name, yaml, as, &set, &failure)) {
        fail_msg("loaded without \"%s\": %s", part, yaml);
    }
    assert_memory_equal(&set, &empty, sizeof set);
    eb_scratch_expect(failure.text, part);
}

static const struct eb_named_table *find_in(const struct eb_table_set *set, const char *name)
{
    const struct eb_named_table *table = eb_table_set_find(set, name);
    if (!table) {
        fail_msg("no table %s", name);
    }
    return table;
}

static void write_parts(const struct eb_scratch *scratch)
{
    eb_parts_fixture_write(scratch, "1", PARTS, "a line", tables, TABLE_COUNT);
}

/* ---- what a router has ---- */

static void has_rows_only_of_tables_everywhere(void **state)
{
    struct eb_table_set set;
    write_parts(*state);
    load_parts(*state, "1", "", &router, &set);
    assert_int_equal(set.count, TABLE_COUNT);
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        const struct eb_named_table *table = &set.tables[i];
        assert_string_equal(table->name, tables[i].name);
        assert_int_equal(table->placement, tables[i].placement);
        assert_int_equal(table->is_remote, tables[i].placement != EB_PLACEMENT_EVERYWHERE);
        assert_int_equal(table->part, 0);
        assert_int_equal(table->table.row_count, tables[i].rows);
        assert_int_equal(table->dims[0], tables[i].rows);
        assert_int_equal(!table->table.keys, !tables[i].is_keyed);
        assert_int_equal(!table->table.rows, table->is_remote);
        assert_int_equal(!table->resident_bytes, table->is_remote);
        assert_int_not_equal(table->digest, 0);
    }
    const struct eb_named_table *here = find_in(&set, "here");
    const uint8_t *rows = here->base;
    assert_int_equal(rows[0], eb_packed_fixture_byte(EB_PACKED_FORMAT_ALIGNMENT));
    const struct eb_named_table *keyed = find_in(&set, "here_keys");
    assert_ptr_equal(keyed->table.keys, &keyed->keys);
    uint64_t bytes = eb_table_memory_footprint(here->resident_bytes) +
                     eb_table_memory_footprint(keyed->resident_bytes);
    assert_true(
        set.bytes >= bytes && set.pages.bytes == here->resident_bytes + keyed->resident_bytes);
    eb_table_set_deinit(&set);
}

static void expect_remote(const struct eb_table_set *set, const char *name,
    enum eb_placement placement, uint32_t part, bool by_key)
{
    const struct eb_named_table *table = find_in(set, name);
    assert_true(table->is_remote);
    assert_int_equal(table->remote.placement, placement);
    assert_int_equal(table->remote.part, part);
    assert_int_equal(table->remote.rule.parts, PARTS);
    assert_true(table->remote.rule.salt == UINT64_C(0x5bd1e995a1b2c3d4));
    assert_int_equal(table->remote.rule.by_key, by_key);
    assert_ptr_equal(table->table.keys, by_key ? &eb_key_index_remote : NULL);
    assert_null(table->table.rows);
    assert_null(table->table.scales);
    assert_null(table->base);
    assert_null(table->index);
    assert_null(table->chunk_hashes);
}

static void knows_where_rows_are(void **state)
{
    struct eb_table_set set;
    write_parts(*state);
    load_parts(*state, "1", "", &router, &set);
    expect_remote(&set, "rows", EB_PLACEMENT_ROWS, 0, false);
    expect_remote(&set, "keyed", EB_PLACEMENT_ROWS, 0, true);
    expect_remote(&set, "whole", EB_PLACEMENT_WHOLE, 1, false);
    expect_remote(&set, "keyed_whole", EB_PLACEMENT_WHOLE, 1, true);
    assert_int_equal(find_in(&set, "rows")->table.unknown_row, 6);
    assert_int_equal(find_in(&set, "keyed")->table.unknown_row, 2);
    assert_true(find_in(&set, "keyed")->remote.has_unknown_key);
    assert_int_equal(find_in(&set, "keyed")->remote.unknown_key, -8);
    assert_false(find_in(&set, "keyed_whole")->remote.has_unknown_key);
    assert_int_equal(find_in(&set, "whole")->table.unknown_row, -1);
    assert_int_equal(find_in(&set, "keyed_whole")->rank, 1);
    assert_int_equal(find_in(&set, "whole")->rank, 2);
    assert_int_equal(find_in(&set, "whole")->dims[1], 3);
    assert_true(set.is_router);
    assert_int_equal(set.part.parts, PARTS);
    assert_int_equal(set.part.part, 0);
    assert_string_equal(set.lineage, "a line");
    assert_int_not_equal(set.manifest, 0);
    eb_table_set_deinit(&set);
}

/* Expects the member of two tables to be the same, however they lie in memory. */
static void expect_alike(const struct eb_named_table *remote, const struct eb_named_table *here)
{
    struct eb_table table = here->table;
    assert_true(remote->is_remote && !here->is_remote);
    table.rows = NULL;
    table.scales = NULL;
    table.keys = table.keys ? &eb_key_index_remote : NULL;
    assert_memory_equal(&remote->table, &table, sizeof table);
    assert_int_equal(remote->rank, here->rank);
    assert_memory_equal(remote->dims, here->dims, sizeof here->dims);
    assert_true(eb_table_set_copy_bytes(remote) == here->resident_bytes - here->index_bytes);
    assert_int_equal(eb_table_set_copy_bytes(here), here->resident_bytes);
}

static void describes_a_table_alike_wherever_it_is(void **state)
{
    static const struct {
        enum eb_storage storage;
        enum eb_type type;
    } kinds[] = {{EB_STORAGE_F32, EB_F32}, {EB_STORAGE_F64, EB_F64}, {EB_STORAGE_F16, EB_F16},
        {EB_STORAGE_BF16, EB_F32}, {EB_STORAGE_F8_E4M3, EB_BF16}, {EB_STORAGE_INT8, EB_F32},
        {EB_STORAGE_INT4, EB_F16}, {EB_STORAGE_INT2, EB_F32}, {EB_STORAGE_I32, EB_I32},
        {EB_STORAGE_U8, EB_U8}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (uint64_t elements = 0; elements < 140; elements += 33) {
            struct eb_parts_fixture_table alike[3] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
            char name[16];
            struct eb_table_set set;
            for (unsigned k = 0; k < 3; k++) {
                alike[k].placement = (enum eb_placement)k;
                alike[k].storage = kinds[i].storage;
                alike[k].type = kinds[i].type;
                alike[k].rows = 10;
                alike[k].elements = elements;
                alike[k].is_keyed = i % 2 == 0;
                alike[k].has_unknown_row = elements % 2 == 0;
                alike[k].unknown_row = 3;
            }
            snprintf(name, sizeof name, "%zu-%d", i, (int)elements);
            eb_parts_fixture_write(*state, name, PARTS, "", alike, 3);
            load_parts(*state, name, "", &router, &set);
            expect_alike(&set.tables[1], &set.tables[0]);
            expect_alike(&set.tables[2], &set.tables[0]);
            assert_string_equal(set.lineage, "");
            eb_table_set_deinit(&set);
        }
    }
}

static void takes_defaults_from_model_yaml(void **state)
{
    static const char yaml[] =
        "tables: [{name: r, source: rows, missing: skip, default_index: 99, unknown_row: 6},\n"
        "  {name: keyed, default_index: -77, missing: zero, storage: int8},\n"
        "  {name: whole, default_vector: [1, 2, 3], unknown_row: default_vector},\n"
        "  {name: keyed_whole, default_vector: [5], missing: unknown_row,\n"
        "   unknown_row: default_vector}]\n"
        "features: [{name: f, table: r, id_map: modulo, default_index: 0},\n"
        "  {name: g, table: here}, {name: h, table: keyed, default_index: 12345}]\n"
        "groups: [{name: q, features: [f, g]}]\n";
    static const float vector[] = {1, 2, 3};
    struct eb_table_set set;
    write_parts(*state);
    load_parts(*state, "1", yaml, &router, &set);
    const struct eb_named_table *rows = find_in(&set, "r");
    assert_null(eb_table_set_find(&set, "rows"));
    assert_true(rows->missing == EB_MISSING_SKIP && rows->has_default);
    assert_int_equal(rows->default_index, 99);
    assert_int_equal(rows->table.unknown_row, 6);
    const struct eb_named_table *keyed = find_in(&set, "keyed");
    assert_true(keyed->missing == EB_MISSING_ZERO && keyed->has_default);
    assert_int_equal(keyed->default_index, -77);
    const struct eb_named_table *whole = find_in(&set, "whole");
    assert_int_equal(whole->table.unknown_row, EB_ROW_VECTOR);
    assert_ptr_equal(whole->table.vector, whole->vector);
    assert_memory_equal(whole->table.vector, vector, sizeof vector);
    const struct eb_named_table *keyed_whole = find_in(&set, "keyed_whole");
    assert_int_equal(keyed_whole->table.unknown_row, EB_ROW_VECTOR);
    assert_int_equal(*(const int64_t *)keyed_whole->table.vector, 5);
    eb_table_set_deinit(&set);
}

static void loads_where_no_table_is_everywhere(void **state)
{
    struct eb_table_set set;
    struct eb_page_report report;
    eb_parts_fixture_write(*state, "1", PARTS, "", &tables[2], 3);
    load_parts(*state, "1", "", &router, &set);
    assert_int_equal(set.count, 3);
    assert_int_equal(set.bytes, 0);
    assert_int_equal(set.pages.bytes, 0);
    assert_null(set.memory.holds);
    assert_int_not_equal(set.digest, 0);
    assert_false(eb_page_collapse_is_due(&set));
    assert_int_equal(eb_page_report_open(&report, ""), 0);
    eb_page_collapse_recount(&set, &report);
    eb_page_report_close(&report);
    assert_int_equal(atomic_load(&set.bytes_2m), 0);
    eb_table_set_deinit(&set);
}

static void counts_no_more_bytes_than_there_are_numbers(void **state)
{
    static const char yaml[] =
        "format: 1\nparts: 2\nsalt: \"5bd1e995a1b2c3d4\"\ntables:\n"
        "  - {name: t, placement: rows, type: f64, storage: f64, shape: [64],\n"
        "     rows_total: 9223372036854775807,\n"
        "     digests: [\"0000000000000001\", \"0000000000000002\"]}\n";
    static const uint64_t digests[] = {1, 2};
    struct eb_table_set set;
    eb_scratch_write_text(*state, "1/" EB_MANIFEST_NAME, yaml);
    load_parts(
        *state, "1", "tables: [{name: t, default_index: 9223372036854775806}]", &router, &set);
    assert_true(eb_table_set_copy_bytes(&set.tables[0]) == UINT64_MAX);
    assert_true(set.tables[0].table.row_count == INT64_MAX);
    assert_true(set.tables[0].digest == XXH3_64bits(digests, sizeof digests));
    eb_table_set_deinit(&set);
}

static void tells_versions_apart_by_their_remote_tables(void **state)
{
    struct eb_parts_fixture_table other = tables[5];
    struct eb_table_set one;
    struct eb_table_set two;
    struct eb_table_set same;
    other.rows++;
    eb_parts_fixture_write(*state, "1", PARTS, "", &tables[5], 1);
    eb_parts_fixture_write(*state, "2", PARTS, "", &other, 1);
    eb_parts_fixture_write(*state, "3", PARTS, "a", &tables[5], 1);
    load_parts(*state, "1", "", &router, &one);
    load_parts(*state, "2", "", &router, &two);
    load_parts(*state, "3", "", &router, &same);
    assert_true(one.digest != two.digest && one.digest == same.digest);
    assert_true(one.tables[0].digest != two.tables[0].digest);
    assert_true(one.manifest != two.manifest && one.manifest != same.manifest);
    eb_table_set_deinit(&one);
    eb_table_set_deinit(&two);
    eb_table_set_deinit(&same);
}

static void shares_tables_only_with_versions_that_have_the_rows(void **state)
{
    struct eb_parts_fixture_table large = {.name = "t", .rows = LARGE_ROWS, .elements = 8};
    struct eb_table_set remote;
    struct eb_table_set one;
    struct eb_table_set two;
    large.placement = EB_PLACEMENT_WHOLE;
    eb_parts_fixture_write(*state, "1", 1, "", &large, 1);
    large.placement = EB_PLACEMENT_EVERYWHERE;
    eb_parts_fixture_write(*state, "2", 1, "", &large, 1);
    eb_parts_fixture_write(*state, "3", 2, "", &large, 1);
    load_parts(*state, "1", "", &router, &remote);
    load_parts(*state, "2", "", &(struct loaded_as){.is_router = true, .resident = &remote}, &one);
    assert_true(remote.tables[0].digest == one.tables[0].digest);
    assert_int_equal(one.memory.shared_bytes, 0);
    assert_non_null(one.tables[0].base);
    load_parts(*state, "3", "", &(struct loaded_as){.is_router = true, .resident = &one}, &two);
    assert_ptr_equal(two.tables[0].base, one.tables[0].base);
    assert_int_equal(two.tables[0].placement, EB_PLACEMENT_EVERYWHERE);
    eb_table_set_deinit(&remote);
    eb_table_set_deinit(&one);
    eb_table_set_deinit(&two);
}

/* ---- which tables ---- */

static void leaves_out_tables_by_patterns(void **state)
{
    struct eb_table_set set;
    write_parts(*state);
    load_parts(*state, "1", "exclude: [keyed*, here]", &router, &set);
    assert_int_equal(set.count, 3);
    assert_string_equal(set.tables[0].name, "here_keys");
    assert_string_equal(set.tables[1].name, "rows");
    assert_string_equal(set.tables[2].name, "whole");
    assert_int_equal(set.notes.patterns.count, 0);
    eb_table_set_deinit(&set);
    load_parts(*state, "1", "only: [rows]", &router, &set);
    assert_int_equal(set.count, 1);
    assert_int_equal(set.bytes, 0);
    eb_table_set_deinit(&set);
    expect_parts_unloaded(*state, "1", "only: [x]", &router, "leave out all of its 6 tables");
}

static void loads_parts_without_the_tables_left_out(void **state)
{
    struct loaded_as as = {.part = {1, PARTS}};
    struct eb_table_set set;
    write_parts(*state);
    load_parts(*state, "1", "exclude: [whole, keyed]", &as, &set);
    assert_int_equal(set.count, 2);
    assert_string_equal(set.tables[0].name, "keyed_whole");
    assert_int_equal(set.tables[0].placement, EB_PLACEMENT_WHOLE);
    assert_string_equal(set.tables[1].name, "rows");
    assert_int_equal(set.tables[1].placement, EB_PLACEMENT_ROWS);
    assert_int_equal(set.tables[1].part, 2);
    assert_false(set.is_router || set.tables[0].is_remote || set.tables[1].is_remote);
    assert_int_equal(set.part.part, 1);
    assert_int_equal(set.part.parts, PARTS);
    assert_string_equal(set.lineage, "a line");
    assert_int_equal(set.notes.patterns.count, 0);
    eb_table_set_deinit(&set);
}

/* ---- what is refused ---- */

static void refuses_directories_that_are_not_in_parts(void **state)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_write_npy(
        *state, "1/t.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8);
    expect_parts_unloaded(*state, "1", "", &router,
        "/1/manifest.yaml: it is missing, so this is not a complete version in parts; make one "
        "with embag split and copy its manifest last, or start the server without");
    eb_scratch_write_text(*state, "1/" EB_MANIFEST_NAME, "format: 1\nparts: 1\nfiles: []\n");
    expect_parts_unloaded(*state, "1", "", &router, "this version is not in parts");
    eb_scratch_write_text(*state, "1/" EB_MANIFEST_NAME, "format: 1\ntables: []\n");
    expect_parts_unloaded(*state, "1", "", &router, "/1/manifest.yaml: parts: ''");
    expect_parts_unloaded(*state, "none", "", &router, "/none/manifest.yaml: it is missing");
    write_parts(*state);
    expect_parts_unloaded(
        *state, "1", "", &router, "t.npy: the manifest does not list this file here");
    eb_scratch_path(*state, "1/t.npy", path);
    assert_int_equal(unlink(path), 0);
    expect_parts_unloaded(*state, "1", "", &(struct loaded_as){.is_router = false}, "parts");
}

static void refuses_other_files_than_the_manifest_lists(void **state)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_packed_format format = eb_packed_fixture_format(7, 8);
    write_parts(*state);
    eb_scratch_path(*state, "1/here.embag", path);
    assert_int_equal(unlink(path), 0);
    expect_parts_unloaded(
        *state, "1", "", &router, "table 'here' is missing, but the manifest lists it");
    eb_packed_fixture_write(*state, "1/rows.embag", &format);
    expect_parts_unloaded(
        *state, "1", "", &router, "rows.embag: the manifest does not list this file here");
    eb_scratch_path(*state, "1/rows.embag", path);
    assert_int_equal(unlink(path), 0);
    format.packing = 9;
    eb_packed_fixture_write(*state, "1/here.embag", &format);
    expect_parts_unloaded(*state, "1", "", &router, "here.embag: its digest is");
}

static void refuses_descriptions_that_contradict_the_manifest(void **state)
{
    static const struct {
        const char *yaml;
        const char *part;
    } cases[] = {
        {"tables: [{name: rows, unknown_row: 7}]",
            "manifest.yaml: model.yaml: table 'rows': unknown_row 7 is not the one that"},
        {"tables: [{name: whole, unknown_row: 0}]", "table 'whole': unknown_row 0 is not"},
        {"tables: [{name: rows, storage: f32}]",
            "table 'rows': storage f32: a packed table cannot be converted"},
        {"tables: [{name: whole, format: fbgemm_int8}]", "format is not possible"},
        {"tables: [{name: rows, default_index: 100}]",
            "default_index 100 is neither one of its 100 rows"},
        {"tables: [{name: whole, missing: unknown_row}]", "needs an unknown_row"},
        {"tables: [{name: whole, default_vector: [1, 2]}]", "default_vector"},
        {"tables: [{name: x}]", "table 'x': its source 'x' is not in this version"},
        {"tables: [{name: here, source: rows}]", "here.embag: table 'here' is also in "},
        {"tables: [{name: rows, source: whole}]", "manifest.yaml: table 'rows' is also in "},
        {"features: [{name: f, table: x}]", "table 'x' is not in this version"},
        {"features: [{name: whole, table: rows}]", "has the name of a table"},
        {"features: [{name: f, table: keyed, id_map: modulo}]", "is keyed"},
        {"features: [{name: f, table: rows, default_index: 100}]", "neither one of the 100 rows"},
        {"features: [{name: f, table: here}, {name: g, table: keyed_whole}]\n"
         "groups: [{name: g, features: [f, g]}]",
            "'g' is of type i64"},
    };
    write_parts(*state);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_parts_unloaded(*state, "1", cases[i].yaml, &router, cases[i].part);
    }
}

static void refuses_names_and_rows_that_are_too_long(void **state)
{
    static const struct eb_parts_fixture_table wide = {
        .name = "wide", .placement = EB_PLACEMENT_ROWS, .rows = 2, .elements = ROW_BYTES_MAX + 1};
    static const struct eb_parts_fixture_table fits = {
        .name = "fits", .placement = EB_PLACEMENT_ROWS, .rows = 2, .elements = ROW_BYTES_MAX};
    static const struct eb_parts_fixture_table named = {
        .name = "twelve_bytes", .placement = EB_PLACEMENT_WHOLE, .rows = 2, .elements = 1};
    struct eb_table_set set;
    eb_parts_fixture_write(*state, "1", PARTS, "", &wide, 1);
    expect_parts_unloaded(*state, "1", "", &router,
        "/1/manifest.yaml: rows of table 'wide' have 4097 bytes, more than row_bytes_max");
    eb_parts_fixture_write(*state, "2", PARTS, "", &fits, 1);
    load_parts(*state, "2", "", &router, &set);
    eb_table_set_deinit(&set);
    eb_parts_fixture_write(*state, "3", PARTS, "", &named, 1);
    expect_parts_unloaded(
        *state, "3", "", &router, "/3/manifest.yaml: the table name 'twelve_bytes' is");
}

EB_TEST_GROUP(remote_tables)
{
#define WITH_SCRATCH(test)                                                                         \
    cmocka_unit_test_setup_teardown(test, eb_scratch_set_up, eb_scratch_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_SCRATCH(has_rows_only_of_tables_everywhere),
        WITH_SCRATCH(knows_where_rows_are),
        WITH_SCRATCH(describes_a_table_alike_wherever_it_is),
        WITH_SCRATCH(takes_defaults_from_model_yaml),
        WITH_SCRATCH(loads_where_no_table_is_everywhere),
        WITH_SCRATCH(counts_no_more_bytes_than_there_are_numbers),
        WITH_SCRATCH(tells_versions_apart_by_their_remote_tables),
        WITH_SCRATCH(shares_tables_only_with_versions_that_have_the_rows),
        WITH_SCRATCH(leaves_out_tables_by_patterns),
        WITH_SCRATCH(loads_parts_without_the_tables_left_out),
        WITH_SCRATCH(refuses_directories_that_are_not_in_parts),
        WITH_SCRATCH(refuses_other_files_than_the_manifest_lists),
        WITH_SCRATCH(refuses_descriptions_that_contradict_the_manifest),
        WITH_SCRATCH(refuses_names_and_rows_that_are_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
