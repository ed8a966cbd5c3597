#include "server/formats/parts_manifest.h"

#include "server/formats/manifest.h"
#include "server/formats/packed_format.h"
#include "server/formats/table_file.h"

#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SALT "salt: 5bd1e995a1b2c3d4\n"
#define TOP "format: 1\nparts: 2\n" SALT
#define HEAD TOP "tables:\n"
#define DIGEST "0123456789abcdef"
#define REST "type: f32, storage: int8, shape: [8], rows_total: 9, digests: [" DIGEST "]}"
#define TABLE "{name: t, placement: everywhere, " REST

static void parse_parts(const char *yaml, struct eb_parts_manifest *manifest)
{
    struct eb_failure failure = {.text = ""};
    if (!eb_parts_manifest_parse((const uint8_t *)yaml, strlen(yaml), manifest, &failure)) {
        fail_msg("%s: %s", yaml, failure.text);
    }
}

static void expect_parts_refused(const char *yaml, size_t yaml_bytes, const char *part)
{
    static const struct eb_parts_manifest empty;
    struct eb_parts_manifest manifest;
    struct eb_failure failure = {.text = ""};
    if (eb_parts_manifest_parse((const uint8_t *)yaml, yaml_bytes, &manifest, &failure)) {
        fail_msg("accepted without \"%s\": %.400s", part, yaml);
    }
    assert_memory_equal(&manifest, &empty, sizeof empty);
    eb_scratch_expect(failure.text, part);
}

static const char example[] =
    "format: 1\n"
    "parts: 3\n"
    "salt: \"5bd1e995a1b2c3d4\"     # 16 hex digits\n"
    "lineage: dlrm-2026-11\n"
    "tables:\n"
    "  - {name: \"t20\", placement: rows, keyed: true, unknown_row: 7,\n"
    "     unknown_key: -9223372036854775808, type: f32, storage: int8, shape: [128], rows_total: "
    "40000000,\n"
    "     digests: [\"0000000000000001\", \"0000000000000002\", \"ffffffffffffffff\"]}\n"
    "  - {name: \"t01\", placement: everywhere, type: f32, storage: int8, shape: [128],\n"
    "     rows_total: 2000, digests: [\"0f1e2d3c4b5a6978\"]}\n"
    "  - {name: \"t07\", placement: whole, part: 2, type: i64, storage: i64, keyed: true,\n"
    "     rows_total: 9223372036854775807, digests: [\"0f1e2d3c4b5a6979\"]}\n";

static void reads_the_tables_sorted_by_name(void **state)
{
    (void)state;
    struct eb_parts_manifest manifest;
    parse_parts(example, &manifest);
    assert_int_equal(manifest.parts, 3);
    assert_true(manifest.salt == UINT64_C(0x5bd1e995a1b2c3d4));
    assert_string_equal(manifest.lineage, "dlrm-2026-11");
    assert_true(manifest.digest == eb_packed_format_checksum(example, strlen(example)));
    assert_int_equal(manifest.count, 3);
    const struct eb_parts_table *everywhere = &manifest.tables[0];
    assert_string_equal(everywhere->name, "t01");
    assert_int_equal(everywhere->placement, EB_PLACEMENT_EVERYWHERE);
    assert_false(everywhere->is_keyed || everywhere->has_unknown_row);
    assert_false(everywhere->has_unknown_key);
    assert_true(everywhere->type == EB_F32 && everywhere->storage == EB_STORAGE_INT8);
    assert_int_equal(everywhere->shape_count, 1);
    assert_int_equal(everywhere->shape[0], 128);
    assert_int_equal(everywhere->rows_total, 2000);
    assert_int_equal(everywhere->digest_count, 1);
    const struct eb_parts_table *whole = eb_parts_manifest_find(&manifest, "t07");
    assert_ptr_equal(whole, &manifest.tables[1]);
    assert_int_equal(whole->placement, EB_PLACEMENT_WHOLE);
    assert_int_equal(whole->part, 2);
    assert_true(whole->is_keyed && whole->type == EB_I64);
    assert_int_equal(whole->shape_count, 0);
    assert_true(whole->rows_total == INT64_MAX);
    const struct eb_parts_table *rows = eb_parts_manifest_find(&manifest, "t20");
    assert_ptr_equal(rows, &manifest.tables[2]);
    assert_int_equal(rows->placement, EB_PLACEMENT_ROWS);
    assert_true(rows->has_unknown_row && rows->unknown_row == 7);
    assert_true(rows->has_unknown_key && rows->unknown_key == INT64_MIN);
    assert_int_equal(rows->digest_count, 3);
    assert_true(rows->digests[1] == 2 && rows->digests[2] == UINT64_MAX);
    assert_null(eb_parts_manifest_find(&manifest, "t2"));
    eb_parts_manifest_deinit(&manifest);
    assert_null(eb_parts_manifest_find(&manifest, "t01"));
}

static void gives_the_rule_of_its_parts(void **state)
{
    (void)state;
    struct eb_parts_manifest manifest;
    char folder[EB_PART_FOLDER_BYTES];
    parse_parts(example, &manifest);
    for (int by_key = 0; by_key < 2; by_key++) {
        struct eb_part_rule rule = eb_parts_manifest_rule(&manifest, by_key);
        assert_int_equal(rule.parts, 3);
        assert_int_equal(rule.by_key, by_key);
        assert_true(rule.salt == manifest.salt);
    }
    eb_parts_manifest_deinit(&manifest);
    eb_part_folder_name(3, 16, folder);
    assert_string_equal(folder, "part-00003-of-00016");
    eb_part_folder_name(EB_PARTS_MAX - 1, EB_PARTS_MAX, folder);
    assert_string_equal(folder, "part-04095-of-04096");
}

static void refuses_a_wrong_head(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        const char *part;
    } cases[] = {
        {"", "the file is empty; expected format, parts, salt and tables"},
        {"parts: 2\n" SALT "tables: [" TABLE "]", "format: is missing; expected 1"},
        {"format: 2\nparts: 2\n" SALT "tables: [" TABLE "]", "format: '2' is not supported"},
        {"format: 1\n" SALT "tables: [" TABLE "]", "parts: '' is not a number from 1 to 4096"},
        {"format: 1\nparts: 0\n" SALT "tables: [" TABLE "]", "parts: '0' is not a number of parts"},
        {"format: 1\nparts: 4097\n" SALT "tables: [" TABLE "]", "parts: '4097' is not a number"},
        {"format: 1\nparts: -1\n" SALT "tables: [" TABLE "]", "parts: '-1' is not a number"},
        {"format: 1\nparts: 2\ntables: [" TABLE "]", "salt: '' is not a number of 16 hex digits"},
        {"format: 1\nparts: 2\nsalt: 0x5bd1e995\ntables: [" TABLE "]", "salt: '0x5bd1e995' is not"},
        {"format: 1\nparts: 2\nsalt: \"0000000000000000\"\ntables: [" TABLE "]",
            "salt: '0000000000000000' is 0"},
        {TOP "lineage: ''\ntables: [" TABLE "]", "lineage: '' is empty"},
        {TOP "lineage: \"a\\n\"\ntables: [" TABLE "]", "lineage: 'a"},
        {TOP, "tables: is missing or empty; expected at least one table"},
        {TOP "tables: []", "tables: is missing or empty"},
        {TOP "extra: 1\ntables: [" TABLE "]", "extra"},
        {HEAD "- " TABLE "\n- " TABLE, "tables: 't' is listed twice"},
        {"format: 1\nparts: 1\nfiles: [{name: a.npy, bytes: 1, xxh3_64: " DIGEST "}]",
            "this version is not in parts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_parts_refused(cases[i].yaml, strlen(cases[i].yaml), cases[i].part);
    }
}

/* Expects that `entry`, a table after a good one, is refused. */
static void expect_table_refused(const char *entry, const char *part)
{
    char yaml[4096];
    char expected[512];
    snprintf(yaml, sizeof yaml, HEAD "- " TABLE "\n- %s\n", entry);
    snprintf(expected, sizeof expected, "tables[1].%s", part);
    expect_parts_refused(yaml, strlen(yaml), expected);
}

static void refuses_wrong_names_and_placements(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        const char *part;
    } cases[] = {
        {"{placement: everywhere, " REST, "name: is missing"},
        {"{name: '', placement: everywhere, " REST, "name: '' is empty"},
        {"{name: a/b, placement: everywhere, " REST, "name: 'a/b' has a slash"},
        {"{name: .a, placement: everywhere, " REST, "name: '.a' begins with a dot"},
        {"{name: x-00000-of-00002, placement: everywhere, " REST,
            "name: 'x-00000-of-00002' ends like the name of a piece"},
        {"{name: a, " REST, "placement: is missing; expected one of everywhere, whole and rows"},
        {"{name: a, placement: nowhere, " REST, "placement: 'nowhere' is not one of everywhere"},
        {"{name: a, placement: whole, " REST, "part: is missing; expected the number of a part"},
        {"{name: a, placement: whole, part: 2, " REST, "part: '2' is not one of the parts"},
        {"{name: a, placement: whole, part: -1, " REST, "part: '-1' is not the number of a part"},
        {"{name: a, placement: whole, part: 4294967296, " REST, "part: '4294967296' is not"},
        {"{name: a, placement: everywhere, part: 0, " REST, "part: '0' is not valid here"},
        {"{name: a, placement: rows, part: 1, " REST, "part: '1' is not valid here"},
        {"{name: a, placement: rows, " REST, "digests: there are 1; expected 2"},
        {"{name: a, placement: everywhere, type: f32, storage: f32, rows_total: 1}",
            "digests: is missing"},
        {"{name: a, placement: everywhere, type: f32, storage: f32, rows_total: 1, digests: []}",
            "digests: is missing"},
        {"{name: a, placement: everywhere, type: f32, storage: f32, rows_total: 1, "
         "digests: [" DIGEST ", " DIGEST "]}",
            "digests: there are 2; expected 1"},
        {"{name: a, placement: rows, type: f32, storage: f32, rows_total: 1, "
         "digests: [" DIGEST ", 0123]}",
            "digests[1]: '0123' is not a digest; expected 16 hex digits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_table_refused(cases[i].entry, cases[i].part);
    }
}

static void refuses_wrong_types_and_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        const char *part;
    } cases[] = {
        {"storage: f32, rows_total: 1", "type: is missing; expected a type such as f32"},
        {"type: unspecified, storage: f32, rows_total: 1", "type: 'unspecified' is not a type"},
        {"type: int8, storage: int8, rows_total: 1", "type: 'int8' is not a type such as f32"},
        {"type: f32, rows_total: 1", "storage: is missing"},
        {"type: f32, storage: int3, rows_total: 1", "storage: 'int3' is not a storage"},
        {"type: f64, storage: int8, rows_total: 1",
            "storage: 'int8' cannot hold a table of type f64"},
        {"type: f32, storage: f32, shape: [0], rows_total: 1", "shape[0]: '0'; expected 1 to"},
        {"type: f32, storage: f32, shape: [4294967296], rows_total: 1", "shape[0]: '4294967296'"},
        {"type: f32, storage: f32, shape: [65536, 65536], rows_total: 1", "shape[1]: '65536'"},
        {"type: f32, storage: f32, shape: [2, x], rows_total: 1",
            "shape[1]: 'x' is not a number below 2^64"},
        {"type: f32, storage: f32", "rows_total: is missing"},
        {"type: f32, storage: f32, rows_total: 9223372036854775808",
            "rows_total: '9223372036854775808' is too large; expected at most 9223372036854775807"},
        {"type: f32, storage: f32, rows_total: 18446744073709551616",
            "rows_total: '18446744073709551616' is not a number below 2^64"},
        {"type: f32, storage: f32, rows_total: 5, unknown_row: 5",
            "unknown_row: '5' is not one of the 5 rows"},
        {"type: f32, storage: f32, rows_total: 5, unknown_row: -1", "unknown_row: '-1' is not"},
        {"type: f32, storage: f32, rows_total: 5, keyed: true, unknown_row: 1, unknown_key: 1-",
            "unknown_key: '1-' is not a key"},
        {"type: f32, storage: f32, rows_total: 5, keyed: true, unknown_row: 1, "
         "unknown_key: 9223372036854775808",
            "unknown_key: '9223372036854775808' is not a key; expected -2^63"},
        {"type: f32, storage: f32, rows_total: 5, keyed: true, unknown_row: 1, "
         "unknown_key: -9223372036854775809",
            "unknown_key: '-9223372036854775809' is not a key"},
        {"type: f32, storage: f32, rows_total: 5, keyed: true, unknown_key: 3",
            "unknown_key: '3' is the key of no row; expected"},
        {"type: f32, storage: f32, rows_total: 5, unknown_row: 1, unknown_key: 3",
            "unknown_key: '3' is the key of no row; expected"},
        {"type: f32, storage: f32, rows_total: 5, keyed: yes", "keyed: 'yes' is not true or false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char entry[1024];
        snprintf(entry, sizeof entry, "{name: a, placement: everywhere, %s, digests: [" DIGEST "]}",
            cases[i].fields);
        expect_table_refused(entry, cases[i].part);
    }
    expect_parts_refused(HEAD "- {name: a, shape: [1, 1, 1, 1, 1, 1, 1, 1], placement: everywhere}",
        strlen(HEAD "- {name: a, shape: [1, 1, 1, 1, 1, 1, 1, 1], placement: everywhere}"),
        "shape");
    expect_parts_refused(HEAD "- {name: a, placement: everywhere, mode: 1}",
        strlen(HEAD "- {name: a, placement: everywhere, mode: 1}"), "mode");
}

static void takes_values_at_their_limits(void **state)
{
    (void)state;
    struct eb_parts_manifest manifest;
    char name[EB_PARTS_NAME_BYTES_MAX + 2];
    char yaml[2048];
    for (unsigned more = 0; more < 2; more++) {
        memset(name, 'n', sizeof name);
        name[EB_PARTS_NAME_BYTES_MAX + more] = '\0';
        snprintf(yaml, sizeof yaml, HEAD "- {name: %s, placement: everywhere, " REST, name);
        if (more == 0) {
            parse_parts(yaml, &manifest);
            eb_parts_manifest_deinit(&manifest);
        } else {
            expect_parts_refused(yaml, strlen(yaml), "tables[0].name: 'nnn");
        }
        snprintf(yaml, sizeof yaml, TOP "lineage: %s\ntables: [" TABLE "]", name);
        if (more == 0) {
            parse_parts(yaml, &manifest);
            assert_string_equal(manifest.lineage, name);
            eb_parts_manifest_deinit(&manifest);
        } else {
            expect_parts_refused(yaml, strlen(yaml), "lineage: 'nnn");
        }
    }
    parse_parts(HEAD "- {name: a, placement: whole, part: 1, type: f32, storage: f32, "
                     "shape: [65535, 65537, 1, 1, 1, 1, 1], rows_total: 5, keyed: true, "
                     "unknown_row: 4, unknown_key: 9223372036854775807, digests: [" DIGEST "]}",
        &manifest);
    assert_int_equal(manifest.tables[0].shape_count, EB_TENSOR_RANK_MAX - 1);
    assert_true(manifest.tables[0].unknown_key == INT64_MAX);
    eb_parts_manifest_deinit(&manifest);
}

/* Not with a sanitizer: libcyaml makes room for one table after the other, and a sanitizer's
 * realloc copies all of them each time. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HAS_MANY_TABLES

/* Returns a manifest of `count` tables with short names, which the caller frees. */
static char *list_many_tables(size_t count)
{
    char *yaml = malloc(sizeof HEAD + count * 128);
    assert_non_null(yaml);
    size_t used = (size_t)sprintf(yaml, HEAD);
    for (size_t i = 0; i < count; i++) {
        used += (size_t)sprintf(yaml + used,
            "- {name: t%zu, placement: everywhere, type: f32, storage: f32, rows_total: 1, "
            "digests: [" DIGEST "]}\n",
            i);
    }
    return yaml;
}

static void limits_the_number_of_tables(void **state)
{
    (void)state;
    struct eb_parts_manifest manifest;
    char *yaml = list_many_tables(EB_PARTS_TABLES_MAX);
    parse_parts(yaml, &manifest);
    assert_int_equal(manifest.count, EB_PARTS_TABLES_MAX);
    assert_non_null(eb_parts_manifest_find(&manifest, "t65535"));
    eb_parts_manifest_deinit(&manifest);
    free(yaml);
    yaml = list_many_tables(EB_PARTS_TABLES_MAX + 1);
    expect_parts_refused(yaml, strlen(yaml), "tables");
    free(yaml);
}

#endif

static void limits_the_bytes_of_a_manifest(void **state)
{
    (void)state;
    struct eb_parts_manifest manifest;
    struct eb_failure failure = {.text = ""};
    char *yaml = malloc(EB_MANIFEST_BYTES_MAX + 2);
    assert_non_null(yaml);
    memset(yaml, '\n', EB_MANIFEST_BYTES_MAX + 1);
    memcpy(yaml, HEAD "- " TABLE, strlen(HEAD "- " TABLE));
    assert_true(
        eb_parts_manifest_parse((uint8_t *)yaml, EB_MANIFEST_BYTES_MAX, &manifest, &failure));
    eb_parts_manifest_deinit(&manifest);
    expect_parts_refused(yaml, EB_MANIFEST_BYTES_MAX + 1, "larger than 16777216 bytes");
    free(yaml);
}

static void is_told_from_a_list_of_files(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        bool is_in_parts;
    } cases[] = {
        {"tables:", true},
        {"a: 1\ntables: []", true},
        {"tables", false},
        {" tables:", false},
        {"a: tables:\n", false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* A copy of the exact size reveals reads past the end. */
        size_t bytes = strlen(cases[i].yaml);
        uint8_t *yaml = malloc(bytes + (bytes == 0));
        assert_non_null(yaml);
        memcpy(yaml, cases[i].yaml, bytes);
        assert_int_equal(eb_parts_manifest_is(yaml, bytes), cases[i].is_in_parts);
        free(yaml);
    }
}

static void expect_no_list_of_files(const char *yaml, const char *part)
{
    struct eb_manifest manifest;
    struct eb_failure failure = {.text = ""};
    assert_false(eb_manifest_parse((const uint8_t *)yaml, strlen(yaml), &manifest, &failure));
    eb_scratch_expect(failure.text, part);
}

static void is_no_list_of_files(void **state)
{
    (void)state;
    expect_no_list_of_files(example, "this version is in 3 parts; start servers with --part K/3, "
                                     "or a router with --route");
    expect_no_list_of_files("format: 1\nparts: 4096\ntables: []", "in 4096 parts");
    expect_no_list_of_files("format: 1\nparts: 4097\ntables: []", "this version is in parts; ");
    expect_no_list_of_files("tables: []", "this version is in parts; ");
    expect_no_list_of_files("tables: []\nparts:", "this version is in parts; ");
}

static void reads_back_the_parts_that_it_writes(void **state)
{
    (void)state;
    static const char expected[] =
        "format: 1\nparts: 3\nsalt: \"5bd1e995a1b2c3d4\"\nlineage: \"dlrm-2026-11\"\ntables:\n"
        "  - {name: \"t01\", placement: everywhere, type: f32, storage: int8, shape: [128], "
        "rows_total: 2000, digests: [\"0f1e2d3c4b5a6978\"]}\n"
        "  - {name: \"t07\", placement: whole, part: 2, keyed: true, type: i64, storage: i64, "
        "rows_total: 9223372036854775807, digests: [\"0f1e2d3c4b5a6979\"]}\n"
        "  - {name: \"t20\", placement: rows, keyed: true, unknown_row: 7, "
        "unknown_key: -9223372036854775808, type: f32, storage: int8, "
        "shape: [128], rows_total: 40000000, "
        "digests: [\"0000000000000001\", \"0000000000000002\", \"ffffffffffffffff\"]}\n";
    struct eb_parts_manifest manifest;
    struct eb_failure failure = {.text = ""};
    size_t bytes;
    parse_parts(example, &manifest);
    char *text = eb_parts_manifest_write(&manifest, &bytes, &failure);
    assert_non_null(text);
    assert_int_equal(bytes, strlen(text));
    assert_string_equal(text, expected);
    eb_parts_manifest_deinit(&manifest);
    parse_parts(text, &manifest);
    char *again = eb_parts_manifest_write(&manifest, &bytes, &failure);
    assert_non_null(again);
    assert_string_equal(again, text);
    eb_parts_manifest_deinit(&manifest);
    free(again);
    free(text);
}

/* A table that can be written. */
static struct eb_parts_table make_table(char *name, uint64_t *digests)
{
    return (struct eb_parts_table){.name = name,
        .type = EB_F32,
        .storage = EB_STORAGE_F32,
        .rows_total = 3,
        .digest_count = 1,
        .digests = digests};
}

static void quotes_names(void **state)
{
    (void)state;
    char *names[] = {"\\0", "a \"quoted\\\" # name", "line \u2028 separator", "yes", "\ufeff"};
    uint64_t digests[] = {0};
    struct eb_parts_table tables[sizeof names / sizeof names[0]];
    size_t count = sizeof names / sizeof names[0];
    struct eb_failure failure = {.text = ""};
    struct eb_parts_manifest back;
    size_t bytes;
    for (size_t i = 0; i < count; i++) {
        tables[i] = make_table(names[i], digests);
    }
    /* Bytes are compared as unsigned, so "line" comes before "yes". */
    struct eb_parts_manifest manifest = {
        .parts = 1, .salt = 1, .lineage = "a/b \\0", .count = count, .tables = tables};
    char *text = eb_parts_manifest_write(&manifest, &bytes, &failure);
    if (!text) {
        fail_msg("%s", failure.text);
    }
    parse_parts(text, &back);
    free(text);
    assert_string_equal(back.lineage, "a/b \\0");
    assert_int_equal(back.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(back.tables[i].name, names[i]);
    }
    eb_parts_manifest_deinit(&back);
}

static void expect_not_written(const struct eb_parts_manifest *manifest, const char *part)
{
    struct eb_failure failure = {.text = ""};
    size_t bytes;
    assert_null(eb_parts_manifest_write(manifest, &bytes, &failure));
    eb_scratch_expect(failure.text, part);
}

/* Expects that two tables, of which one field of the second is changed, are not written. */
#define EXPECT_NOT_WRITTEN(field, value, part)                                                     \
    do {                                                                                           \
        uint64_t digests_[] = {1, 2};                                                              \
        struct eb_parts_table tables_[] = {make_table("a", digests_), make_table("b", digests_)};  \
        struct eb_parts_manifest manifest_ = {                                                     \
            .parts = 2, .salt = 1, .lineage = "", .count = 2, .tables = tables_};                  \
        manifest_.field = (value);                                                                 \
        expect_not_written(&manifest_, (part));                                                    \
    } while (0)

static void does_not_write_what_it_would_not_read(void **state)
{
    (void)state;
    EXPECT_NOT_WRITTEN(parts, 0, "parts: '0'");
    EXPECT_NOT_WRITTEN(parts, EB_PARTS_MAX + 1, "parts: '4097'");
    EXPECT_NOT_WRITTEN(salt, 0, "salt: '0000000000000000' is 0");
    EXPECT_NOT_WRITTEN(lineage, "a\n", "lineage: 'a");
    EXPECT_NOT_WRITTEN(count, 0, "0 tables cannot be listed; expected 1 to 65536");
    EXPECT_NOT_WRITTEN(count, EB_PARTS_TABLES_MAX + 1, "65537 tables cannot be listed");
    EXPECT_NOT_WRITTEN(tables[1].name, "a", "tables: 'a' is listed twice");
    EXPECT_NOT_WRITTEN(tables[1].name, "A", "tables[1].name: 'A' is not in order");
    EXPECT_NOT_WRITTEN(tables[1].name, "b-00000-of-00001", "ends like the name of a piece");
    EXPECT_NOT_WRITTEN(tables[1].placement, EB_PLACEMENT_COUNT, "tables[1].placement: '3'");
    EXPECT_NOT_WRITTEN(tables[1].placement, EB_PLACEMENT_ROWS, "tables[1].digests: there are 1");
    EXPECT_NOT_WRITTEN(tables[1].part, 1, "tables[1].part: '1' is given for a table placed");
    EXPECT_NOT_WRITTEN(tables[1].type, EB_TYPE_COUNT, "tables[1].type: '13' is not a type");
    EXPECT_NOT_WRITTEN(tables[1].storage, EB_STORAGE_COUNT, "tables[1].storage");
    EXPECT_NOT_WRITTEN(tables[1].storage, EB_STORAGE_F64, "tables[1].storage: 'f64' cannot hold");
    EXPECT_NOT_WRITTEN(tables[1].shape_count, EB_TENSOR_RANK_MAX, "tables[1].shape: has 8 dims");
    EXPECT_NOT_WRITTEN(tables[1].shape_count, 1, "tables[1].shape[0]: '0'");
    EXPECT_NOT_WRITTEN(tables[1].rows_total, UINT64_C(1) << 63, "tables[1].rows_total");
    EXPECT_NOT_WRITTEN(tables[1].digest_count, 2, "tables[1].digests: there are 2; expected 1");
}

static void fails_when_memory_runs_out(void **state)
{
    (void)state;
    struct eb_parts_manifest manifest;
    bool is_good = false;
    unsigned tries = 0;
    while (!is_good) {
        struct eb_failure failure = {.text = ""};
        eb_faults_fail_allocation(++tries);
        is_good =
            eb_parts_manifest_parse((const uint8_t *)example, strlen(example), &manifest, &failure);
        eb_faults_fail_allocation(0);
        assert_int_equal(failure.is_transient, !is_good);
        if (!is_good) {
            eb_scratch_expect(failure.text, "out of memory");
            assert_null(manifest.tables);
            assert_null(manifest.lineage);
        }
    }
    eb_parts_manifest_deinit(&manifest);
    assert_true(tries > 5);
}

static void reads_an_open_file(void **state)
{
    (void)state;
    struct eb_scratch *scratch = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_table_file file;
    struct eb_parts_manifest manifest;
    struct eb_failure failure = {.text = ""};
    eb_scratch_write(scratch, EB_MANIFEST_NAME, example, strlen(example));
    eb_scratch_path(scratch, EB_MANIFEST_NAME, path);
    assert_true(eb_table_file_open(path, &file, &failure));
    char *yaml;
    assert_true(eb_parts_manifest_read(&file, &manifest, &yaml, &failure));
    assert_int_equal(manifest.count, 3);
    assert_string_equal(yaml, example);
    free(yaml);
    eb_parts_manifest_deinit(&manifest);
    file.bytes = EB_MANIFEST_BYTES_MAX + 1;
    assert_false(eb_parts_manifest_read(&file, &manifest, &yaml, &failure));
    assert_null(yaml);
    eb_scratch_expect(failure.text, "larger than 16777216 bytes");
    assert_null(manifest.tables);
    eb_table_file_close(&file);
}

EB_TEST_GROUP(parts_manifest)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_tables_sorted_by_name),
        cmocka_unit_test(gives_the_rule_of_its_parts),
        cmocka_unit_test(refuses_a_wrong_head),
        cmocka_unit_test(refuses_wrong_names_and_placements),
        cmocka_unit_test(refuses_wrong_types_and_shapes),
        cmocka_unit_test(takes_values_at_their_limits),
#ifdef HAS_MANY_TABLES
        cmocka_unit_test(limits_the_number_of_tables),
#endif
        cmocka_unit_test(limits_the_bytes_of_a_manifest),
        cmocka_unit_test(is_told_from_a_list_of_files),
        cmocka_unit_test(is_no_list_of_files),
        cmocka_unit_test(reads_back_the_parts_that_it_writes),
        cmocka_unit_test(quotes_names),
        cmocka_unit_test(does_not_write_what_it_would_not_read),
        cmocka_unit_test(fails_when_memory_runs_out),
        cmocka_unit_test_setup_teardown(
            reads_an_open_file, eb_scratch_set_up, eb_scratch_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
