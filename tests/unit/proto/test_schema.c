#include "proto/schema.h"

#include "proto/field_reader.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define LOOKUPS "embag/v1/embedding_bag.proto"
#define ADMIN "embag/v1/model_admin.proto"

/* Expects the first field of this FileDescriptorProto, its name, to be `name`. */
static void expect_name(const struct eb_schema_file *file, const char *name)
{
    struct eb_field_reader reader = eb_field_reader_of(file->bytes, file->size);
    struct eb_field field = {.tag = 0};
    assert_true(eb_field_reader_next(&reader, &field));
    assert_int_equal(field.tag, EB_TAG_BYTES(1));
    assert_int_equal(eb_field_reader_bytes(&field.data), strlen(name));
    assert_memory_equal(field.data.at, name, strlen(name));
}

static void expect_symbol(const char *symbol, const char *file)
{
    struct eb_schema_files found;
    assert_true(eb_schema_find_symbol(symbol, &found));
    assert_in_range(found.count, 1, EB_SCHEMA_FILES_MAX - 1);
    expect_name(&found.files[0], file);
}

static void expect_no_symbol(const char *symbol)
{
    struct eb_schema_files found;
    assert_false(eb_schema_find_symbol(symbol, &found));
    assert_int_equal(found.count, 0);
}

static void gives_a_file_and_what_it_imports(void **state)
{
    (void)state;
    struct eb_schema_files found;
    assert_true(eb_schema_find_file(ADMIN, &found));
    assert_int_equal(found.count, 2);
    expect_name(&found.files[0], ADMIN);
    expect_name(&found.files[1], LOOKUPS);
    assert_true(eb_schema_find_file(LOOKUPS, &found));
    assert_int_equal(found.count, 1);
    assert_false(eb_schema_find_file("embag/v1/embedding_bag", &found));
    assert_int_equal(found.count, 0);
    assert_false(eb_schema_find_file("", &found));
}

static void finds_what_has_a_name(void **state)
{
    (void)state;
    expect_symbol("embag.v1.EmbeddingBag", LOOKUPS);
    expect_symbol("embag.v1.EmbeddingBag.LookupStream", LOOKUPS);
    expect_symbol("embag.v1.LookupRequest", LOOKUPS);
    expect_symbol("embag.v1.LookupRequest.timeout_us", LOOKUPS);
    expect_symbol("embag.v1.BagQuery.default_row", LOOKUPS);
    expect_symbol("embag.v1.DataType", LOOKUPS);
    expect_symbol("embag.v1.ModelVersion.State", LOOKUPS);
    expect_symbol("embag.v1.VersionRequest", ADMIN);
    expect_symbol(
        "grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc/health/v1/health.proto");
    expect_symbol("grpc.health.v1.HealthCheckResponse.SERVING", "grpc/health/v1/health.proto");
    expect_symbol(
        "grpc.health.v1.HealthListResponse.StatusesEntry.key", "grpc/health/v1/health.proto");
    expect_symbol("xds.service.orca.v3.OpenRcaService", "xds/service/orca/v3/orca.proto");
    expect_symbol("grpc.reflection.v1.ServerReflection", "grpc/reflection/v1/reflection.proto");
    expect_symbol(
        "grpc.reflection.v1alpha.ServerReflection", "grpc/reflection/v1alpha/reflection.proto");
}

static void finds_nothing_by_what_is_no_full_name(void **state)
{
    (void)state;
    expect_no_symbol("");
    expect_no_symbol(".");
    expect_no_symbol("embag.v1");
    expect_no_symbol("embag.v1.");
    expect_no_symbol("EmbeddingBag");
    expect_no_symbol(".embag.v1.EmbeddingBag");
    expect_no_symbol("embag.v1.EmbeddingBag.");
    expect_no_symbol("embag.v1..EmbeddingBag");
    expect_no_symbol("embag.v1.EmbeddingBagg");
    expect_no_symbol("embag.v1.EmbeddingBag.Lookup.x");
    expect_no_symbol("embag.v1.LookupRequest.State");
}

static void tells_messages_from_other_symbols(void **state)
{
    (void)state;
    assert_true(eb_schema_has_message("embag.v1.LookupRequest"));
    assert_true(eb_schema_has_message("grpc.health.v1.HealthListResponse.StatusesEntry"));
    assert_false(eb_schema_has_message("embag.v1.EmbeddingBag"));
    assert_false(eb_schema_has_message("embag.v1.DataType"));
    assert_false(eb_schema_has_message("embag.v1.LookupRequest.model"));
    assert_false(eb_schema_has_message("embag.v1"));
}

EB_TEST_GROUP(schema)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_a_file_and_what_it_imports),
        cmocka_unit_test(finds_what_has_a_name),
        cmocka_unit_test(finds_nothing_by_what_is_no_full_name),
        cmocka_unit_test(tells_messages_from_other_symbols),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
