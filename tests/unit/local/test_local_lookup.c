/* Lookups in the calling process: values, defaults, and what is refused. */
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/local/local_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIM EB_LOCAL_FIXTURE_DIM

/* Publishes version 1 and opens it. */
static void open_host(struct eb_local_host *host, const char *yaml)
{
    host->fixture.yaml = yaml;
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_host_open(host);
}

static enum embag_status look_up(struct eb_local_host *host, const struct embag_request *request)
{
    host->error = (struct embag_error){.text = ""};
    return embag_local_lookup(host->reader, request, &host->answer, &host->error);
}

static const struct embag_result *look_up_query(
    struct eb_local_host *host, const struct embag_query *query)
{
    struct embag_request request = {.model = "m", .queries = query, .query_count = 1};
    if (look_up(host, &request) != EMBAG_OK) {
        fail_msg("%s", host->error.text);
    }
    return &host->answer->results[0];
}

/* Checks that a bag is the sum of the rows, which is exact, as values are multiples of 1/64. */
static void check_sum(
    const struct embag_result *result, size_t bag, const int64_t *rows, size_t row_count)
{
    const float *values = (const float *)result->values + bag * DIM;
    for (size_t column = 0; column < DIM; column++) {
        float sum = 0;
        for (size_t i = 0; i < row_count; i++) {
            sum += eb_local_fixture_value(1, (uint64_t)rows[i], column);
        }
        assert_true(values[column] == sum);
    }
}

static const int64_t four_rows[] = {0, 2, 19999, 4};
static const int64_t two_offsets[] = {0, 3};

static void pools_bags_of_every_layout(void **state)
{
    struct eb_local_host *host = *state;
    static const int32_t lengths[] = {3, 1}, segments[] = {0, 0, 0, 1};
    struct embag_query queries[4];
    open_host(host, NULL);
    for (size_t i = 0; i < 4; i++) {
        queries[i] = (struct embag_query){.table = "large", .indices = {four_rows, 4, 8}};
    }
    queries[0].offsets = (struct embag_integers){two_offsets, 2, 8};
    queries[1].lengths = (struct embag_integers){lengths, 2, 4};
    queries[2].segment_ids = (struct embag_integers){segments, 4, 4};
    queries[2].num_segments = 2;
    queries[3].indices_per_bag = 2;
    struct embag_request request = {.queries = queries, .query_count = 4};
    assert_int_equal(look_up(host, &request), EMBAG_OK);
    assert_string_equal(host->answer->model, "m");
    assert_int_equal(host->answer->version, 1);
    assert_int_equal(host->answer->result_count, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct embag_result *result = &host->answer->results[i];
        assert_int_equal(result->query, i);
        assert_int_equal(result->type, EMBAG_F32);
        assert_int_equal(result->rank, 2);
        assert_int_equal(result->shape[0], 2);
        assert_int_equal(result->shape[1], DIM);
        assert_int_equal(result->values_bytes, 2 * DIM * sizeof(float));
        assert_int_equal((uintptr_t)result->values % 16, 0);
        check_sum(result, 0, four_rows, i == 3 ? 2 : 3);
        check_sum(result, 1, four_rows + (i == 3 ? 2 : 3), i == 3 ? 2 : 1);
    }
}

static void returns_rows_with_none(void **state)
{
    struct eb_local_host *host = *state;
    struct embag_query query = {
        .table = "large", .reduction = EMBAG_NONE, .indices = {four_rows, 4, 8}};
    open_host(host, NULL);
    const struct embag_result *result = look_up_query(host, &query);
    assert_int_equal(result->shape[0], 4);
    for (size_t i = 0; i < 4; i++) {
        check_sum(result, i, &four_rows[i], 1);
    }
}

static void uses_weights_and_output_types(void **state)
{
    struct eb_local_host *host = *state;
    static const float weights[] = {1, 1, 1, 1};
    struct embag_query query = {.table = "large",
        .indices = {four_rows, 4, 8},
        .offsets = {two_offsets, 2, 8},
        .weights = weights,
        .weights_count = 4,
        .weights_type = EMBAG_F32};
    open_host(host, NULL);
    check_sum(look_up_query(host, &query), 0, four_rows, 3);
    struct embag_request request = {.queries = &query, .query_count = 1, .output_type = EMBAG_F16};
    assert_int_equal(look_up(host, &request), EMBAG_OK);
    assert_int_equal(host->answer->results[0].type, EMBAG_F16);
    assert_int_equal(host->answer->results[0].values_bytes, 2 * DIM * 2);
}

static void uses_the_defaults_of_model_yaml(void **state)
{
    struct eb_local_host *host = *state;
    static const int64_t rows[] = {2, 77}, offsets[] = {0, 2};
    static const int64_t wanted[] = {2}, default_row[] = {4}, own_row[] = {1};
    struct embag_query query = {
        .table = "small", .indices = {rows, 2, 8}, .offsets = {offsets, 2, 8}};
    open_host(host, "tables:\n  - {name: small, missing: skip, default_index: 4}\n");
    const struct embag_result *result = look_up_query(host, &query);
    assert_int_equal(result->missing, 1);
    assert_null(result->missing_positions);
    check_sum(result, 0, wanted, 1);
    check_sum(result, 1, default_row, 1);
    query.has_default = true;
    query.default_index = 1;
    check_sum(look_up_query(host, &query), 1, own_row, 1);
    query.missing = EMBAG_MISSING_ERROR;
    struct embag_request request = {.queries = &query, .query_count = 1};
    assert_int_equal(look_up(host, &request), EMBAG_OUT_OF_RANGE);
}

static void lists_missing_indices_on_request(void **state)
{
    struct eb_local_host *host = *state;
    static const int64_t rows[] = {77, 2, -5, 3};
    struct embag_query query = {.table = "small",
        .missing = EMBAG_MISSING_ZERO,
        .indices = {rows, 4, 8},
        .indices_per_bag = 2};
    struct embag_query queries[] = {query, query};
    struct embag_request request = {.queries = queries, .query_count = 2, .report_missing = true};
    queries[0].indices.count = 2;
    open_host(host, NULL);
    assert_int_equal(look_up(host, &request), EMBAG_OK);
    assert_int_equal(host->answer->results[0].missing, 1);
    assert_int_equal(host->answer->results[0].missing_positions[0], 0);
    assert_int_equal(host->answer->results[1].missing, 2);
    assert_int_equal(host->answer->results[1].missing_positions[0], 0);
    assert_int_equal(host->answer->results[1].missing_positions[1], 2);
}

/* A query that is refused, and how. */
struct refused {
    struct embag_query query;
    enum embag_status status;
    const char *text;
};

static void refuses_malformed_queries(void **state)
{
    static const struct embag_answer stale;
    struct eb_local_host *host = *state;
    static const int64_t far[] = {20000}, descending[] = {0, 3, 2};
    struct embag_integers indices = {four_rows, 4, 8};
    struct embag_integers offsets = {two_offsets, 2, 8};
    const struct refused all[] = {
        {{.table = "none", .indices = indices, .offsets = offsets}, EMBAG_NOT_FOUND,
            "queries[0] \"none\": model \"m\" version 1 has no table of that name"},
        {{.indices = indices, .offsets = offsets}, EMBAG_NOT_FOUND, "queries[0] \"\": "},
        {{.table = "large", .indices = {far, 1, 8}, .offsets = {two_offsets, 1, 8}},
            EMBAG_OUT_OF_RANGE, "indices[0] = 20000"},
        {{.table = "large", .indices = indices, .offsets = {descending, 3, 8}},
            EMBAG_INVALID_ARGUMENT, "offsets[2] = 2"},
        {{.table = "large", .indices = indices}, EMBAG_INVALID_ARGUMENT, ""},
        {{.table = "large", .indices = {four_rows, 4, 3}, .offsets = offsets},
            EMBAG_INVALID_ARGUMENT, "width other than 4 or 8"},
        {{.table = "large", .indices = {NULL, 4, 8}, .offsets = offsets}, EMBAG_INVALID_ARGUMENT,
            "data NULL"},
        {{.table = "large", .indices = {four_rows, (1u << 24) + 1, 4}, .offsets = offsets},
            EMBAG_RESOURCE_EXHAUSTED, "at most 16777216"},
        {{.table = "large", .indices = indices, .offsets = offsets, .reduction = 8},
            EMBAG_INVALID_ARGUMENT, "reduction"},
        {{.table = "large", .indices = indices, .offsets = offsets, .missing = 5},
            EMBAG_INVALID_ARGUMENT, "missing"},
        {{.table = "large", .indices = indices, .offsets = offsets, .weights_type = 13},
            EMBAG_INVALID_ARGUMENT, "weights_type"},
        {{.table = "large", .indices = indices, .offsets = offsets, .weights_type = EMBAG_F32},
            EMBAG_INVALID_ARGUMENT, "there are no weights"},
        {{.table = "large", .indices = indices, .offsets = offsets, .weights_count = 4},
            EMBAG_INVALID_ARGUMENT, "weights are NULL"},
        {{.table = "large",
             .indices = indices,
             .offsets = offsets,
             .reduction = EMBAG_NONE,
             .sequence = {.max_len = 2}},
            EMBAG_UNIMPLEMENTED, "sequence"},
        {{.table = "large", .indices = indices, .offsets = offsets, .has_part = true},
            EMBAG_FAILED_PRECONDITION, "has_part: tables in the calling process have no parts"},
    };
    open_host(host, NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct embag_request request = {.queries = &all[i].query, .query_count = 1};
        host->answer = &stale;
        assert_int_equal(look_up(host, &request), all[i].status);
        assert_int_equal(host->error.status, all[i].status);
        assert_null(host->answer);
        if (!strstr(host->error.text, all[i].text)) {
            fail_msg("%s", host->error.text);
        }
        assert_int_equal(
            embag_local_lookup(host->reader, &request, &host->answer, NULL), all[i].status);
    }
}

static void refuses_what_only_a_server_answers(void **state)
{
    struct eb_local_host *host = *state;
    struct embag_group group = {.name = "g", .bags = 1};
    const struct embag_request all[] = {
        {.groups = &group, .group_count = 1},
        {.concat = true},
        {.errors_per_query = true},
        {.version_label = "stable"},
    };
    open_host(host, NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(look_up(host, &all[i]), EMBAG_UNIMPLEMENTED);
    }
    struct embag_request request = {.version_label = "", .timeout_us = 1, .priority = EMBAG_BATCH};
    assert_int_equal(look_up(host, &request), EMBAG_OK);
    assert_int_equal(host->answer->result_count, 0);
}

static void names_what_is_not_there(void **state)
{
    struct eb_local_host *host = *state;
    struct embag_query query = {.table = "large", .num_bags = 1};
    open_host(host, NULL);
    struct embag_request request = {.model = "other", .queries = &query, .query_count = 1};
    assert_int_equal(look_up(host, &request), EMBAG_NOT_FOUND);
    assert_string_equal(host->error.text, "no model \"other\"");
    request = (struct embag_request){.model = "m", .version = 2};
    assert_int_equal(look_up(host, &request), EMBAG_NOT_FOUND);
    assert_string_equal(host->error.text, "model \"m\" has no version 2 in memory");
    request = (struct embag_request){.query_count = 1};
    assert_int_equal(look_up(host, &request), EMBAG_INVALID_ARGUMENT);
    request = (struct embag_request){.output_type = 13};
    assert_int_equal(look_up(host, &request), EMBAG_INVALID_ARGUMENT);
}

static void tells_the_first_error_of_a_request(void **state)
{
    struct eb_local_host *host = *state;
    static const int64_t far[] = {20000};
    struct embag_query queries[] = {
        {.table = "large", .indices = {four_rows, 4, 8}, .offsets = {two_offsets, 2, 8}},
        {.table = "large", .indices = {far, 1, 8}, .offsets = {two_offsets, 1, 8}},
        {.table = "none"},
    };
    struct embag_request request = {.queries = queries, .query_count = 3};
    open_host(host, NULL);
    assert_int_equal(look_up(host, &request), EMBAG_OUT_OF_RANGE);
    assert_memory_equal(host->error.text, "queries[1]", 10);
}

static void refuses_more_queries_than_the_limit(void **state)
{
    struct eb_local_host *host = *state;
    size_t count = EMBAG_LOCAL_QUERIES_MAX;
    struct embag_query *queries = calloc(count + 1, sizeof *queries);
    assert_non_null(queries);
    for (size_t i = 0; i <= count; i++) {
        queries[i] = (struct embag_query){
            .table = "small", .indices = {four_rows, 1, 8}, .indices_per_bag = 1};
    }
    struct embag_request request = {.queries = queries, .query_count = count};
    open_host(host, NULL);
    assert_int_equal(look_up(host, &request), EMBAG_OK);
    check_sum(&host->answer->results[count - 1], 0, four_rows, 1);
    request.query_count = count + 1;
    assert_int_equal(look_up(host, &request), EMBAG_RESOURCE_EXHAUSTED);
    free(queries);
}

static void reports_that_memory_is_short(void **state)
{
    struct eb_local_host *host = *state;
    static const int64_t rows[] = {77, 2};
    struct embag_query query = {.table = "small",
        .missing = EMBAG_MISSING_ZERO,
        .indices = {rows, 2, 8},
        .indices_per_bag = 1};
    struct embag_request request = {.queries = &query, .query_count = 1, .report_missing = true};
    open_host(host, NULL);
    unsigned number = 1;
    for (;; number++) {
        eb_faults_fail_allocation(number);
        enum embag_status status = look_up(host, &request);
        eb_faults_disarm();
        if (status == EMBAG_OK) {
            break;
        }
        assert_int_equal(status, EMBAG_RESOURCE_EXHAUSTED);
        embag_local_reader_close(host->reader); /* with it goes what it has allocated */
        assert_int_equal(
            embag_local_reader_open(host->local, &host->reader, &host->error), EMBAG_OK);
    }
    assert_int_equal(number, 6); /* three arrays, the bytes, the positions */
    eb_faults_fail_allocation(1);
    assert_int_equal(look_up(host, &request), EMBAG_OK); /* the next one allocates nothing */
}

#define WITH_HOST(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, eb_local_host_set_up, eb_local_host_tear_down)

EB_TEST_GROUP(local_lookup)
{
    const struct CMUnitTest tests[] = {
        WITH_HOST(pools_bags_of_every_layout),
        WITH_HOST(returns_rows_with_none),
        WITH_HOST(uses_weights_and_output_types),
        WITH_HOST(uses_the_defaults_of_model_yaml),
        WITH_HOST(lists_missing_indices_on_request),
        WITH_HOST(refuses_malformed_queries),
        WITH_HOST(refuses_what_only_a_server_answers),
        WITH_HOST(names_what_is_not_there),
        WITH_HOST(tells_the_first_error_of_a_request),
        WITH_HOST(refuses_more_queries_than_the_limit),
        WITH_HOST(reports_that_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
