#include "kernels/key_index.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/key_fixture.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void assert_sound(const struct eb_key_index *index)
{
    uint64_t *seen = malloc(eb_key_index_seen_bytes(index->row_count) + 1);
    const char *reason = NULL;
    uint64_t bucket = 0;
    assert_non_null(seen);
    while (bucket < eb_key_index_bucket_count(index)) {
        if (!eb_key_index_verify(index, seen, &bucket, 1000, &reason)) {
            fail_msg("bucket %lu: %s", (unsigned long)bucket, reason);
        }
    }
    free(seen);
}

static void indexes_every_set_of_keys_at_every_size(void **state)
{
    (void)state;
    static const uint64_t row_counts[] = {
        0, 1, 2, 5, 9, 10, 11, 17, 33, 100, 999, 6143, 6144, 70000};
    for (int set = 0; set < KEY_SET_COUNT; set++) {
        for (size_t i = 0; i < sizeof row_counts / sizeof row_counts[0]; i++) {
            struct key_fixture fixture;
            key_fixture_init(&fixture, (enum key_set)set, row_counts[i]);
            assert_int_equal(key_fixture_build(&fixture), EB_KEY_OK);
            assert_sound(&fixture.index);
            for (uint64_t row = 0; row < fixture.row_count; row++) {
                assert_int_equal(eb_key_index_find(&fixture.index, fixture.keys[row]), row);
            }
            key_fixture_deinit(&fixture);
        }
    }
}

static void takes_at_most_16_bytes_a_row(void **state)
{
    (void)state;
    struct eb_key_plan plan;
    for (uint64_t rows = 0; rows < 100000; rows++) {
        assert_true(eb_key_build_plan(rows, &plan));
        assert_true(plan.index_bytes <= 192 + rows * 16);
        assert_true(rows < 200 || plan.index_bytes <= rows * 16);
    }
    assert_true(eb_key_build_plan(EB_KEY_INDEX_ROWS_MAX, &plan));
    assert_true(plan.index_bytes <= EB_KEY_INDEX_ROWS_MAX * 16);
    assert_true(plan.scratch_bytes <= 1 << 17);
    assert_false(eb_key_build_plan(EB_KEY_INDEX_ROWS_MAX + 1, &plan));
}

static void keeps_most_keys_in_their_first_bucket(void **state)
{
    (void)state;
    struct key_fixture fixture;
    key_fixture_init(&fixture, KEYS_SEQUENTIAL, 50000);
    assert_int_equal(key_fixture_build(&fixture), EB_KEY_OK);
    uint64_t late_count = 0;
    for (uint64_t row = 0; row < fixture.row_count; row++) {
        const struct eb_key_index *index = &fixture.index;
        uint64_t hash = eb_key_hash(index->seed, fixture.keys[row]);
        uint64_t partition = eb_key_partition(hash, index->partition_count);
        const struct eb_key_bucket *first = index->buckets + partition * index->partition_buckets +
                                            eb_key_first(hash, index->partition_buckets);
        late_count += eb_key_match(first, fixture.keys[row]) == 0;
    }
    assert_true(late_count > 0 && late_count < fixture.row_count * 13 / 100);
    key_fixture_deinit(&fixture);
}

/* Splits a fixture's work into this many shares. */
static void share_work(struct key_fixture *fixture, uint32_t share_count)
{
    struct eb_key_build *build = &fixture->build;
    free(build->counts);
    build->share_count = share_count;
    build->counts = malloc(share_count * build->plan.partition_count * sizeof build->counts[0]);
    assert_non_null(build->counts);
}

static void is_the_same_however_the_work_is_shared(void **state)
{
    (void)state;
    enum { ROWS = 140000 };
    /* The second share has no rows; the last has one. */
    static const uint64_t ends[] = {0, 5, 5, 70000, ROWS - 1, ROWS};
    struct key_fixture whole;
    struct key_fixture shared;
    key_fixture_init(&whole, KEYS_MIXED, ROWS);
    key_fixture_init(&shared, KEYS_MIXED, ROWS);
    assert_int_equal(key_fixture_build(&whole), EB_KEY_OK);
    struct eb_key_build *build = &shared.build;
    uint64_t digests[3];
    assert_int_equal(build->plan.slice_count, 3);
    for (uint64_t slice = 3; slice-- > 0;) {
        digests[slice] = eb_key_build_digest(build, slice);
    }
    share_work(&shared, 5);
    eb_key_build_join(build, digests);
    eb_key_build_begin(build, 0);
    for (uint32_t share = 5; share-- > 0;) {
        eb_key_build_count(build, share, (struct eb_key_range){ends[share], ends[share + 1]});
    }
    eb_key_build_allot(build);
    for (uint32_t share = 5; share-- > 0;) {
        for (uint64_t row = ends[share]; row < ends[share + 1]; row += 7000) {
            uint64_t end = row + 7000 < ends[share + 1] ? row + 7000 : ends[share + 1];
            eb_key_build_assign(build, share, (struct eb_key_range){row, end});
        }
    }
    for (uint64_t i = build->plan.partition_count; i-- > 0;) {
        memset(shared.scratch, 0xa5, build->plan.scratch_bytes);
        assert_int_equal(
            eb_key_build_place(build, (uint32_t)i, shared.scratch, &shared.pair), EB_KEY_OK);
    }
    assert_memory_equal(build->index, whole.build.index, build->plan.index_bytes);
    key_fixture_deinit(&whole);
    key_fixture_deinit(&shared);
}

/* One of several threads, each with its own share of the rows. */
struct worker {
    pthread_t thread;
    struct eb_key_build *build;
    uint32_t share;
    struct eb_key_range rows;
};

static void *count(void *argument)
{
    struct worker *worker = argument;
    eb_key_build_count(worker->build, worker->share, worker->rows);
    return NULL;
}

static void *assign(void *argument)
{
    struct worker *worker = argument;
    eb_key_build_assign(worker->build, worker->share, worker->rows);
    return NULL;
}

enum { THREAD_COUNT = 3 };

static void run_threads(struct worker workers[THREAD_COUNT], void *(*run)(void *argument))
{
    for (unsigned i = 0; i < THREAD_COUNT; i++) {
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREAD_COUNT; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    }
}

static void is_the_same_by_several_threads(void **state)
{
    (void)state;
    struct worker workers[THREAD_COUNT];
    struct key_fixture whole;
    struct key_fixture shared;
    key_fixture_init(&whole, KEYS_OF_EXTREMES, 60000);
    key_fixture_init(&shared, KEYS_OF_EXTREMES, 60000);
    assert_int_equal(key_fixture_build(&whole), EB_KEY_OK);
    struct eb_key_build *build = &shared.build;
    share_work(&shared, THREAD_COUNT);
    for (uint32_t i = 0; i < THREAD_COUNT; i++) {
        workers[i] = (struct worker){
            .build = build, .share = i, .rows = {UINT64_C(20000) * i, UINT64_C(20000) * (i + 1)}};
    }
    eb_key_build_digest_all(build);
    eb_key_build_begin(build, 0);
    run_threads(workers, count);
    eb_key_build_allot(build);
    run_threads(workers, assign);
    for (uint32_t i = 0; i < build->plan.partition_count; i++) {
        assert_int_equal(eb_key_build_place(build, i, shared.scratch, &shared.pair), EB_KEY_OK);
    }
    assert_memory_equal(build->index, whole.build.index, build->plan.index_bytes);
    key_fixture_deinit(&whole);
    key_fixture_deinit(&shared);
}

static void assert_duplicate(struct key_fixture *fixture, uint32_t first, uint32_t second)
{
    assert_int_equal(key_fixture_build(fixture), EB_KEY_DUPLICATE);
    assert_int_equal(fixture->pair.key, fixture->keys[first]);
    assert_int_equal(fixture->pair.first_row, first);
    assert_int_equal(fixture->pair.second_row, second);
}

static void names_both_rows_of_a_duplicate(void **state)
{
    (void)state;
    static const uint32_t pairs[][2] = {{0, 1}, {0, 29999}, {29998, 29999}, {123, 17171}};
    for (int set = 0; set < KEY_SET_COUNT; set++) {
        for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
            struct key_fixture fixture;
            key_fixture_init(&fixture, (enum key_set)set, 30000);
            fixture.keys[pairs[i][1]] = fixture.keys[pairs[i][0]];
            assert_duplicate(&fixture, pairs[i][0], pairs[i][1]);
            key_fixture_deinit(&fixture);
        }
    }
}

/* Duplicates each row's key in turn, whether that key is in its first bucket or in its second. */
static void finds_a_duplicate_of_any_row(void **state)
{
    (void)state;
    uint32_t row_count = 600;
    for (uint32_t row = 0; row + 1 < row_count; row++) {
        struct key_fixture fixture;
        key_fixture_init(&fixture, KEYS_SEQUENTIAL, row_count);
        fixture.keys[row_count - 1] = fixture.keys[row];
        assert_duplicate(&fixture, row, row_count - 1);
        key_fixture_deinit(&fixture);
    }
}

/* Tries several numbers of copies of one key, from two to more than a partition holds. Some are
 * more than the two buckets of the key hold. */
static void names_two_rows_of_many_with_one_key(void **state)
{
    (void)state;
    static const uint64_t copies[] = {2, 6, 11, 40, 4000, 30000};
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++) {
        struct key_fixture fixture;
        key_fixture_init(&fixture, KEYS_SEQUENTIAL, 30000);
        for (uint64_t row = 0; row < copies[i]; row++) {
            fixture.keys[row] = -5;
        }
        assert_duplicate(&fixture, 0, 1);
        key_fixture_deinit(&fixture);
    }
}

static void reads_keys_of_any_alignment(void **state)
{
    (void)state;
    struct key_fixture fixture;
    key_fixture_init(&fixture, KEYS_MIXED, 500);
    uint8_t *bytes = malloc(500 * sizeof(int64_t) + 3);
    assert_non_null(bytes);
    memcpy(bytes + 3, fixture.keys, 500 * sizeof(int64_t));
    fixture.build.keys = bytes + 3;
    assert_int_equal(key_fixture_build(&fixture), EB_KEY_OK);
    assert_int_equal(eb_key_index_find(&fixture.index, fixture.keys[499]), 499);
    key_fixture_deinit(&fixture);
    free(bytes);
}

/* Begins an attempt with the current keys. */
static void begin_build(struct eb_key_build *build, uint32_t attempt)
{
    build->share_count = 1;
    eb_key_build_digest_all(build);
    eb_key_build_begin(build, attempt);
}

/* Returns the key that eb_key_hash maps to `hash`. */
static int64_t find_key(uint64_t seed, uint64_t hash)
{
    uint64_t x = hash ^ hash >> 31 ^ hash >> 62;
    x *= UINT64_C(0x319642B2D24D8EC3);
    x = x ^ x >> 27 ^ x >> 54;
    x *= UINT64_C(0x96DE1B173F119089);
    x = x ^ x >> 30 ^ x >> 60;
    return (int64_t)(x - seed);
}

/* For the seed of each attempt at a table, finds 12 keys that the seed maps to two buckets of five
 * slots. If the seeds could be known in advance, a table with these keys would defeat every
 * attempt. */
static void no_keys_can_be_chosen_for_seeds_that_are_known(void **state)
{
    (void)state;
    enum { KEYS_PER_SEED = 12 };
    struct key_fixture fixture;
    key_fixture_init(&fixture, KEYS_SEQUENTIAL, 3000);
    for (uint32_t attempt = 0; attempt < EB_KEY_ATTEMPTS_MAX; attempt++) {
        struct eb_key_header header;
        begin_build(&fixture.build, attempt);
        memcpy(&header, fixture.build.index, sizeof header);
        for (uint64_t i = 0; i < KEYS_PER_SEED; i++) {
            int64_t key = find_key(header.seed, i << 40);
            assert_int_equal(eb_key_hash(header.seed, key), i << 40);
            fixture.keys[attempt * KEYS_PER_SEED + i] = key;
        }
    }
    assert_int_equal(key_fixture_build(&fixture), EB_KEY_OK);
    assert_sound(&fixture.index);
    key_fixture_deinit(&fixture);
}

static void seeds_depend_on_every_key_and_on_their_order(void **state)
{
    (void)state;
    struct key_fixture fixture;
    key_fixture_init(&fixture, KEYS_SEQUENTIAL, 100);
    struct eb_key_header before;
    struct eb_key_header after;
    begin_build(&fixture.build, 0);
    memcpy(&before, fixture.build.index, sizeof before);
    for (uint64_t row = 0; row + 1 < 100; row++) {
        int64_t key = fixture.keys[row];
        fixture.keys[row] = fixture.keys[row + 1];
        fixture.keys[row + 1] = key;
        begin_build(&fixture.build, 0);
        memcpy(&after, fixture.build.index, sizeof after);
        assert_true(after.seed != before.seed);
        before = after;
    }
    key_fixture_deinit(&fixture);
}

/* 17 keys have 4 buckets of 5 slots. In one table in two thousand, 16 of the keys have only three
 * buckets between them. */
static void begins_again_where_keys_fall_badly(void **state)
{
    (void)state;
    unsigned again_count = 0;
    for (int64_t table = 0; table < 20000; table++) {
        struct key_fixture fixture;
        key_fixture_init(&fixture, KEYS_SEQUENTIAL, 17);
        fixture.keys[0] = -table - 1;
        assert_int_equal(key_fixture_build(&fixture), EB_KEY_OK);
        struct eb_key_header header;
        begin_build(&fixture.build, 0);
        memcpy(&header, fixture.build.index, sizeof header);
        if (fixture.index.seed != header.seed) {
            again_count++;
            assert_int_equal(key_fixture_build(&fixture), EB_KEY_OK);
            assert_sound(&fixture.index);
        }
        key_fixture_deinit(&fixture);
    }
    assert_in_range(again_count, 1, 100);
}

EB_TEST_GROUP(key_build)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indexes_every_set_of_keys_at_every_size),
        cmocka_unit_test(takes_at_most_16_bytes_a_row),
        cmocka_unit_test(keeps_most_keys_in_their_first_bucket),
        cmocka_unit_test(is_the_same_however_the_work_is_shared),
        cmocka_unit_test(is_the_same_by_several_threads),
        cmocka_unit_test(names_both_rows_of_a_duplicate),
        cmocka_unit_test(finds_a_duplicate_of_any_row),
        cmocka_unit_test(names_two_rows_of_many_with_one_key),
        cmocka_unit_test(reads_keys_of_any_alignment),
        cmocka_unit_test(no_keys_can_be_chosen_for_seeds_that_are_known),
        cmocka_unit_test(seeds_depend_on_every_key_and_on_their_order),
        cmocka_unit_test(begins_again_where_keys_fall_badly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
