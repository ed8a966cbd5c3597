/* Every variant of the kernels that this machine can run gives the same bytes as the reference,
 * however a job is split, and for every type, width, shape and alignment. */
#include "tests/variants/variant_pieces.h"

#include "tests/lib/test_group.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t wide_dims[] = {
    192, 255, 256, 257, 384, 511, 512, 768, 1000, 1024, 4096, 4099};
#define WIDE_DIM_COUNT (sizeof wide_dims / sizeof wide_dims[0])
#define NARROW_DIM_MAX 163

/* Fewer trials with a sanitizer, because it is slow and finds errors within few trials. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define F32_ROUNDS 1
#define OTHER_DIM_STEP 9
#else
#define F32_ROUNDS 4
#define OTHER_DIM_STEP 1
#endif

/* EMBAG_TEST_WIDTHS=N tries only about every N-th width, for emulated machines. */
static uint32_t width_step;

static void compare_all_variants(struct fixture *fixture)
{
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        if (!eb_bag_ops_runs_here(ops)) {
            continue;
        }
        /* Pooling the whole job is not tried with the reference (n = 0): its result is the expected
         * one. */
        if (n > 0) {
            fixture_clear_out(fixture);
            eb_bag_pool(ops, &fixture->job, 0, fixture->job.bag_count);
            fixture_compare(fixture, eb_bag_ops_name(ops));
        }
        fixture_clear_out(fixture);
        pool_in_pieces(fixture, ops);
        fixture_compare(fixture, eb_bag_ops_name(ops));
    }
}

static bool may_be_weighted(enum eb_reduction reduction)
{
    return reduction != EB_REDUCTION_MEAN && reduction != EB_REDUCTION_MAX &&
           reduction != EB_REDUCTION_MIN;
}

static bool may_reduce(enum eb_type type, enum eb_reduction reduction)
{
    return eb_type_is_float(type) ||
           (reduction != EB_REDUCTION_WEIGHTED_MEAN && reduction != EB_REDUCTION_SQRTN);
}

/* Draws an element type that a table with this storage may have. */
static enum eb_type draw_type(enum eb_storage storage)
{
    static const enum eb_type narrow[] = {EB_F32, EB_F16, EB_BF16};
    switch (storage) {
    case EB_STORAGE_F16:
    case EB_STORAGE_BF16: return draw(2) ? EB_F32 : eb_storage_type(storage);
    case EB_STORAGE_F8_E4M3:
    case EB_STORAGE_F8_E5M2:
    case EB_STORAGE_INT8:
    case EB_STORAGE_INT4:
    case EB_STORAGE_INT2: return narrow[draw(3)];
    default: return eb_storage_type(storage);
    }
}

/* Draws f32, f16, bf16 or the table's own type as the output type of a floating-point table, and
 * the table's own type for others. */
static enum eb_type draw_output_type(enum eb_type type)
{
    static const enum eb_type narrow[] = {EB_F32, EB_F16, EB_BF16};
    return eb_type_is_float(type) && draw(4) ? narrow[draw(3)] : EB_TYPE_UNSPECIFIED;
}

/* Draws bags of a few rows more often than other shapes. */
static enum shape draw_shape(void)
{
    return draw(2) ? SHAPE_RAGGED : (enum shape)draw(SHAPE_COUNT);
}

/* Tries all reductions of a table of this width, also with weights if they allow them. */
static void try_table(struct fixture *fixture, enum eb_storage storage, uint32_t dim)
{
    for (int reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_COUNT; reduction++) {
        struct plan plan = {.storage = storage, .type = draw_type(storage), .dim = dim};
        plan.reduction = (enum eb_reduction)reduction;
        plan.output_type = draw_output_type(plan.type);
        if (!may_reduce(plan.type, plan.reduction)) {
            continue;
        }
        fixture_draw(fixture, &plan, draw_shape());
        compare_all_variants(fixture);
        plan.is_weighted = may_be_weighted(plan.reduction);
        fixture_draw(fixture, &plan, draw_shape());
        compare_all_variants(fixture);
    }
}

static void try_widths(enum eb_storage storage, uint32_t dim_step, unsigned rounds)
{
    struct fixture fixture;
    dim_step *= width_step;
    fixture_init(&fixture);
    for (unsigned round = 0; round < rounds; round++) {
        for (uint32_t dim = 1 + draw(dim_step); dim <= NARROW_DIM_MAX; dim += dim_step) {
            try_table(&fixture, storage, dim);
        }
    }
    for (size_t i = draw(dim_step); i < WIDE_DIM_COUNT; i += dim_step) {
        try_table(&fixture, storage, wide_dims[i]);
    }
    fixture_deinit(&fixture);
}

static void variants_equal_reference_on_f32(void **state)
{
    (void)state;
    try_widths(EB_STORAGE_F32, 1, F32_ROUNDS);
}

static void variants_equal_reference_on_other_storages(void **state)
{
    (void)state;
    for (int storage = EB_STORAGE_F64; storage < EB_STORAGE_COUNT; storage++) {
        try_widths((enum eb_storage)storage, OTHER_DIM_STEP, 1);
    }
}

/* Hands out a job's bags in tiles of a few rows. */
struct supply {
    const struct eb_bag_job *job;
    atomic_uint next_bag;
};

static bool next_tile(void *context, unsigned thread, bool may_wait, struct eb_bag_tile *tile)
{
    (void)thread;
    (void)may_wait;
    struct supply *supply = context;
    uint32_t first = atomic_fetch_add(&supply->next_bag, 2);
    if (first >= supply->job->bag_count) {
        return false;
    }
    uint32_t end = first + 2 < supply->job->bag_count ? first + 2 : supply->job->bag_count;
    *tile = (struct eb_bag_tile){
        .jobs = supply->job,
        .job_count = 1,
        .bag_first = first,
        .bag_end = end,
        .element_end = UINT32_MAX,
    };
    return true;
}

static void ignore_done(void *context, unsigned thread, const struct eb_bag_tile *tile)
{
    (void)context;
    (void)thread;
    (void)tile;
}

static void any_number_of_threads_gives_the_same_bytes(void **state)
{
    (void)state;
    /* The thread sanitizer does not see how the threads of a team synchronise. */
#ifdef __SANITIZE_THREAD__
    const unsigned thread_counts[] = {1};
#else
    const unsigned thread_counts[] = {1, 2, 7};
#endif
    struct fixture fixture;
    fixture_init(&fixture);
    for (unsigned round = 0; round < 100; round++) {
        struct plan plan = {.storage = EB_STORAGE_F32, .dim = 1 + draw(NARROW_DIM_MAX)};
        plan.reduction = (enum eb_reduction)(EB_REDUCTION_SUM + draw(EB_REDUCTION_COUNT - 1));
        plan.is_weighted = may_be_weighted(plan.reduction);
        fixture_draw(&fixture, &plan, SHAPE_RAGGED);
        for (size_t i = 0; i < sizeof thread_counts / sizeof thread_counts[0]; i++) {
            fixture_clear_out(&fixture);
            struct supply supply = {.job = &fixture.job};
            struct eb_bag_team team = {
                .ops = eb_bag_ops_find(NULL),
                .schedules = &eb_bag_schedules_default,
                .thread_count = thread_counts[i],
                .next = next_tile,
                .done = ignore_done,
                .context = &supply,
            };
            (void)eb_bag_parallel_run(&team);
            fixture_compare(&fixture, "a team");
        }
    }
    fixture_deinit(&fixture);
}

/* Fails if EMBAG_TEST_BEST=NAME is set and NAME is not the best variant that the machine can
 * run. */
static int check_best(void)
{
    const char *wanted = getenv("EMBAG_TEST_BEST");
    const char *best = eb_bag_ops_name(eb_bag_ops_find(NULL));
    if (!wanted || strcmp(wanted, best) == 0) {
        return 0;
    }
    print_error("The best variant on this machine is %s, expected %s\n", best, wanted);
    return -1;
}

static int set_up(void **state)
{
    (void)state;
    const struct eb_bag_ops *ops;
    const char *widths = getenv("EMBAG_TEST_WIDTHS");
    width_step = widths ? (uint32_t)strtoul(widths, NULL, 10) : 1;
    assert_int_not_equal(width_step, 0);
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        print_message("%s: %s\n", eb_bag_ops_name(ops),
            eb_bag_ops_runs_here(ops) ? "tested" : "skipped, this machine cannot run it");
    }
    draw_seed();
    return check_best();
}

EB_TEST_GROUP(variants)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_equal_reference_on_f32),
        cmocka_unit_test(variants_equal_reference_on_other_storages),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
