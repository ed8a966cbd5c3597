#include "client/cli/load_pool.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/load/load_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define I64_3 "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }"
#define I64_2 "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }"
#define F32_6 "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }"
#define INDICES 60 /* per table; enough for every key to occur */

static struct eb_scratch scratch;

static int open_scratch(void **state)
{
    (void)state;
    eb_scratch_init(&scratch);
    eb_scratch_write_npy(&scratch, "k.keys.npy", I64_3, 24);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    eb_scratch_deinit(&scratch);
    return 0;
}

/* Returns the words followed by --keys-file and the path of the file. */
static const char *with_file(const char *words, const char *name)
{
    static char text[2 * EB_SCRATCH_PATH_BYTES];
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&scratch, name, path);
    snprintf(text, sizeof text, "%s --keys-file %s", words, path);
    return text;
}

/* Returns the key of a row. The bytes of the file count up from 1. */
static int64_t key_at(unsigned row)
{
    uint64_t key = 0;
    for (unsigned byte = 0; byte < 8; byte++) {
        key |= (uint64_t)(8 * row + byte + 1) << 8 * byte;
    }
    return (int64_t)key;
}

static void expect_keys(const struct embag_query *query)
{
    const int64_t *indices = query->indices.data;
    unsigned seen = 0;
    assert_int_equal(query->indices.count, INDICES);
    for (unsigned i = 0; i < INDICES; i++) {
        unsigned row = 0;
        while (row < 3 && indices[i] != key_at(row)) {
            row++;
        }
        assert_in_range(row, 0, 2);
        seen |= 1U << row;
    }
    assert_int_equal(seen, 7);
}

static void draws_keys_for_a_keyed_table_alone(void **state)
{
    (void)state;
    struct eb_load_options options;
    struct eb_load_target target;
    struct eb_load_pool pool;
    load_fixture_make(&options, &target, &pool,
        with_file("--tables k,a,of_k --indices-per-bag 60 --requests 2", "k.keys.npy"));
    for (unsigned request = 0; request < 2; request++) {
        const struct embag_query *queries = pool.queries + 3 * (size_t)request;
        expect_keys(&queries[0]);
        expect_keys(&queries[2]);
        for (unsigned i = 0; i < INDICES; i++) {
            assert_in_range(((const int64_t *)queries[1].indices.data)[i], 0, 99);
        }
    }
    eb_load_pool_deinit(&pool);
    eb_load_target_deinit(&target);
}

static void expect_refused(const char *words)
{
    struct eb_load_options options;
    struct eb_load_target target;
    assert_int_equal(load_fixture_read(&options, words), EB_ARGUMENTS_READ);
    assert_false(eb_load_target_init(&target, &options, load_fixture_models()));
    assert_null(target.tables);
    assert_null(target.keys.keys);
}

static void refuses_what_are_no_keys_of_the_table(void **state)
{
    (void)state;
    eb_scratch_write_npy(&scratch, "two.npy", I64_2, 16);
    eb_scratch_write_npy(&scratch, "floats.npy", F32_6, 24);
    expect_refused("--tables k");
    expect_refused("--tables of_k");
    expect_refused(with_file("--tables a", "k.keys.npy"));
    expect_refused(with_file("--tables k,l", "k.keys.npy"));
    expect_refused(with_file("--tables k --verify", "k.keys.npy"));
    expect_refused(with_file("--tables k", "two.npy"));
    expect_refused(with_file("--tables k", "floats.npy"));
    expect_refused(with_file("--tables k", "absent.npy"));
    expect_refused(with_file("--tables k", "absent.embag"));
}

EB_TEST_GROUP(load_keys)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        FIXTURE(draws_keys_for_a_keyed_table_alone),
        FIXTURE(refuses_what_are_no_keys_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
