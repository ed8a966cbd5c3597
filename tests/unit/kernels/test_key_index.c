#include "kernels/bag_ops.h"
#include "kernels/bag_variant.h"
#include "kernels/key_index.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/key_fixture.h"

#include <stdlib.h>
#include <string.h>

#define ROW_COUNT 20000
#define MISSING_ROW (-7)

static struct key_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    key_fixture_init(&fixture, KEYS_MIXED, ROW_COUNT);
    return key_fixture_build(&fixture) == EB_KEY_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    key_fixture_deinit(&fixture);
    return 0;
}

/* An entry of a plain map: keys in order, with their rows. */
struct pair {
    int64_t key;
    int64_t row;
};

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *left = a;
    const struct pair *right = b;
    return (left->key > right->key) - (left->key < right->key);
}

static struct pair *make_map(const struct key_fixture *from)
{
    struct pair *map = malloc(from->row_count * sizeof map[0] + 1);
    assert_non_null(map);
    for (uint64_t row = 0; row < from->row_count; row++) {
        map[row] = (struct pair){from->keys[row], (int64_t)row};
    }
    qsort(map, from->row_count, sizeof map[0], compare_pairs);
    return map;
}

static int64_t find_in_map(const struct pair *map, uint64_t count, int64_t key)
{
    struct pair wanted = {key, 0};
    const struct pair *found = bsearch(&wanted, map, count, sizeof map[0], compare_pairs);
    return found ? found->row : MISSING_ROW;
}

/* Returns a key of the set or close to one, which the table may or may not have. */
static int64_t near_key(enum key_set set, uint64_t row_count, uint64_t n)
{
    uint64_t row = n * UINT64_C(2654435761) % (row_count + 10);
    int64_t key = key_of_set(set, row);
    return n % 5 == 0 ? (int64_t)((uint64_t)key + n % 3 - 1) : key;
}

/* Expects every table of functions that runs here to find these rows. */
static void assert_takes(const struct eb_key_index *index, const int64_t *keys, uint64_t count,
    const int64_t *expected, uint64_t missing_count)
{
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        if (!eb_bag_ops_runs_here(ops)) {
            continue;
        }
        int64_t *rows = malloc(count * sizeof rows[0] + 1);
        assert_non_null(rows);
        memcpy(rows, keys, count * sizeof rows[0]);
        assert_int_equal(eb_bag_ops_variant(ops)->index->take_keys(index, MISSING_ROW, rows, count),
            missing_count);
        assert_memory_equal(rows, expected, count * sizeof rows[0]);
        free(rows);
    }
}

static void agrees_with_a_map(enum key_set set, uint64_t row_count)
{
    struct key_fixture here;
    key_fixture_init(&here, set, row_count);
    assert_int_equal(key_fixture_build(&here), EB_KEY_OK);
    struct pair *map = make_map(&here);
    enum { ASKED_MAX = 1000 };
    for (uint64_t count = 0; count < ASKED_MAX; count += count < 70 ? 1 : 310) {
        int64_t *rows = malloc(count * sizeof rows[0] + 1);
        int64_t expected[ASKED_MAX];
        uint64_t missing_count = 0;
        assert_non_null(rows);
        for (uint64_t i = 0; i < count; i++) {
            rows[i] = near_key(set, row_count, count * 1000 + i);
            expected[i] = find_in_map(map, row_count, rows[i]);
            missing_count += expected[i] == MISSING_ROW;
            int64_t row = eb_key_index_find(&here.index, rows[i]);
            assert_int_equal(row < 0 ? MISSING_ROW : row, expected[i]);
        }
        assert_takes(&here.index, rows, count, expected, missing_count);
        free(rows);
    }
    free(map);
    key_fixture_deinit(&here);
}

static void finds_what_a_map_finds(void **state)
{
    (void)state;
    static const uint64_t row_counts[] = {0, 1, 7, 100, 20000};
    for (int set = 0; set < KEY_SET_COUNT; set++) {
        for (size_t i = 0; i < sizeof row_counts / sizeof row_counts[0]; i++) {
            agrees_with_a_map((enum key_set)set, row_counts[i]);
        }
    }
}

/* Returns a copy of the fixture's bytes, for a test to damage. */
static void *copy_index(void)
{
    uint64_t byte_count = fixture.build.plan.index_bytes;
    void *copy = aligned_alloc(EB_KEY_INDEX_ALIGNMENT, byte_count);
    assert_non_null(copy);
    return memcpy(copy, fixture.build.index, byte_count);
}

static void refuses_headers_that_make_no_sense(void **state)
{
    (void)state;
    struct eb_key_index index;
    const char *reason = NULL;
    uint64_t byte_count = fixture.build.plan.index_bytes;
    struct eb_key_header *bytes = copy_index();
    struct eb_key_header sound = *bytes;
    assert_true(eb_key_index_open(&index, bytes, byte_count, ROW_COUNT, &reason));
    assert_false(eb_key_index_open(&index, bytes, byte_count, ROW_COUNT + 1, &reason));
    assert_string_equal(reason, "its number of rows differs from the table's");
    assert_false(eb_key_index_open(&index, bytes, byte_count - 64, ROW_COUNT, &reason));
    assert_string_equal(reason, "its size differs from what its header says");
    assert_false(eb_key_index_open(&index, bytes, byte_count - 1, ROW_COUNT, &reason));
    for (uint64_t shorter = 0; shorter < sizeof sound; shorter++) {
        assert_false(eb_key_index_open(&index, bytes, shorter, ROW_COUNT, &reason));
        assert_string_equal(reason, "it is shorter than its header");
    }
    for (size_t i = 0; i < sizeof sound; i++) {
        bool is_seed = i >= offsetof(struct eb_key_header, seed) &&
                       i < offsetof(struct eb_key_header, partition_count);
        ((uint8_t *)bytes)[i] ^= 1;
        assert_int_equal(eb_key_index_open(&index, bytes, byte_count, ROW_COUNT, &reason), is_seed);
        *bytes = sound;
    }
    bytes->partition_count = bytes->partition_count * bytes->partition_buckets;
    bytes->partition_buckets = 1;
    assert_false(eb_key_index_open(&index, bytes, byte_count, ROW_COUNT, &reason));
    assert_string_equal(
        reason, "its number of partitions, or of buckets in a partition, is invalid");
    free(bytes);
}

/* Opens damaged bytes and expects them to fail verification for this reason. */
static void assert_unsound(void *bytes, const char *expected)
{
    struct eb_key_index index;
    const char *reason = NULL;
    uint64_t bucket = 0;
    uint64_t *seen = malloc(eb_key_index_seen_bytes(ROW_COUNT));
    assert_non_null(seen);
    assert_true(
        eb_key_index_open(&index, bytes, fixture.build.plan.index_bytes, ROW_COUNT, &reason));
    assert_false(eb_key_index_verify(&index, seen, &bucket, UINT64_MAX, &reason));
    assert_string_equal(reason, expected);
    free(seen);
}

static struct eb_key_bucket *buckets_in(void *bytes)
{
    return (void *)((struct eb_key_header *)bytes + 1);
}

static void finds_what_is_wrong_with_buckets(void **state)
{
    (void)state;
    void *bytes = copy_index();
    struct eb_key_bucket *bucket = buckets_in(bytes);
    while (bucket->rows[1] == EB_KEY_ROW_NONE) {
        bucket++;
    }
    struct eb_key_bucket sound = *bucket;
    bucket->rows[0] = ROW_COUNT;
    assert_unsound(bytes, "a key leads to a row that the table does not have");
    bucket->rows[0] = sound.rows[1];
    assert_unsound(bytes, "a row has two keys");
    *bucket = sound;
    bucket->keys[1] = bucket->keys[0];
    assert_unsound(bytes, "a key is in a bucket where lookups do not find it");
    *bucket = sound;
    bucket->keys[0] ^= 1;
    assert_unsound(bytes, "a key is in a bucket where lookups do not find it");
    *bucket = sound;
    bucket->rows[0] = EB_KEY_ROW_NONE;
    assert_unsound(bytes, "there are rows without a key");
    ((struct eb_key_header *)bytes)->seed++;
    assert_unsound(bytes, "a key is in a bucket where lookups do not find it");
    free(bytes);
}

static void misses_no_mark(void **state)
{
    (void)state;
    void *bytes = copy_index();
    struct eb_key_bucket *bucket = buckets_in(bytes);
    while (bucket->marks == 0) {
        bucket++;
    }
    bucket->marks = 0;
    assert_unsound(bytes, "a key is in a bucket where lookups do not find it");
    free(bytes);
}

/* Buckets with arbitrary contents lead only to rows of the table, or to none. */
static void gives_no_row_that_there_is_not(void **state)
{
    (void)state;
    struct eb_key_index index;
    const char *reason = NULL;
    void *bytes = copy_index();
    struct eb_key_bucket *buckets = buckets_in(bytes);
    uint64_t bucket_count = fixture.build.plan.index_bytes / sizeof buckets[0] - 1;
    for (uint64_t i = 0; i < bucket_count; i++) {
        for (unsigned slot = 0; slot < EB_KEY_SLOTS; slot++) {
            buckets[i].rows[slot] += slot % 2 ? 3 : (uint32_t)i << 16;
        }
        buckets[i].marks = UINT32_MAX;
    }
    assert_true(
        eb_key_index_open(&index, bytes, fixture.build.plan.index_bytes, ROW_COUNT, &reason));
    int64_t rows[500];
    memcpy(rows, fixture.keys, sizeof rows);
    eb_key_index_take_rows(&index, MISSING_ROW, rows, 500);
    for (unsigned i = 0; i < 500; i++) {
        assert_true(rows[i] == MISSING_ROW || (rows[i] >= 0 && rows[i] < ROW_COUNT));
        int64_t row = eb_key_index_find(&index, fixture.keys[i]);
        assert_int_equal(row < 0 ? MISSING_ROW : row, rows[i]);
    }
    free(bytes);
}

EB_TEST_GROUP(key_index)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_a_map_finds),
        cmocka_unit_test(refuses_headers_that_make_no_sense),
        cmocka_unit_test(finds_what_is_wrong_with_buckets),
        cmocka_unit_test(misses_no_mark),
        cmocka_unit_test(gives_no_row_that_there_is_not),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
