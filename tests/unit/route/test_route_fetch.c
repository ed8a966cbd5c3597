/* Sequence lookups on tables in parts, whose rows are fetched one by one, against the undivided
 * table. */
#include "kernels/bag_sequence.h"
#include "server/route/route_fetch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/route/parted_table.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS 120
#define BAGS_MAX 6
#define ROWS_MAX 64
#define ARENA_BYTES ((size_t)1 << 22)

/* A sequence lookup and its lists. */
struct sequence {
    struct eb_bag_query query; /* of SUM */
    /* If set, sub-queries are cut, and only the first one of the lost part is left out. */
    const struct eb_route_caps *caps;
    struct eb_bag_sequence chosen;
    struct eb_bag_extent extent;
    struct eb_bag_sequence_extent sizes;
    struct eb_bag_job job;
    int32_t lengths[BAGS_MAX];
    uint32_t inverse[ROWS_MAX];
    struct eb_bag_sequence_lists lists;
    struct eb_route_merge merge; /* has the table of the fetched rows */
    uint64_t unreached_count;
    uint8_t *values;
};

/* Measures and checks a lookup on a table. */
static void check_lookup(struct sequence *sequence, const struct eb_table *table)
{
    struct eb_bag_error error;
    sequence->query.table = table;
    assert_true(eb_bag_measure(&sequence->query, &sequence->extent, &error));
    if (!eb_bag_sequence_measure(
            &sequence->query, &sequence->chosen, &sequence->extent, &sequence->sizes, &error)) {
        fail_msg("%s", error.text);
    }
    sequence->job.scratch = aligned_alloc(64, sequence->extent.scratch_bytes + 64);
    assert_non_null(sequence->job.scratch);
    if (!eb_bag_check(
            eb_bag_ops_find("ref"), &sequence->query, &sequence->extent, &sequence->job, &error)) {
        fail_msg("%s", error.text);
    }
}

/* Makes the lists of a checked lookup and computes its values. */
static void pool_sequence(struct sequence *sequence)
{
    sequence->lists = (struct eb_bag_sequence_lists){.lengths = sequence->lengths,
        .inverse = sequence->chosen.unique ? sequence->inverse : NULL};
    eb_bag_sequence_take(
        &sequence->chosen, &sequence->extent, &sequence->sizes, &sequence->job, &sequence->lists);
    struct eb_bag_job *job = &sequence->job;
    sequence->values = malloc(job->bag_count * sequence->extent.result_row_bytes + 1);
    assert_non_null(sequence->values);
    job->out = sequence->values;
    job->out_stride_bytes = sequence->extent.result_row_bytes;
    eb_bag_pool(eb_bag_ops_find("ref"), job, 0, job->bag_count);
}

static void release(struct sequence *sequence)
{
    free(sequence->job.scratch);
    free(sequence->values);
}

/* Fetches the rows of a checked lookup. Leaves out part `lost`, if there is one of that number. */
static void fetch(struct parted_table *table, uint32_t lost, struct sequence *sequence)
{
    struct eb_arena *arena = &table->arena;
    struct eb_bag_job checked = sequence->job;
    struct eb_route_fetch fetch;
    struct eb_route_split split;
    struct eb_route_merge *merge = &sequence->merge;
    uint32_t left_out = 0;
    eb_arena_reset(arena, ARENA_BYTES);
    assert_true(eb_route_fetch_begin(&checked, eb_route_row_count(&checked), arena, &fetch));
    struct eb_route_query route = {.job = &fetch.job,
        .rule = table->rule,
        .missing = sequence->query.missing,
        .has_unknown_key = table->keys && table->whole.unknown_row >= 0,
        .wants_missing = true,
        .caps = sequence->caps};
    if (route.has_unknown_key) {
        route.unknown_key = table->keys[table->whole.unknown_row];
    }
    assert_true(table->options.is_whole ? eb_route_split_whole(&route, 0, arena, &split)
                                        : eb_route_split(&route, arena, &split));
    assert_true(eb_route_merge_begin(&split, eb_bag_ops_find("ref"), arena, merge));
    for (uint32_t i = 0; i < split.sub_count; i++) {
        struct eb_wire_result result;
        struct eb_error error = {0};
        if (split.subs[i].part == lost && (!sequence->caps || left_out++ == 0)) {
            assert_true(eb_route_merge_leave_out(merge, i, arena));
            continue;
        }
        parted_answer(table, &split.subs[i], &result);
        if (!eb_route_merge_take(merge, i, &result, &error)) {
            fail_msg("%s", error.text);
        }
        parted_answer_free(&result);
    }
    assert_true(
        eb_route_fetch_end(&fetch, merge, arena, &sequence->job, &sequence->unreached_count));
}

static void assert_same_sequence(const struct sequence *got, const struct sequence *want)
{
    assert_int_equal(got->job.bag_count, want->job.bag_count);
    assert_int_equal(got->job.missing_count, want->job.missing_count);
    assert_memory_equal(got->lengths, want->lengths, got->sizes.bag_count * sizeof(int32_t));
    assert_int_equal(got->lists.kept_count, want->lists.kept_count);
    if (got->chosen.unique) {
        assert_memory_equal(got->inverse, want->inverse, got->lists.kept_count * sizeof(uint32_t));
    }
    assert_memory_equal(
        got->values, want->values, got->job.bag_count * got->extent.result_row_bytes);
}

/* Chooses the fields of a sequence lookup by a number below 24. */
static struct eb_bag_sequence choose_fields(uint32_t number, bool has_weights)
{
    uint32_t max_len = number % 4;
    return (struct eb_bag_sequence){
        .max_len = max_len,
        .keep_first = max_len > 0 && number / 4 % 2 > 0,
        .pad = max_len > 0 && number / 8 == 1,
        .unique = !has_weights && number / 8 == 2,
    };
}

static void compare_sequences(struct parted_table *table, enum eb_missing missing, uint32_t round)
{
    struct parted_request request;
    parted_draw(table, EB_REDUCTION_SUM, missing, &request);
    struct sequence whole = {
        .query = request.query, .chosen = choose_fields(round % 24, request.weights)};
    struct sequence divided = whole;
    check_lookup(&whole, &table->whole);
    check_lookup(&divided, &table->remote);
    fetch(table, UINT32_MAX, &divided);
    pool_sequence(&whole);
    pool_sequence(&divided);
    assert_same_sequence(&divided, &whole);
    assert_int_equal(divided.unreached_count, 0);
    release(&whole);
    release(&divided);
    parted_request_deinit(&request);
}

static const enum eb_missing policies[] = {
    EB_MISSING_ERROR, EB_MISSING_SKIP, EB_MISSING_ZERO, EB_MISSING_UNKNOWN_ROW};

static void compare_fetched(const struct parted_options *options)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        struct parted_table table;
        parted_init(&table, options, 7 + i);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            compare_sequences(&table, policies[i], round);
        }
        parted_deinit(&table);
    }
}

/* The options of small tables, so that indices repeat. */
static struct parted_options small_table(bool is_keyed, bool unknown_is_vector)
{
    return (struct parted_options){
        .type = EB_F32,
        .storage = EB_STORAGE_INT8,
        .parts = 3,
        .row_count = 9,
        .row_elements = 4,
        .is_keyed = is_keyed,
        .has_unknown_row = !unknown_is_vector,
        .has_vector = unknown_is_vector,
        .unknown_is_vector = unknown_is_vector,
    };
}

static void gives_the_sequences_of_keyed_tables(void **state)
{
    (void)state;
    for (int is_vector = 0; is_vector < 2; is_vector++) {
        struct parted_options options = small_table(true, is_vector);
        compare_fetched(&options);
        options.type = EB_I64;
        options.storage = EB_STORAGE_I64;
        compare_fetched(&options);
    }
}

static void gives_the_sequences_of_whole_tables(void **state)
{
    (void)state;
    for (int is_vector = 0; is_vector < 2; is_vector++) {
        struct parted_options options = small_table(true, is_vector);
        options.is_whole = true;
        options.parts = 1;
        compare_fetched(&options);
        options.is_keyed = false;
        compare_fetched(&options);
    }
}

/* In a group with keyed tables, those without keys are fetched too. */
static void gives_the_sequences_of_tables_without_keys(void **state)
{
    (void)state;
    for (int is_vector = 0; is_vector < 2; is_vector++) {
        struct parted_options options = small_table(false, is_vector);
        compare_fetched(&options);
    }
}

/* What a lost part had is skipped: as if its keys had not been in the bags. */
static void leaves_out_the_rows_of_a_lost_part(void **state)
{
    (void)state;
    struct parted_options options = small_table(true, false);
    struct parted_table table;
    parted_init(&table, &options, 3);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct parted_request request;
        uint64_t lost_count = 0;
        parted_draw(&table, EB_REDUCTION_SUM, EB_MISSING_SKIP, &request);
        struct sequence divided = {
            .query = request.query, .chosen = choose_fields(round % 24, request.weights)};
        check_lookup(&divided, &table.remote);
        fetch(&table, 1, &divided);
        pool_sequence(&divided);
        for (uint64_t i = 0; i < divided.extent.index_count; i++) {
            bool is_lost = eb_part_of(&table.rule, request.indices[i]) == 1;
            lost_count += is_lost;
            request.indices[i] = is_lost ? -1 : request.indices[i];
        }
        struct sequence whole = {.query = request.query, .chosen = divided.chosen};
        check_lookup(&whole, &table.whole);
        pool_sequence(&whole);
        assert_int_equal(divided.unreached_count, lost_count);
        whole.job.missing_count -= lost_count;
        assert_same_sequence(&divided, &whole);
        release(&whole);
        release(&divided);
        parted_request_deinit(&request);
    }
    parted_deinit(&table);
}

/* One of two legs to a part came too late. Weighted rows are asked for once for each index. */
static void counts_stand_ins_only_where_they_were_not_reached(void **state)
{
    (void)state;
    static const struct eb_route_caps caps = {.request_bytes = 1, .answer_bytes = 1, .queries = 1};
    static const float weights[] = {1, 2, 3, 4};
    struct parted_options options = small_table(false, false);
    struct parted_table table;
    parted_init(&table, &options, 3);
    int64_t absent[] = {99, 99, 99, 99};
    struct sequence sequence = {.query = {.table = &table.remote,
                                    .layout = EB_LAYOUT_PACKED,
                                    .reduction = EB_REDUCTION_SUM,
                                    .missing = EB_MISSING_UNKNOWN_ROW,
                                    .output_type = EB_F32,
                                    .indices_per_bag = 4,
                                    .indices = {absent, sizeof absent, 8},
                                    .weights = weights,
                                    .weights_bytes = sizeof weights,
                                    .weights_type = EB_F32},
        .chosen = {.max_len = 4},
        .caps = &caps};
    check_lookup(&sequence, &table.remote);
    fetch(&table, eb_part_of(&table.rule, table.whole.unknown_row), &sequence);
    assert_int_equal(sequence.job.missing_count, 4);
    assert_int_equal(sequence.unreached_count, 0);
    release(&sequence);
    parted_deinit(&table);
}

static void asks_for_each_key_once(void **state)
{
    (void)state;
    static const int64_t keys[] = {INT64_MIN, 7, -1, 7, 1 << 20, INT64_MIN, -1, INT64_MAX, 7, 0};
    static const int64_t distinct[] = {INT64_MIN, 7, -1, 1 << 20, INT64_MAX, 0};
    static const uint32_t numbers[] = {0, 1, 2, 1, 3, 0, 2, 4, 1, 5};
    static const uint32_t starts[] = {0, 10};
    struct eb_bag_job job = {.rows = keys, .starts = starts, .bag_count = 1, .has_zero_rows = true};
    struct eb_route_fetch fetch;
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    assert_true(eb_route_fetch_begin(&job, 10, &arena, &fetch));
    assert_int_equal(fetch.job.reduction, EB_REDUCTION_NONE);
    assert_int_equal(fetch.job.bag_count, 6);
    assert_memory_equal(fetch.job.rows, distinct, sizeof distinct);
    assert_memory_equal(fetch.numbers, numbers, sizeof numbers);
    assert_true(eb_route_fetch_begin(&job, 0, &arena, &fetch));
    assert_int_equal(fetch.job.bag_count, 0);
    eb_arena_deinit(&arena);
}

/* Many keys that differ in a few digits, in an order that is not theirs. */
static void tells_many_keys_apart(void **state)
{
    (void)state;
    enum { KEYS = 3000 };
    int64_t *keys = malloc(2 * KEYS * sizeof *keys);
    assert_non_null(keys);
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = (int64_t)((uint64_t)(i * 7919 % KEYS) << 40 | 5);
        keys[2 * KEYS - 1 - i] = keys[i];
    }
    struct eb_bag_job job = {.rows = keys};
    struct eb_route_fetch fetch;
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    assert_true(eb_route_fetch_begin(&job, 2 * KEYS, &arena, &fetch));
    assert_int_equal(fetch.job.bag_count, KEYS);
    assert_memory_equal(fetch.job.rows, keys, KEYS * sizeof *keys);
    for (uint32_t i = 0; i < 2 * KEYS; i++) {
        assert_int_equal(fetch.numbers[i], i < KEYS ? i : 2 * KEYS - 1 - i);
    }
    eb_arena_deinit(&arena);
    free(keys);
}

static void fails_to_fetch_if_the_arena_is_full(void **state)
{
    (void)state;
    static const int64_t keys[] = {1, 2, 1};
    struct eb_bag_job job = {.rows = keys};
    struct eb_route_fetch fetch;
    struct eb_arena arena;
    int failures = 0;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 0);
    for (size_t bytes = 0; !eb_route_fetch_begin(&job, 3, &arena, &fetch); bytes += 16) {
        failures++;
        eb_arena_reset(&arena, bytes);
    }
    assert_true(failures > 2);
    assert_int_equal(fetch.job.bag_count, 2);
    eb_arena_deinit(&arena);
}

EB_TEST_GROUP(route_fetch)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_sequences_of_keyed_tables),
        cmocka_unit_test(gives_the_sequences_of_whole_tables),
        cmocka_unit_test(gives_the_sequences_of_tables_without_keys),
        cmocka_unit_test(leaves_out_the_rows_of_a_lost_part),
        cmocka_unit_test(counts_stand_ins_only_where_they_were_not_reached),
        cmocka_unit_test(asks_for_each_key_once),
        cmocka_unit_test(tells_many_keys_apart),
        cmocka_unit_test(fails_to_fetch_if_the_arena_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
