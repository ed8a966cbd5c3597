/* Counters of hand-made plans, also when allocations fail. */
#include "server/rpc/table_counters.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/key_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START_NS UINT64_C(7000000000000)
#define MANY (EB_TABLE_COUNTERS_TABLES_MAX + 2)
#define VERSIONS_MAX 3

/* ---- versions and lookups ---- */

static char name_a[] = "a";
static char name_b[] = "b";
static char name_c[] = "c";
static char model_m[] = "m";
static char model_n[] = "n";
static struct eb_named_table first_tables[] = {
    {.name = name_a, .table = {.row_count = 100}}, {.name = name_b, .table = {.row_count = 100}}};
static struct eb_named_table second_tables[] = {
    {.name = name_b, .table = {.row_count = 100}}, {.name = name_c, .table = {.row_count = 100}}};
static struct eb_named_table other_tables[] = {{.name = name_a, .table = {.row_count = 100}}};

/* m/1 has tables a and b, m/2 has b and c, n/1 has another a. */
static struct eb_model_version m_1 = {
    .model = model_m, .version = 1, .tables = {.count = 2, .tables = first_tables}};
static struct eb_model_version m_2 = {
    .model = model_m, .version = 2, .tables = {.count = 2, .tables = second_tables}};
static struct eb_model_version n_1 = {
    .model = model_n, .version = 1, .tables = {.count = 1, .tables = other_tables}};

static struct eb_table_counters counters;
static uint64_t now_ns;

/* Makes these versions the ones that answer. A version that is NULL is not loaded. */
static void serve(struct eb_model_version *one, struct eb_model_version *other)
{
    struct eb_snapshot_version versions[] = {{.number = 1, .loaded = one}};
    struct eb_snapshot_version others[] = {{.number = 2}, {.number = 1, .loaded = other}};
    struct eb_snapshot_model models[] = {
        {.version_count = 1, .versions = versions}, {.version_count = 2, .versions = others}};
    struct eb_snapshot snapshot = {.count = 2, .models = models};
    eb_table_counters_swap(&counters, &snapshot, now_ns);
}

static struct eb_plan_query plan_of_ids(
    const struct eb_model_version *version, size_t table, const int64_t *ids, uint64_t id_count)
{
    return (struct eb_plan_query){.table = &version->tables.tables[table],
        .index_count = id_count,
        .indices = {.data = ids, .bytes = id_count * sizeof *ids, .width = sizeof *ids}};
}

/* Answers a lookup of one query with two bags and one missing index. */
static void answer(const struct eb_model_version *version, struct eb_plan_query query)
{
    struct eb_bag_job job = {.bag_count = 2, .missing_count = 1};
    struct eb_plan plan = {
        .version = version,
        .counts = {.query_count = 1, .index_count = query.index_count},
        .queries = &query,
        .jobs = &job,
    };
    eb_table_counters_add(&counters, &plan, now_ns);
}

/* Answers a lookup of three indices. */
static void answer_three(const struct eb_model_version *version, size_t table)
{
    static const int64_t ids[] = {5, 5, -1};
    answer(version, plan_of_ids(version, table, ids, 3));
}

static struct eb_table_sums *copy(void)
{
    struct eb_table_sums *part = eb_table_counters_copy(&counters, now_ns);
    assert_non_null(part);
    return part;
}

static const struct eb_table_sum *find(
    const struct eb_table_sums *part, const char *model, const char *table)
{
    const struct eb_table_sum *found = NULL;
    for (size_t i = 0; i < part->count; i++) {
        const struct eb_table_sum *sum = &part->sums[i];
        assert_true(i == 0 || eb_table_sums_compare(sum - 1, sum->model, sum->table) < 0);
        found = eb_table_sums_compare(sum, model, table) == 0 ? sum : found;
    }
    return found;
}

/* Expects `lookups` lookups of this table to have been counted. */
static void expect_counted(const char *model, const char *table, uint64_t lookups)
{
    struct eb_table_sums *part = copy();
    const struct eb_table_sum *sum = find(part, model, table);
    assert_non_null(sum);
    assert_int_equal(sum->bags, 2 * lookups);
    assert_int_equal(sum->indices, 3 * lookups);
    assert_int_equal(sum->missing, lookups);
    free(part);
}

static void expect_counted_tables(size_t count)
{
    struct eb_table_sums *part = copy();
    assert_int_equal(part->count, count);
    free(part);
}

static int set_up(void **state)
{
    (void)state;
    eb_faults_disarm();
    now_ns = START_NS;
    eb_table_counters_init(&counters, now_ns);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_faults_disarm();
    eb_table_counters_deinit(&counters);
    return 0;
}

/* ---- counts ---- */

static void counts_by_model_and_table(void **state)
{
    (void)state;
    serve(&m_1, &n_1);
    answer_three(&m_1, 1);
    answer_three(&n_1, 0);
    answer_three(&m_1, 1);
    expect_counted("m", "a", 0);
    expect_counted("m", "b", 2);
    expect_counted("n", "a", 1);
    expect_counted_tables(3);
}

static void counts_on_in_the_next_version(void **state)
{
    (void)state;
    serve(&m_1, &n_1);
    answer_three(&m_1, 1);
    serve(&m_1, &m_2);
    answer_three(&m_2, 0);
    answer_three(&m_1, 1);
    serve(&m_2, NULL);
    answer_three(&m_2, 0);
    expect_counted("m", "b", 4);
}

static void counts_what_takes_longer_than_its_version(void **state)
{
    (void)state;
    serve(&m_1, &n_1);
    serve(&n_1, NULL);
    answer_three(&m_1, 0);
    expect_counted("m", "a", 1);
}

static void counts_nothing_before_there_is_a_snapshot(void **state)
{
    (void)state;
    expect_counted_tables(0);
    eb_table_counters_swap(&counters, NULL, now_ns);
    expect_counted_tables(0);
}

static void keeps_what_is_gone_for_a_while(void **state)
{
    (void)state;
    serve(&m_1, &n_1);
    answer_three(&m_1, 0);
    answer_three(&n_1, 0);
    serve(&n_1, NULL);
    now_ns += EB_TABLE_COUNTERS_KEEP_NS - 1;
    expect_counted("m", "a", 1);
    serve(&m_1, &n_1);
    serve(&n_1, NULL);
    now_ns += EB_TABLE_COUNTERS_KEEP_NS - 1;
    answer_three(&n_1, 0);
    expect_counted("m", "a", 1);
    now_ns += 1;
    expect_counted_tables(1);
    expect_counted("n", "a", 2);
    serve(&m_1, &n_1);
    expect_counted("m", "a", 0);
}

static void counts_what_is_too_much_in_one_place(void **state)
{
    (void)state;
    static struct eb_named_table tables[MANY];
    static char names[MANY][8];
    struct eb_model_version many = {.model = model_m, .tables = {MANY, tables}};
    for (size_t i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "%06zu", i);
        tables[i] = (struct eb_named_table){.name = names[i], .table = {.row_count = 1}};
    }
    serve(&many, NULL);
    expect_counted_tables(EB_TABLE_COUNTERS_TABLES_MAX);
    answer_three(&many, MANY - 3);
    answer_three(&many, MANY - 2);
    answer_three(&many, MANY - 1);
    expect_counted_tables(EB_TABLE_COUNTERS_TABLES_MAX + 1);
    expect_counted("", "", 2);
    expect_counted("m", names[MANY - 3], 1);
    serve(&n_1, NULL);
    now_ns += EB_TABLE_COUNTERS_KEEP_NS;
    expect_counted("", "", 2);
    expect_counted_tables(1);
    serve(&n_1, NULL);
    answer_three(&n_1, 0);
    expect_counted("n", "a", 1);
}

static void counts_somewhere_wherever_memory_ends(void **state)
{
    (void)state;
    unsigned n = 0;
    bool was_refused = true;
    while (was_refused) {
        eb_faults_fail_allocation(++n);
        serve(&m_1, &n_1);
        was_refused = eb_faults_allocation_count() >= n;
        eb_faults_disarm();
        answer_three(&m_1, 0);
        answer_three(&m_1, 1);
        answer_three(&n_1, 0);
        struct eb_table_sums *part = copy();
        uint64_t bags = 0;
        for (size_t i = 0; i < part->count; i++) {
            bags += part->sums[i].bags;
        }
        assert_int_equal(bags, 6);
        free(part);
        eb_table_counters_deinit(&counters);
        eb_table_counters_init(&counters, now_ns);
    }
    /* Seven allocations can fail: the blocks, two lists, the list of all, and three tables. In the
     * last round nothing fails. */
    assert_int_equal(n, 8);
}

static void does_without_what_there_is_no_memory_for(void **state)
{
    (void)state;
    serve(&m_1, &n_1);
    eb_faults_fail_allocation(1);
    assert_null(eb_table_counters_copy(&counters, now_ns));
    eb_faults_fail_allocation(1);
    answer_three(&m_1, 0);
    answer_three(&m_1, 0);
    eb_faults_disarm();
    expect_counted("m", "a", 2);
}

/* ---- hot rows ---- */

/* Expects the hot rows of the table's samples to be these ids, in order of decreasing share. */
static void expect_hot(const char *table, const int64_t *ids, size_t id_count)
{
    struct eb_table_sums *part = copy();
    const struct eb_table_sum *sum = find(part, "m", table);
    struct eb_hot_rows_sum sums[2 * EB_HOT_ROWS_KEPT] = {0};
    struct eb_hot_rows_merge merge = {.sums = sums, .room = eb_hot_rows_room(1)};
    assert_int_equal(merge.room, sizeof sums / sizeof sums[0]);
    struct eb_stats_hot_row top[EB_STATS_HOT_ROWS];
    assert_non_null(sum);
    assert_true(sum->hot || id_count == 0);
    if (sum->hot) {
        assert_true(sum->hot->indices_per_sample >= 1);
        eb_hot_rows_merge(&merge, sum->hot);
    }
    assert_int_equal(eb_hot_rows_top(&merge, top), id_count);
    for (size_t i = 0; i < id_count; i++) {
        assert_int_equal(top[i].id, ids[i]);
    }
    free(part);
}

static void answer_often(const struct eb_model_version *version, struct eb_plan_query query)
{
    /* A whole window has passed, so that as many samples as possible are taken. */
    now_ns += EB_INDEX_SAMPLER_WINDOW_NS;
    for (int i = 0; i < 20; i++) {
        answer(version, query);
    }
}

static void finds_rows_of_a_table(void **state)
{
    (void)state;
    static const int64_t ids[] = {7, 99, 7, 100, -1, INT64_MIN, INT64_MAX, 7, 99};
    static const int32_t narrow[] = {7, 99, 7, 100, -1, INT32_MIN, INT32_MAX, 7, 99};
    static const int64_t hot[] = {7, 99};
    serve(&m_1, &n_1);
    answer_often(&m_1, plan_of_ids(&m_1, 0, ids, 9));
    expect_hot("a", hot, 2);
    expect_hot("b", NULL, 0);
    struct eb_plan_query query = plan_of_ids(&m_1, 1, NULL, 9);
    query.indices =
        (struct eb_int_array){.data = narrow, .bytes = sizeof narrow, .width = sizeof narrow[0]};
    answer_often(&m_1, query);
    expect_hot("b", hot, 2);
}

static void finds_rows_that_ids_are_mapped_to(void **state)
{
    (void)state;
    static const struct eb_id_map modulo = {.kind = EB_ID_MAP_MODULO};
    static const int64_t ids[] = {107, -1, 7, 1007};
    static const int64_t hot[] = {7, 99};
    serve(&m_1, &n_1);
    struct eb_plan_query query = plan_of_ids(&m_1, 0, ids, 4);
    query.id_map = &modulo;
    answer_often(&m_1, query);
    expect_hot("a", hot, 2);
}

static void finds_keys_as_they_are_sent(void **state)
{
    (void)state;
    struct key_fixture keys;
    key_fixture_init(&keys, KEYS_MIXED, 100);
    assert_int_equal(key_fixture_build(&keys), EB_KEY_OK);
    struct eb_named_table table = {
        .name = name_a, .table = {.row_count = 100, .keys = &keys.index}};
    struct eb_model_version keyed = {.model = model_m, .tables = {1, &table}};
    const int64_t ids[] = {keys.keys[50], 1, keys.keys[50], keys.keys[0], 2};
    const int64_t hot[] = {keys.keys[50], keys.keys[0]};
    serve(&keyed, NULL);
    answer_often(&keyed, plan_of_ids(&keyed, 0, ids, 5));
    expect_hot("a", hot, 2);
    key_fixture_deinit(&keys);
}

/* Which keys a remote table has is not known. */
static void finds_keys_of_remote_tables(void **state)
{
    (void)state;
    struct eb_named_table table = {.name = name_a,
        .is_remote = true,
        .table = {.row_count = 100, .keys = &eb_key_index_remote}};
    struct eb_model_version remote = {.model = model_m, .tables = {1, &table}};
    static const int64_t ids[] = {INT64_MIN, 1, INT64_MIN, 1, INT64_MIN};
    serve(&remote, NULL);
    answer_often(&remote, plan_of_ids(&remote, 0, ids, 5));
    expect_hot("a", ids, 2);
}

static void finds_none_in_an_empty_table(void **state)
{
    (void)state;
    static const struct eb_id_map modulo = {.kind = EB_ID_MAP_MODULO};
    static const int64_t ids[] = {0, 1, -1};
    struct eb_named_table table = {.name = name_a};
    struct eb_model_version empty = {.model = model_m, .tables = {1, &table}};
    serve(&empty, NULL);
    struct eb_plan_query query = plan_of_ids(&empty, 0, ids, 3);
    query.id_map = &modulo;
    answer_often(&empty, query);
    expect_hot("a", NULL, 0);
}

static void finds_rows_at_every_place_of_a_large_request(void **state)
{
    (void)state;
    enum { PARTS = 4, PART_IDS = 100000 };
    static int64_t ids[PART_IDS];
    struct eb_plan_query queries[PARTS];
    struct eb_bag_job jobs[PARTS] = {0};
    const int64_t hot[] = {3};
    serve(&m_1, &n_1);
    for (size_t i = 0; i < PART_IDS; i++) {
        ids[i] = 3;
    }
    for (size_t i = 0; i < PARTS; i++) {
        queries[i] = plan_of_ids(&m_1, i == PARTS - 1, ids, i == 1 ? 0 : PART_IDS);
    }
    struct eb_plan plan = {
        .version = &m_1,
        .counts = {.query_count = PARTS, .index_count = (PARTS - 1) * (uint64_t)PART_IDS},
        .queries = queries,
        .jobs = jobs,
    };
    for (int i = 0; i < 3; i++) {
        eb_table_counters_add(&counters, &plan, now_ns);
        now_ns += EB_INDEX_SAMPLER_WINDOW_NS;
    }
    expect_hot("a", hot, 1);
    expect_hot("b", hot, 1);
}

static void forgets_what_was_hot(void **state)
{
    (void)state;
    static const int64_t early[] = {1, 1, 1, 1};
    static const int64_t late[] = {2, 2, 2};
    static const int64_t hot[] = {2, 1};
    serve(&m_1, &n_1);
    answer_often(&m_1, plan_of_ids(&m_1, 0, early, 4));
    now_ns += EB_TABLE_COUNTERS_HALF_NS;
    answer_often(&m_1, plan_of_ids(&m_1, 0, late, 3));
    expect_hot("a", hot, 2);
    now_ns += 10 * EB_TABLE_COUNTERS_HALF_NS;
    struct eb_table_sums *part = copy();
    assert_null(find(part, "m", "a")->hot);
    free(part);
    assert_int_equal(counters.hot_count, 0);
}

static void bounds_the_tables_that_have_a_sketch(void **state)
{
    (void)state;
    enum { COUNT = EB_TABLE_COUNTERS_HOT_MAX + 1 };
    static struct eb_named_table tables[COUNT];
    static char names[COUNT][8];
    static const int64_t ids[] = {0};
    struct eb_model_version many = {.model = model_m, .tables = {COUNT, tables}};
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "%06zu", i);
        tables[i] = (struct eb_named_table){.name = names[i], .table = {.row_count = 1}};
    }
    serve(&many, NULL);
    for (size_t i = 0; i < COUNT; i++) {
        answer_often(&many, plan_of_ids(&many, i, ids, 1));
    }
    expect_hot(names[0], ids, 1);
    expect_hot(names[COUNT - 2], ids, 1);
    expect_hot(names[COUNT - 1], NULL, 0);
    now_ns += 10 * EB_TABLE_COUNTERS_HALF_NS;
    answer_often(&many, plan_of_ids(&many, COUNT - 1, ids, 1));
    expect_hot(names[COUNT - 1], ids, 1);
}

EB_TEST_GROUP(table_counters)
{
#define COUNTERS_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        COUNTERS_TEST(counts_by_model_and_table),
        COUNTERS_TEST(counts_on_in_the_next_version),
        COUNTERS_TEST(counts_what_takes_longer_than_its_version),
        COUNTERS_TEST(counts_nothing_before_there_is_a_snapshot),
        COUNTERS_TEST(keeps_what_is_gone_for_a_while),
        COUNTERS_TEST(counts_what_is_too_much_in_one_place),
        COUNTERS_TEST(counts_somewhere_wherever_memory_ends),
        COUNTERS_TEST(does_without_what_there_is_no_memory_for),
        COUNTERS_TEST(finds_rows_of_a_table),
        COUNTERS_TEST(finds_rows_that_ids_are_mapped_to),
        COUNTERS_TEST(finds_keys_as_they_are_sent),
        COUNTERS_TEST(finds_keys_of_remote_tables),
        COUNTERS_TEST(finds_none_in_an_empty_table),
        COUNTERS_TEST(finds_rows_at_every_place_of_a_large_request),
        COUNTERS_TEST(forgets_what_was_hot),
        COUNTERS_TEST(bounds_the_tables_that_have_a_sketch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
