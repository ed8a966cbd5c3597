#include "tests/bench/bench_ours.h"
#include "tests/bench/bench_theirs.h"
#include "tests/bench/bench_verify.h"
#include "tests/lib/test_group.h"
#include "tests/unit/bench/bench_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const enum eb_storage floats[] = {EB_STORAGE_F32, EB_STORAGE_F64, EB_STORAGE_F16,
    EB_STORAGE_BF16, EB_STORAGE_F8_E4M3, EB_STORAGE_F8_E5M2, EB_STORAGE_INT8, EB_STORAGE_INT4,
    EB_STORAGE_INT2};

static void finds_right_results_right(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof floats / sizeof floats[0]; n++) {
        for (unsigned reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_COUNT; reduction++) {
            struct bench_fixture fixture;
            bool is_weighted = reduction != EB_REDUCTION_MEAN && reduction != EB_REDUCTION_MAX &&
                               reduction != EB_REDUCTION_MIN;
            bench_fixture_init(&fixture, floats[n], is_weighted);
            fixture.bench.reduction = (enum eb_reduction)reduction;
            assert_true(eb_bench_verify_ours(&fixture.bench) <= 1);
            fixture.bench.output_type = floats[n] == EB_STORAGE_F64 ? EB_F64 : EB_BF16;
            assert_true(eb_bench_verify_ours(&fixture.bench) <= 1);
            bench_fixture_deinit(&fixture);
        }
    }
}

static void finds_integers_right(void **state)
{
    (void)state;
    static const enum eb_storage storages[] = {EB_STORAGE_I8, EB_STORAGE_U16, EB_STORAGE_I64};
    for (size_t n = 0; n < sizeof storages / sizeof storages[0]; n++) {
        struct bench_fixture fixture;
        bench_fixture_init(&fixture, storages[n], true);
        assert_true(eb_bench_verify_ours(&fixture.bench) <= 1);
        bench_fixture_deinit(&fixture);
    }
}

/* Computes a batch, changes the last element of its last bag, and verifies it. */
static double verify_changed(struct bench_fixture *fixture, float change)
{
    struct eb_bench_ours ours;
    eb_bench_ours_init(&ours, &fixture->bench, 0, 1);
    struct eb_bench_runner runner = eb_bench_ours_runner(&ours);
    runner.prepare(runner.self, 2);
    runner.run(runner.self);
    float *element = (float *)(void *)ours.out + BENCH_FIXTURE_BAGS * 24 - 1;
    *element += change;
    double worst = eb_bench_verify_results(&fixture->bench, 2, ours.out);
    eb_bench_ours_deinit(&ours);
    return worst;
}

static void finds_wrong_results_wrong(void **state)
{
    (void)state;
    struct bench_fixture fixture;
    bench_fixture_init(&fixture, EB_STORAGE_F32, true);
    assert_true(verify_changed(&fixture, 0) <= 1);
    assert_true(verify_changed(&fixture, 0.01f) > 1);
    assert_true(verify_changed(&fixture, -0.01f) > 1);
    assert_true(isinf(verify_changed(&fixture, NAN)));
    bench_fixture_deinit(&fixture);
}

/* Each batch is one call, and its results lie at an odd address. */
static void finds_a_single_call_right(void **state)
{
    (void)state;
    enum { BYTES = BENCH_FIXTURE_BAGS * 24 * sizeof(float) };
    for (unsigned n = EB_BENCH_HOT; n <= EB_BENCH_STEADY; n++) {
        struct bench_fixture fixture;
        struct eb_bench_ours ours;
        uint8_t place[BYTES + 2] = {0};
        bench_fixture_init(&fixture, EB_STORAGE_F32, true);
        fixture.bench.state = (enum eb_bench_state)n;
        eb_bench_ours_init(&ours, &fixture.bench, 0, 1);
        for (uint64_t position = 0; position <= BENCH_FIXTURE_BATCHES; position++) {
            uint64_t batch = eb_bench_case_batch(&fixture.bench, 0, position);
            eb_bench_ours_call(&ours, position, place + 1);
            assert_true(eb_bench_verify_results(&fixture.bench, batch, place + 1) <= 1);
        }
        assert_int_equal(place[0] + place[BYTES + 1], 0);
        eb_bench_ours_deinit(&ours);
        bench_fixture_deinit(&fixture);
    }
}

/* Expects the peer's results for rows of one storage to be right. */
static void assert_peer_right(
    enum eb_storage storage, enum eb_reduction reduction, bool is_weighted)
{
    static const enum eb_type types[] = {EB_F32, EB_F16, EB_BF16};
    struct bench_fixture fixture;
    bench_fixture_init(&fixture, storage, is_weighted);
    fixture.bench.reduction = reduction;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct eb_fbgemm_shape shape;
        fixture.bench.output_type = types[i];
        assert_true(eb_bench_theirs_shape(&fixture.bench, &shape));
        struct eb_fbgemm_kernel *kernel = eb_fbgemm_create(&shape);
        bool is_fp8 = storage == EB_STORAGE_F8_E4M3 || storage == EB_STORAGE_F8_E5M2;
        assert_true((!kernel) == (storage == EB_STORAGE_F64 || (is_fp8 && is_weighted)));
        if (kernel) {
            assert_true(eb_bench_verify_theirs(&fixture.bench, kernel) <= 1);
        }
        eb_fbgemm_destroy(kernel);
    }
    bench_fixture_deinit(&fixture);
}

static void finds_the_peer_right(void **state)
{
    (void)state;
    if (!eb_fbgemm_is_built()) {
        skip();
    }
    for (size_t n = 0; n < sizeof floats / sizeof floats[0]; n++) {
        assert_peer_right(floats[n], EB_REDUCTION_SUM, false);
        assert_peer_right(floats[n], EB_REDUCTION_SUM, true);
        assert_peer_right(floats[n], EB_REDUCTION_MEAN, false);
        assert_peer_right(floats[n], EB_REDUCTION_NONE, false);
        assert_peer_right(floats[n], EB_REDUCTION_NONE, true);
    }
}

EB_TEST_GROUP(bench_verify)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_right_results_right),
        cmocka_unit_test(finds_integers_right),
        cmocka_unit_test(finds_wrong_results_wrong),
        cmocka_unit_test(finds_a_single_call_right),
        cmocka_unit_test(finds_the_peer_right),
    };
    return cmocka_run_group_tests_name("bench_verify", tests, NULL, NULL);
}
