#include "server/tables/served_record.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

/* Returns a record of one model with two versions. All of it is static. */
static struct eb_served_record make_sample(void)
{
    static struct eb_served_table tables[] = {
        {.name = "users", .unknown_row = -1, .file = "0123456789abcdef.t"},
        {.name = "a \"b\"", .unknown_row = 5, .file = "00000000000000ff.s", .slot = 3},
    };
    static struct eb_served_version versions[] = {
        {.version = UINT64_MAX,
            .digest = 0xfedcba9876543210,
            .is_complete = true,
            .model_yaml = "tables:\n  - {name: users}\n",
            .table_count = 2,
            .tables = tables},
        {.version = 7,
            .manifest_yaml = "format: 1\nparts: 3\n",
            .part = {.part = 2, .parts = 3},
            .table_count = 0,
            .tables = tables},
        {.version = 6,
            .manifest_yaml = "format: 1\nparts: 4\n",
            .part = {.parts = 4},
            .is_router = true,
            .table_count = 0,
            .tables = tables},
    };
    static struct eb_served_model models[] = {
        {.name = "ranking", .version_count = 3, .versions = versions}};
    return (struct eb_served_record){.model_count = 1, .models = models};
}

static bool parse(const void *bytes, size_t size)
{
    struct eb_served_record record;
    struct eb_failure failure = {.text = ""};
    bool is_good = eb_served_record_parse(bytes, size, &record, &failure);
    assert_true(is_good || (failure.text[0] != '\0' && record.model_count == 0));
    eb_served_record_deinit(&record);
    return is_good;
}

static void parses_what_it_encoded(void **state)
{
    (void)state;
    struct eb_served_record sample = make_sample();
    struct eb_served_record record;
    struct eb_failure failure;
    size_t size;
    uint8_t *bytes = eb_served_record_encode(&sample, &size, &failure);
    assert_non_null(bytes);
    assert_true(eb_served_record_parse(bytes, size, &record, &failure));
    assert_null(eb_served_record_find(&record, "other"));
    const struct eb_served_model *model = eb_served_record_find(&record, "ranking");
    assert_non_null(model);
    assert_int_equal(model->version_count, 3);
    const struct eb_served_version *first = &model->versions[0];
    assert_true(first->version == UINT64_MAX);
    assert_true(first->digest == 0xfedcba9876543210);
    assert_true(first->is_complete);
    assert_string_equal(first->model_yaml, sample.models[0].versions[0].model_yaml);
    assert_int_equal(first->table_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct eb_served_table *table = &sample.models[0].versions[0].tables[i];
        assert_string_equal(first->tables[i].name, table->name);
        assert_string_equal(first->tables[i].file, table->file);
        assert_int_equal(first->tables[i].slot, table->slot);
        assert_int_equal(first->tables[i].unknown_row, table->unknown_row);
    }
    assert_int_equal(model->versions[1].version, 7);
    assert_false(model->versions[1].is_complete);
    assert_null(model->versions[1].model_yaml);
    assert_null(first->manifest_yaml);
    assert_int_equal(first->part.parts, 0);
    for (size_t i = 1; i < 3; i++) {
        const struct eb_served_version *expected = &sample.models[0].versions[i];
        assert_string_equal(model->versions[i].manifest_yaml, expected->manifest_yaml);
        assert_int_equal(model->versions[i].part.part, expected->part.part);
        assert_int_equal(model->versions[i].part.parts, expected->part.parts);
        assert_int_equal(model->versions[i].is_router, expected->is_router);
    }
    eb_served_record_deinit(&record);
    free(bytes);
}

/* Returns the bytes of the sample. The caller frees them. */
static uint8_t *encode_sample(size_t *size)
{
    struct eb_served_record sample = make_sample();
    struct eb_failure failure;
    uint8_t *bytes = eb_served_record_encode(&sample, size, &failure);
    assert_non_null(bytes);
    return bytes;
}

static void ignores_zeros_behind_it(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = encode_sample(&size);
    uint8_t *padded = calloc(1, size + 100);
    assert_non_null(padded);
    memcpy(padded, bytes, size);
    assert_true(parse(padded, size + 100));
    free(padded);
    free(bytes);
}

static void finds_every_cut_and_flipped_bit(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = encode_sample(&size);
    for (size_t left = 0; left < size; left++) {
        uint8_t *cut = malloc(left + 1); /* so that the sanitizers see a read behind it */
        assert_non_null(cut);
        memcpy(cut, bytes, left);
        assert_false(parse(cut, left));
        free(cut);
    }
    for (size_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(parse(bytes, size));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(bytes);
}

/* Returns the JSON behind a first line that `format` makes of its size and digest. The caller frees
 * it. */
static char *add_head(const char *format, const char *json, size_t *size)
{
    size_t json_bytes = strlen(json);
    char head[80];
    int head_bytes = snprintf(
        head, sizeof head, format, json_bytes, (unsigned long long)XXH3_64bits(json, json_bytes));
    char *bytes = malloc((size_t)head_bytes + json_bytes);
    assert_non_null(bytes);
    memcpy(bytes, head, (size_t)head_bytes);
    memcpy(bytes + head_bytes, json, json_bytes);
    *size = (size_t)head_bytes + json_bytes;
    return bytes;
}

#define HEAD "embag served 1 %zu %016llx\n"

#define HEAD_PARTS "embag served 2 %zu %016llx\n"

static bool parse_with_head(const char *format, const char *json)
{
    size_t size;
    char *bytes = add_head(format, json, &size);
    bool is_good = parse(bytes, size);
    free(bytes);
    return is_good;
}

/* Returns whether the JSON, with a right digest, is a record without versions in parts. */
static bool parse_json(const char *json)
{
    return parse_with_head(HEAD, json);
}

#define VERSION(members) "{\"models\":[{\"name\":\"m\",\"versions\":[{" members "}]}]}"
#define TABLES(table)                                                                              \
    VERSION("\"version\":\"1\",\"digest\":\"0123456789abcdef\",\"is_complete\":true,\"model_"      \
            "yaml\":null,"                                                                         \
            "\"tables\":[" table "]")
#define TABLE(file, place)                                                                         \
    TABLES("{\"name\":\"t\",\"file\":\"" file "\",\"place\":" place ",\"unknown_row\":-1}")

static void refuses_what_is_not_a_record(void **state)
{
    (void)state;
    assert_true(parse_json("{\"models\":[]}"));
    assert_true(parse_json("{\"future\":[true,null,{\"a\":-1}],\"models\":[]}"));
    assert_true(parse_json(TABLE("0123456789abcdef.t", "0")));
    static const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "{\"models\":1}",
        "{\"models\":[],\"models\":[]}",
        "{\"models\":[{\"name\":\"m\"}]}",
        VERSION(""),
        VERSION("\"version\":\"x\",\"digest\":\"0123456789abcdef\",\"is_complete\":true,\"model_"
                "yaml\":null,"
                "\"tables\":[]"),
        VERSION("\"version\":\"1\",\"digest\":\"0123456789abcdef\",\"is_complete\":1,\"model_"
                "yaml\":null,"
                "\"tables\":[]"),
        TABLES("{}"),
        TABLE("../../../etc/passwd", "0"),
        TABLE("0123456789abcdef.x", "0"),
        TABLE("0123456789ABCDEF.t", "0"),
        TABLE("0123456789abcdef.t", "-1"),
        TABLE("0123456789abcdef.t", "65536"),
        TABLE("0123456789abcdef.t", "1.5"),
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (parse_json(wrong[i])) {
            fail_msg("parsed %s", wrong[i]);
        }
    }
}

static void refuses_numbers_out_of_range(void **state)
{
    (void)state;
#define NUMBERS(version, digest)                                                                   \
    VERSION("\"version\":\"" version "\",\"digest\":\"" digest                                     \
            "\",\"is_complete\":true,\"model_yaml\":null,\"tables\":[]")
#define ROW(row)                                                                                   \
    TABLES("{\"name\":\"t\",\"file\":\"0123456789abcdef.t\",\"place\":0,\"unknown_row\":" row "}")
    assert_true(parse_json(NUMBERS("18446744073709551615", "ffffffffffffffff")));
    assert_false(parse_json(NUMBERS("18446744073709551616", "0000000000000000")));
    assert_false(parse_json(NUMBERS("99999999999999999999", "0000000000000000")));
    assert_false(parse_json(NUMBERS("", "0000000000000000")));
    assert_false(parse_json(NUMBERS("-1", "0000000000000000")));
    assert_false(parse_json(NUMBERS(" 1", "0000000000000000")));
    assert_false(parse_json(NUMBERS("1", "000000000000000")));
    assert_false(parse_json(NUMBERS("1", "00000000000000000")));
    assert_false(parse_json(NUMBERS("1", "000000000000000F")));
    assert_true(parse_json(ROW("-2")));
    assert_true(parse_json(ROW("9223372036854775807")));
    assert_false(parse_json(ROW("-3")));
    assert_false(parse_json(ROW("9223372036854775808")));
    assert_true(parse_json(TABLE("0123456789abcdef.t", "65535")));
}

/* A reader that does not know of parts must not accept the record. */
static void names_another_format_where_versions_are_in_parts(void **state)
{
    (void)state;
#define PARTS(members)                                                                             \
    VERSION("\"version\":\"1\",\"digest\":\"0123456789abcdef\",\"is_complete\":true,\"model_"      \
            "yaml\":null,\"tables\":[]" members)
#define PART(parts, part)                                                                          \
    PARTS(",\"manifest_yaml\":\"parts: 3\",\"parts\":" parts ",\"part\":" part)
    assert_true(parse_with_head(HEAD_PARTS, PART("3", "2")));
    assert_true(parse_with_head(HEAD_PARTS, PART("4096", "null")));
    assert_true(parse_with_head(HEAD_PARTS, PART("4096", "4095")));
    assert_false(parse_json(PART("3", "2")));
    assert_false(parse_with_head(HEAD_PARTS, PARTS("")));
    static const char *const wrong[] = {
        PART("3", "3"),
        PART("3", "-1"),
        PART("3", "\"1\""),
        PART("3", "1.0"),
        PART("0", "0"),
        PART("0", "null"),
        PART("4097", "0"),
        PART("\"3\"", "0"),
        PARTS(",\"manifest_yaml\":\"parts: 3\",\"parts\":3"),
        PARTS(",\"manifest_yaml\":\"parts: 3\",\"part\":1"),
        PARTS(",\"manifest_yaml\":null,\"parts\":3,\"part\":1"),
        PARTS(",\"manifest_yaml\":1,\"parts\":3,\"part\":1"),
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (parse_with_head(HEAD_PARTS, wrong[i])) {
            fail_msg("parsed %s", wrong[i]);
        }
    }
}

static void refuses_names_that_are_not_text(void **state)
{
    (void)state;
#define MODEL(name) "{\"models\":[{\"name\":\"" name "\",\"versions\":[]}]}"
    assert_true(parse_json(MODEL("caf\xc3\xa9")));
    static const char *const wrong[] = {
        MODEL(""),
        MODEL("\\u0000"),
        MODEL("a\\nb"),
        MODEL("\xff"),
        MODEL("\xc0\x80"),
        MODEL("\\ud800"),
        TABLES("{\"name\":\"\",\"file\":\"0123456789abcdef.t\",\"place\":0,\"unknown_row\":-1}"),
        "{\"models\":[]}{}",
        "{\"models\": []}",
        "{\"models\":[]}\n",
        "{\"models\":[],\"more\":[{\"a\":1,\"a\":2}]}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (parse_json(wrong[i])) {
            fail_msg("parsed %s", wrong[i]);
        }
    }
}

static void refuses_a_first_line_that_it_would_not_write(void **state)
{
    (void)state;
    static const char *const heads[] = {
        " " HEAD,
        "embag  served 1 %zu %016llx\n",
        "embag served 1\t%zu %016llx\n",
        "embag served 1 +%zu %016llx\n",
        "embag served 1 0%zu %016llx\n",
        "embag served 1 %zu 0x%016llx\n",
        "embag served 1 %zu %016llX \n",
        "embag served 1 %zu %016llx\r\n",
        "embag served 2 %zu %016llx\n",
        "embag served 1 %zu %017llx\n",
        "embag served 1 -%zu %016llx\n",
        "embag served 1 9999999999999999999%zu %016llx\n",
        "embag served 1 %zu %016llx",
        "",
    };
    size_t size;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        char *bytes = add_head(heads[i], "{\"models\":[]}", &size);
        if (parse(bytes, size)) {
            fail_msg("parsed %.*s", (int)size, bytes);
        }
        free(bytes);
    }
}

static void refuses_anything_but_zeros_behind_it(void **state)
{
    (void)state;
    size_t size;
    char *bytes = add_head(HEAD, "{\"models\":[]}", &size);
    char *longer = calloc(1, size + 100);
    assert_non_null(longer);
    memcpy(longer, bytes, size);
    for (size_t i = size; i < size + 100; i++) {
        longer[i] = ' ';
        assert_false(parse(longer, size + 100));
        longer[i] = '\0';
    }
    free(longer);
    free(bytes);
}

/* Returns whether a record is parsed that is `before`, then `count` elements, then `after`. */
static bool parse_repeated(const char *before, const char *element, size_t count, const char *after)
{
    char *json = malloc(strlen(before) + count * (strlen(element) + 1) + strlen(after) + 1);
    assert_non_null(json);
    char *at = stpcpy(json, before);
    for (size_t i = 0; i < count; i++) {
        at = stpcpy(at, element);
        at = i + 1 < count ? stpcpy(at, ",") : at;
    }
    (void)stpcpy(at, after);
    bool is_good = parse_json(json);
    free(json);
    return is_good;
}

static void keeps_its_limits(void **state)
{
    (void)state;
    static const struct {
        const char *before;
        const char *element;
        size_t most;
        const char *after;
    } cases[] = {
        {"{\"models\":[", "{\"name\":\"m\",\"versions\":[]}", EB_SERVED_RECORD_MODELS_MAX, "]}"},
        {"{\"models\":[{\"name\":\"m\",\"versions\":[",
            "{\"version\":\"1\",\"digest\":\"0123456789abcdef\",\"is_complete\":false,"
            "\"model_yaml\":\"\",\"tables\":[]}",
            EB_SERVED_RECORD_VERSIONS_MAX, "]}]}"},
        {"{\"models\":[{\"name\":\"m\",\"versions\":[{\"version\":\"1\",\"digest\":"
         "\"0123456789abcdef\",\"is_complete\":true,\"model_yaml\":null,\"tables\":[",
            "{\"name\":\"t\",\"file\":\"0123456789abcdef.s\",\"place\":0,\"unknown_row\":-1}",
            EB_RESIDENT_TABLES_MAX, "]}]}]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(
            parse_repeated(cases[i].before, cases[i].element, cases[i].most, cases[i].after));
        assert_false(
            parse_repeated(cases[i].before, cases[i].element, cases[i].most + 1, cases[i].after));
    }
}

static void parses_no_more_bytes_than_the_largest_record(void **state)
{
    (void)state;
    size_t size;
    char *bytes = add_head(HEAD, "{\"models\":[]}", &size);
    char *padded = calloc(1, EB_SERVED_RECORD_BYTES_MAX + 1);
    assert_non_null(padded);
    memcpy(padded, bytes, size);
    assert_true(parse(padded, EB_SERVED_RECORD_BYTES_MAX));
    assert_false(parse(padded, (size_t)EB_SERVED_RECORD_BYTES_MAX + 1));
    free(padded);
    free(bytes);
}

static void refuses_deep_nesting(void **state)
{
    (void)state;
    size_t depth = 100000;
    char *json = malloc(2 * depth + 1);
    assert_non_null(json);
    memset(json, '[', depth);
    memset(json + depth, ']', depth);
    json[2 * depth] = '\0';
    assert_false(parse_json(json));
    free(json);
}

/* Returns whether the record is encoded, and as bytes that are parsed. */
static bool is_encoded(const struct eb_served_record *record, const char *error)
{
    struct eb_failure failure = {.text = ""};
    size_t size;
    void *bytes = eb_served_record_encode(record, &size, &failure);
    if (bytes) {
        assert_true(parse(bytes, size));
    } else {
        assert_non_null(strstr(failure.text, error));
    }
    free(bytes);
    return bytes;
}

static void encodes_no_more_than_is_parsed(void **state)
{
    (void)state;
    struct eb_served_version version = {.version = 1};
    struct eb_served_model model = {.name = "m", .version_count = 1, .versions = &version};
    struct eb_served_record record = {.model_count = 1, .models = &model};
    assert_true(is_encoded(&record, ""));
    version.table_count = EB_RESIDENT_TABLES_MAX + 1;
    assert_false(is_encoded(&record, "exceeds"));
    version.table_count = 0;
    struct eb_served_version *versions =
        calloc(EB_SERVED_RECORD_VERSIONS_MAX + 1, sizeof *versions);
    assert_non_null(versions);
    model.versions = versions;
    model.version_count = EB_SERVED_RECORD_VERSIONS_MAX;
    assert_true(is_encoded(&record, ""));
    model.version_count++;
    assert_false(is_encoded(&record, "exceeds"));
    free(versions);
    model.version_count = 0;
    model.name = "\xff";
    assert_false(is_encoded(&record, "UTF-8"));
    struct eb_served_model *models = calloc(EB_SERVED_RECORD_MODELS_MAX + 1, sizeof *models);
    assert_non_null(models);
    for (size_t i = 0; i <= EB_SERVED_RECORD_MODELS_MAX; i++) {
        models[i].name = "m";
    }
    record.models = models;
    record.model_count = EB_SERVED_RECORD_MODELS_MAX;
    assert_true(is_encoded(&record, ""));
    record.model_count++;
    assert_false(is_encoded(&record, "exceeds"));
    free(models);
}

static void encodes_no_more_bytes_than_the_largest_record(void **state)
{
    (void)state;
    struct eb_served_version version = {.version = 1, .model_yaml = ""};
    struct eb_served_model model = {.name = "m", .version_count = 1, .versions = &version};
    struct eb_served_record record = {.model_count = 1, .models = &model};
    struct eb_failure failure;
    size_t size;
    free(eb_served_record_encode(&record, &size, &failure));
    size_t room = EB_SERVED_RECORD_BYTES_MAX - size - strlen("12345678") + strlen("123");
    char *yaml = calloc(1, room + 2);
    assert_non_null(yaml);
    version.model_yaml = yaml;
    memset(yaml, 'a', room);
    void *bytes = eb_served_record_encode(&record, &size, &failure);
    assert_non_null(bytes);
    assert_int_equal(size, EB_SERVED_RECORD_BYTES_MAX);
    free(bytes);
    yaml[room] = 'a';
    assert_false(is_encoded(&record, "more than"));
    free(yaml);
}

static void *allocate_for_json(size_t bytes)
{
    return eb_faults_refuse_allocation() ? NULL : __real_malloc(bytes);
}

static void free_for_json(void *memory)
{
    free(memory);
}

/* Encodes and parses the sample. Returns the number of allocations, or 0 if one was refused. */
static unsigned use_all(unsigned refused)
{
    struct eb_served_record sample = make_sample();
    struct eb_served_record record = {0};
    struct eb_failure failure = {.text = ""};
    size_t size;
    eb_faults_fail_allocation(refused);
    void *bytes = eb_served_record_encode(&sample, &size, &failure);
    bool is_good = bytes && eb_served_record_parse(bytes, size, &record, &failure);
    unsigned count = eb_faults_allocation_count();
    eb_faults_fail_allocation(0);
    if (!is_good) {
        assert_non_null(strstr(failure.text, "memory"));
        assert_int_equal(record.model_count, 0);
        assert_null(record.models);
    }
    eb_served_record_deinit(&record);
    free(bytes);
    return is_good ? count : 0;
}

static void survives_every_refused_allocation(void **state)
{
    (void)state;
    json_set_alloc_funcs(allocate_for_json, free_for_json);
    unsigned count = use_all(0);
    assert_in_range(count, 50, 2000);
    for (unsigned number = 1; number <= count; number++) {
        unsigned used = use_all(number);
        if (used > 0) {
            fail_msg("allocation %u of %u was refused, and nobody told", number, count);
        }
    }
    assert_int_equal(use_all(count + 1), count);
    print_message("%u allocations refused in turn\n", count);
}

static int restore_allocations(void **state)
{
    json_set_alloc_funcs(malloc, free);
    return eb_faults_tear_down(state);
}

EB_TEST_GROUP(served_record)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_what_it_encoded),
        cmocka_unit_test(ignores_zeros_behind_it),
        cmocka_unit_test(finds_every_cut_and_flipped_bit),
        cmocka_unit_test(refuses_what_is_not_a_record),
        cmocka_unit_test(refuses_numbers_out_of_range),
        cmocka_unit_test(names_another_format_where_versions_are_in_parts),
        cmocka_unit_test(refuses_names_that_are_not_text),
        cmocka_unit_test(refuses_a_first_line_that_it_would_not_write),
        cmocka_unit_test(refuses_anything_but_zeros_behind_it),
        cmocka_unit_test(keeps_its_limits),
        cmocka_unit_test(parses_no_more_bytes_than_the_largest_record),
        cmocka_unit_test(refuses_deep_nesting),
        cmocka_unit_test(encodes_no_more_than_is_parsed),
        cmocka_unit_test(encodes_no_more_bytes_than_the_largest_record),
        cmocka_unit_test_teardown(survives_every_refused_allocation, restore_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
