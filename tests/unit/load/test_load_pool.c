#include "tests/unit/load/load_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct embag_query *find_query(
    const struct eb_load_pool *pool, uint64_t request, unsigned table)
{
    return &pool->requests[request].queries[table];
}

static void asks_all_tables_in_each_request(void **state)
{
    (void)state;
    struct eb_load_options options;
    struct eb_load_target target;
    struct eb_load_pool pool;
    load_fixture_make(&options, &target, &pool,
        "--tables b,a --bags 3 --indices-per-bag 5 --requests 10 --output-type f16 --timeout-us 7");
    assert_int_equal(pool.count, 10);
    assert_int_equal(pool.request_indices, 2 * 3 * 5);
    assert_int_equal(target.version, 9);
    for (uint64_t i = 0; i < pool.count; i++) {
        const struct embag_request *request = &pool.requests[i];
        assert_string_equal(request->model, "m");
        assert_int_equal(request->query_count, 2);
        assert_int_equal(request->output_type, EMBAG_F16);
        assert_int_equal(request->timeout_us, 7);
        assert_string_equal(request->queries[0].table, "b");
        assert_string_equal(request->queries[1].table, "a");
        for (unsigned k = 0; k < 2; k++) {
            const struct embag_query *query = &request->queries[k];
            static const int64_t offsets[] = {0, 5, 10};
            assert_int_equal(query->indices.count, 15);
            assert_int_equal(query->offsets.count, 3);
            assert_memory_equal(query->offsets.data, offsets, sizeof offsets);
            for (unsigned n = 0; n < 15; n++) {
                assert_in_range(((const int64_t *)query->indices.data)[n], 0, k == 0 ? 6 : 99);
            }
        }
    }
    eb_load_pool_deinit(&pool);
    eb_load_target_deinit(&target);
}

static void asks_all_tables_as_one_group(void **state)
{
    (void)state;
    struct eb_load_options options;
    struct eb_load_target target;
    struct eb_load_pool pool;
    static const int32_t lengths[] = {5, 5, 5, 5, 5, 5};
    load_fixture_make(&options, &target, &pool,
        "--tables b,a --bags 3 --indices-per-bag 5 --requests 10 --groups --priority batch");
    for (uint64_t i = 0; i < pool.count; i++) {
        const struct embag_request *request = &pool.requests[i];
        const struct embag_group *group = request->groups;
        assert_int_equal(request->query_count, 0);
        assert_int_equal(request->group_count, 1);
        assert_int_equal(request->priority, EMBAG_BATCH);
        assert_int_equal(group->feature_count, 2);
        assert_string_equal(group->features[0], "b");
        assert_string_equal(group->features[1], "a");
        assert_int_equal(group->bags, 3);
        assert_int_equal(group->values.count, 30);
        assert_int_equal(group->lengths.count, 6);
        assert_memory_equal(group->lengths.data, lengths, sizeof lengths);
        for (unsigned n = 0; n < 30; n++) {
            assert_in_range(((const int64_t *)group->values.data)[n], 0, n < 15 ? 6 : 99);
        }
    }
    assert_ptr_not_equal(
        pool.requests[0].groups->values.data, pool.requests[1].groups->values.data);
    eb_load_pool_deinit(&pool);
    eb_load_target_deinit(&target);
}

static void draws_other_rows_for_each_request_and_seed(void **state)
{
    (void)state;
    static const char *const words[] = {
        "--tables a --indices-per-bag 50", "--tables a --indices-per-bag 50 --seed 2"};
    int64_t first[2][50];
    for (unsigned i = 0; i < 2; i++) {
        struct eb_load_options options;
        struct eb_load_target target;
        struct eb_load_pool pool;
        load_fixture_make(&options, &target, &pool, words[i]);
        memcpy(first[i], find_query(&pool, 0, 0)->indices.data, sizeof first[i]);
        assert_memory_not_equal(first[i], find_query(&pool, 1, 0)->indices.data, sizeof first[i]);
        eb_load_pool_deinit(&pool);
        eb_load_target_deinit(&target);
    }
    assert_memory_not_equal(first[0], first[1], sizeof first[0]);
}

static void keeps_to_its_memory_unless_told(void **state)
{
    (void)state;
    struct eb_load_options options;
    struct eb_load_target target;
    struct eb_load_pool pool;
    load_fixture_make(&options, &target, &pool, "--tables a --bags 1000 --indices-per-bag 4000");
    assert_int_equal(pool.count, 4);
    eb_load_pool_deinit(&pool);
    eb_load_target_deinit(&target);
    load_fixture_make(&options, &target, &pool, "--tables a");
    assert_int_equal(pool.count, 4096);
    eb_load_pool_deinit(&pool);
    eb_load_target_deinit(&target);
}

/* A query takes memory, too, however few indices it has. */
static void keeps_to_its_memory_with_many_tables(void **state)
{
    (void)state;
    enum { TABLES = 400 };
    char words[2 * TABLES + 16] = "--tables a";
    struct eb_load_options options;
    struct eb_load_target target;
    struct eb_load_pool pool;
    for (unsigned i = 1; i < TABLES; i++) {
        memcpy(words + strlen(words), ",a", sizeof ",a");
    }
    load_fixture_make(&options, &target, &pool, words);
    assert_int_equal(target.table_count, TABLES);
    assert_int_equal(pool.count, 512 * 1024 / TABLES);
    eb_load_pool_deinit(&pool);
    eb_load_target_deinit(&target);
}

/* Each answer has 256 KiB, so 1024 of them can be kept. */
static void takes_no_more_requests_than_answers_can_be_kept_to_compare(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        uint64_t count; /* 0: refused */
    } cases[] = {
        {"--tables a --bags 16", 4096},
        {"--tables a --bags 16 --verify", 1024},
        {"--tables a --bags 16 --verify --output-type f16", 2048},
        {"--tables a --bags 16 --verify --requests 1024", 1024},
        {"--tables a --bags 16 --verify --requests 1025", 0},
        {"--tables a --bags 16 --verify --verify-ahead 3", 256},
        {"--tables a --bags 16 --verify --verify-ahead 3 --requests 257", 0},
        {"--tables a --bags 16 --requests 1025", 1025},
        /* One answer can always be kept, however large it is. */
        {"--tables a --bags 100000 --verify --requests 1", 1},
        {"--tables a --bags 100000 --verify", 1},
        {"--tables a --bags 100000 --verify --requests 2", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_load_options options;
        struct eb_load_target target;
        struct eb_load_pool pool;
        assert_int_equal(load_fixture_read(&options, cases[i].words), EB_ARGUMENTS_READ);
        assert_true(eb_load_target_init(&target, &options, load_fixture_models()));
        target.tables[0].column_count = 4096;
        assert_int_equal(eb_load_pool_init(&pool, &options, &target), cases[i].count > 0);
        assert_int_equal(pool.count, cases[i].count);
        eb_load_pool_deinit(&pool);
        eb_load_target_deinit(&target);
    }
}

static void asks_for_a_group_by_its_name(void **state)
{
    (void)state;
    struct eb_load_options options;
    struct eb_load_target target;
    struct eb_load_pool pool;
    load_fixture_make(
        &options, &target, &pool, "--group pair --bags 2 --indices-per-bag 3 --requests 4");
    assert_int_equal(pool.request_indices, 12);
    assert_int_equal(pool.answer_bytes, 2 * (4 + 3) * sizeof(float));
    const struct embag_request *request = &pool.requests[3];
    assert_int_equal(request->query_count, 0);
    assert_int_equal(request->group_count, 1);
    assert_string_equal(request->groups->name, "pair");
    assert_int_equal(request->groups->feature_count, 0);
    assert_null(request->groups->features);
    assert_int_equal(request->groups->reduction, EMBAG_REDUCTION_UNSPECIFIED);
    assert_int_equal(request->groups->lengths.count, 4);
    /* The second feature's table has 7 rows. */
    const int64_t *values = request->groups->values.data;
    for (int i = 6; i < 12; i++) {
        assert_in_range(values[i], 0, 6);
    }
    eb_load_pool_deinit(&pool);
    eb_load_target_deinit(&target);
}

static void asks_for_features_as_they_are(void **state)
{
    (void)state;
    struct eb_load_options options;
    struct eb_load_target target;
    struct eb_load_pool pool;
    load_fixture_make(&options, &target, &pool, "--tables a,f --requests 1");
    assert_int_equal(pool.queries[0].reduction, EMBAG_SUM);
    assert_string_equal(pool.queries[1].table, "f");
    assert_int_equal(pool.queries[1].reduction, EMBAG_REDUCTION_UNSPECIFIED);
    eb_load_pool_deinit(&pool);
    eb_load_target_deinit(&target);
}

static void refuses_what_the_server_lacks(void **state)
{
    (void)state;
    static const char *const wrong[] = {"--tables a,d", "--tables a --model n", "--workload rows",
        "--tables a,c --verify", "--tables a,f --verify", "--group f", "--group nothing"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct eb_load_options options;
        struct eb_load_target target;
        assert_int_equal(load_fixture_read(&options, wrong[i]), EB_ARGUMENTS_READ);
        assert_false(eb_load_target_init(&target, &options, load_fixture_models()));
        assert_null(target.tables);
    }
}

static void refuses_queries_that_no_server_takes(void **state)
{
    (void)state;
    struct eb_load_options options;
    struct eb_load_target target;
    struct eb_load_pool pool;
    assert_int_equal(load_fixture_read(&options, "--tables a --bags 5000 --indices-per-bag 5000"),
        EB_ARGUMENTS_READ);
    assert_true(eb_load_target_init(&target, &options, load_fixture_models()));
    assert_false(eb_load_pool_init(&pool, &options, &target));
    assert_null(pool.requests);
    eb_load_target_deinit(&target);
}

EB_TEST_GROUP(load_pool)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks_all_tables_in_each_request),
        cmocka_unit_test(asks_all_tables_as_one_group),
        cmocka_unit_test(draws_other_rows_for_each_request_and_seed),
        cmocka_unit_test(keeps_to_its_memory_unless_told),
        cmocka_unit_test(keeps_to_its_memory_with_many_tables),
        cmocka_unit_test(takes_no_more_requests_than_answers_can_be_kept_to_compare),
        cmocka_unit_test(asks_for_a_group_by_its_name),
        cmocka_unit_test(asks_for_features_as_they_are),
        cmocka_unit_test(refuses_what_the_server_lacks),
        cmocka_unit_test(refuses_queries_that_no_server_takes),
    };
    return cmocka_run_group_tests_name("load_pool", tests, NULL, NULL);
}
