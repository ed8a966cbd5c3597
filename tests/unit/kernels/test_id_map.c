#include "kernels/id_map.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static int64_t row_of(enum eb_id_map_kind kind, uint64_t seed, uint64_t row_count, int64_t id)
{
    struct eb_id_map map = {kind, seed};
    eb_id_map_rows(&map, row_count, &id, 1);
    return id;
}

static void gives_the_published_hash(void **state)
{
    (void)state;
    assert_true(eb_id_map_hash(0, 0) == UINT64_C(0xA706DD2F4D197E6F));
    assert_true(eb_id_map_hash(0, 1) == UINT64_C(0x08B4FDA8C892B50E));
    assert_true(eb_id_map_hash(0, -1) == UINT64_C(0x2DD82C88FA32B270));
    assert_true(eb_id_map_hash(42, 12345) == UINT64_C(0xCBF6B25960247D3B));
    assert_int_equal(row_of(EB_ID_MAP_HASH_MODULO, 42, 1000, 12345),
        (int64_t)(UINT64_C(0xCBF6B25960247D3B) % 1000));
    assert_int_equal(
        row_of(EB_ID_MAP_HASH_MODULO, 0, 7, -1), (int64_t)(UINT64_C(0x2DD82C88FA32B270) % 7));
}

static void floors_the_modulo_of_negative_ids(void **state)
{
    (void)state;
    static const int64_t of_five[] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0};
    for (int64_t id = -5; id <= 5; id++) {
        assert_int_equal(row_of(EB_ID_MAP_MODULO, 99, 5, id), of_five[id + 5]);
    }
    assert_int_equal(row_of(EB_ID_MAP_MODULO, 0, 10, INT64_MAX), 7);
    assert_int_equal(row_of(EB_ID_MAP_MODULO, 0, 10, INT64_MIN), 2);
    assert_int_equal(row_of(EB_ID_MAP_MODULO, 0, 1, INT64_MIN), 0);
    assert_int_equal(row_of(EB_ID_MAP_MODULO, 0, INT64_MAX, -1), INT64_MAX - 1);
}

static void gives_every_id_a_row(void **state)
{
    (void)state;
    int64_t ids[300];
    for (int kind = EB_ID_MAP_MODULO; kind <= EB_ID_MAP_HASH_MODULO; kind++) {
        struct eb_id_map map = {(enum eb_id_map_kind)kind, 7};
        for (unsigned i = 0; i < 300; i++) {
            ids[i] = (int64_t)(i * UINT64_C(0x9E3779B97F4A7C15));
        }
        eb_id_map_rows(&map, 11, ids, 300);
        unsigned seen = 0;
        for (unsigned i = 0; i < 300; i++) {
            assert_in_range(ids[i], 0, 10);
            seen |= 1U << ids[i];
        }
        assert_int_equal(seen, (1U << 11) - 1);
    }
}

static void hashes_otherwise_with_every_seed(void **state)
{
    (void)state;
    unsigned equal_count = 0;
    for (int64_t id = 0; id < 1000; id++) {
        equal_count += row_of(EB_ID_MAP_HASH_MODULO, 1, 1 << 20, id) ==
                       row_of(EB_ID_MAP_HASH_MODULO, 2, 1 << 20, id);
    }
    assert_true(equal_count < 3);
}

EB_TEST_GROUP(id_map)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_published_hash),
        cmocka_unit_test(floors_the_modulo_of_negative_ids),
        cmocka_unit_test(gives_every_id_a_row),
        cmocka_unit_test(hashes_otherwise_with_every_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
