#include "server/rpc/method.h"

#include "proto/schema.h"
#include "server/base/counters.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect_none(const char *path)
{
    assert_null(eb_method_find(path).method);
}

static void finds_every_method_by_its_path(void **state)
{
    (void)state;
    char path[256];
    const struct eb_method_table *table;
    for (size_t i = 0; (table = eb_method_table_at(i)); i++) {
        for (size_t k = 0; k < table->count; k++) {
            snprintf(path, sizeof path, "/%s/%s", table->service, table->methods[k].name);
            struct eb_method_entry entry = eb_method_find(path);
            assert_ptr_equal(entry.table, table);
            assert_ptr_equal(entry.method, &table->methods[k]);
        }
    }
}

static void finds_nothing_by_what_is_nearly_a_path(void **state)
{
    (void)state;
    expect_none("");
    expect_none("/");
    expect_none("//");
    expect_none("//Lookup");
    expect_none("Lookup");
    expect_none("embag.v1.EmbeddingBag/Lookup");
    expect_none("/embag.v1.EmbeddingBag");
    expect_none("/embag.v1.EmbeddingBag/");
    expect_none("/embag.v1.EmbeddingBag/Look");
    expect_none("/embag.v1.EmbeddingBag/Lookups");
    expect_none("/embag.v1.EmbeddingBag/Lookup/");
    expect_none("/embag.v1.EmbeddingBa/Lookup");
    expect_none("/embag.v1.EmbeddingBags/Lookup");
    expect_none("/embag.v1.ModelAdmin/Lookup");
}

static void gives_every_method_one_way_to_be_served(void **state)
{
    (void)state;
    const struct eb_method_table *table;
    for (size_t i = 0; (table = eb_method_table_at(i)); i++) {
        for (size_t k = 0; k < table->count; k++) {
            const struct eb_method *method = &table->methods[k];
            bool is_feed = method->kind == EB_METHOD_SERVER_STREAMING;
            assert_int_equal(!!method->answer + !!method->codec + !!method->start, 1);
            assert_true(is_feed ? !!method->start : !method->start);
        }
    }
}

static void describes_every_method_to_those_who_ask(void **state)
{
    (void)state;
    char symbol[256];
    const struct eb_method_table *table;
    struct eb_schema_files files;
    for (size_t i = 0; (table = eb_method_table_at(i)); i++) {
        for (size_t k = 0; k < table->count; k++) {
            snprintf(symbol, sizeof symbol, "%s.%s", table->service, table->methods[k].name);
            assert_true(eb_schema_find_symbol(symbol, &files));
            assert_true(files.count < EB_SCHEMA_FILES_MAX);
        }
    }
}

static void names_the_services_where_there_is_no_such_method(void **state)
{
    (void)state;
    struct eb_error error;
    eb_method_refuse("/a/B", &error);
    assert_int_equal(error.status, EB_STATUS_UNIMPLEMENTED);
    assert_non_null(strstr(error.text, "\"/a/B\""));
    assert_non_null(strstr(error.text, "services embag.v1.EmbeddingBag, embag.v1.ModelAdmin"));
}

static void names_the_methods_of_a_service_that_lacks_it(void **state)
{
    (void)state;
    struct eb_error error;
    eb_method_refuse("/embag.v1.EmbeddingBag/Look", &error);
    assert_int_equal(error.status, EB_STATUS_UNIMPLEMENTED);
    assert_non_null(
        strstr(error.text, "embag.v1.EmbeddingBag has the methods Lookup, LookupStream, "));
}

static void numbers_every_method_in_the_order_of_the_tables(void **state)
{
    (void)state;
    char path[256];
    unsigned index = 0;
    const struct eb_method_table *table;
    for (size_t i = 0; (table = eb_method_table_at(i)); i++) {
        for (size_t k = 0; k < table->count; k++, index++) {
            snprintf(path, sizeof path, "/%s/%s", table->service, table->methods[k].name);
            assert_int_equal(eb_method_find(path).index, index);
        }
        snprintf(path, sizeof path, "/%s/None", table->service);
        assert_int_equal(eb_method_find(path).index, eb_method_count());
    }
    assert_int_equal(eb_method_count(), index);
    assert_int_equal(eb_method_find("/a/B").index, index);
    assert_int_equal(eb_method_find("").index, index);
    assert_true(index < EB_COUNTERS_METHODS_MAX);
}

static void gives_unary_calls_a_deadline_always(void **state)
{
    (void)state;
    struct eb_method unary = {.kind = EB_METHOD_UNARY};
    struct eb_method feed = {.kind = EB_METHOD_SERVER_STREAMING};
    struct eb_method stream = {.kind = EB_METHOD_BIDIRECTIONAL};
    assert_int_equal(eb_method_timeout_us(&unary, 0, 100), 100);
    assert_int_equal(eb_method_timeout_us(&unary, 100, 100), 100);
    assert_int_equal(eb_method_timeout_us(&unary, 101, 100), 100);
    assert_int_equal(eb_method_timeout_us(&unary, 1, 100), 1);
    assert_int_equal(eb_method_timeout_us(&feed, 0, 100), 0);
    assert_int_equal(eb_method_timeout_us(&stream, 101, 100), 101);
}

EB_TEST_GROUP(method)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_method_by_its_path),
        cmocka_unit_test(finds_nothing_by_what_is_nearly_a_path),
        cmocka_unit_test(gives_every_method_one_way_to_be_served),
        cmocka_unit_test(names_the_methods_of_a_service_that_lacks_it),
        cmocka_unit_test(names_the_services_where_there_is_no_such_method),
        cmocka_unit_test(describes_every_method_to_those_who_ask),
        cmocka_unit_test(numbers_every_method_in_the_order_of_the_tables),
        cmocka_unit_test(gives_unary_calls_a_deadline_always),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
