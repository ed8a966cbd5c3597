/* Every table of functions that this machine can run gives the reference's bytes, however a job is
 * cut and whatever its type, width, shape and alignment. */
#include "tests/variants/variant_trial.h"

#include <stdatomic.h>
#include <string.h>

static const uint32_t wide_dims[] = {192, 255, 256, 257, 384, 511, 512, 1000, 1024, 4096, 4099};
#define WIDE_DIM_COUNT (sizeof wide_dims / sizeof wide_dims[0])
#define NARROW_DIM_MAX 163

/* A sanitizer slows everything down and needs fewer trials to find what it looks for. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define F32_ROUNDS 1
#define OTHER_DIM_STEP 9
#else
#define F32_ROUNDS 4
#define OTHER_DIM_STEP 1
#endif

/* Pools in pieces of random size. */
static void pool_pieces(const struct trial *trial, const struct eb_bag_ops *ops)
{
    uint32_t first = 0;
    while (first < trial->job.bag_count) {
        uint32_t end = first + 1 + draw(trial->job.bag_count - first);
        eb_bag_pool(ops, &trial->job, first, end);
        first = end;
    }
}

static void compare_all_variants(struct trial *trial)
{
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        if (!eb_bag_ops_runs_here(ops)) {
            continue;
        }
        trial_clear_out(trial);
        eb_bag_pool(ops, &trial->job, 0, trial->job.bag_count);
        trial_compare(trial, eb_bag_ops_name(ops));
        trial_clear_out(trial);
        pool_pieces(trial, ops);
        trial_compare(trial, eb_bag_ops_name(ops));
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

/* f32 as a result of every table of floats, f64 as one of its own only. */
static enum eb_type draw_output_type(enum eb_type type)
{
    static const enum eb_type narrow[] = {EB_F32, EB_F16, EB_BF16};
    return eb_type_is_float(type) && draw(4) ? narrow[draw(3)] : EB_TYPE_UNSPECIFIED;
}

/* All reductions of a table of that width, weighted too where they may be. */
static void try_table(struct trial *trial, enum eb_storage storage, uint32_t dim)
{
    enum eb_type type = eb_storage_type(storage);
    for (int reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_COUNT; reduction++) {
        struct plan plan = {.storage = storage, .dim = dim};
        plan.reduction = (enum eb_reduction)reduction;
        plan.output_type = draw_output_type(type);
        if (!may_reduce(type, plan.reduction)) {
            continue;
        }
        trial_draw(trial, &plan, (enum shape)(draw(8) < 5 ? SHAPE_RAGGED : draw(SHAPE_COUNT)));
        compare_all_variants(trial);
        plan.is_weighted = may_be_weighted(plan.reduction);
        trial_draw(trial, &plan, (enum shape)draw(SHAPE_COUNT));
        compare_all_variants(trial);
    }
}

static void try_widths(enum eb_storage storage, uint32_t dim_step, unsigned rounds)
{
    struct trial trial;
    trial_init(&trial);
    for (unsigned round = 0; round < rounds; round++) {
        for (uint32_t dim = 1; dim <= NARROW_DIM_MAX; dim += dim_step) {
            try_table(&trial, storage, dim);
        }
    }
    for (size_t i = 0; i < WIDE_DIM_COUNT; i += dim_step) {
        try_table(&trial, storage, wide_dims[i]);
    }
    trial_deinit(&trial);
}

static void variants_equal_reference_on_f32(void **state)
{
    (void)state;
    try_widths(EB_STORAGE_F32, 1, F32_ROUNDS);
}

static void variants_equal_reference_on_other_storages(void **state)
{
    (void)state;
    for (int storage = EB_STORAGE_F64; storage < EB_STORAGE_INT8; storage++) {
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
    /* A thread sanitizer does not see the team's own synchronisation. */
#ifdef __SANITIZE_THREAD__
    const unsigned thread_counts[] = {1};
#else
    const unsigned thread_counts[] = {1, 2, 7};
#endif
    struct trial trial;
    trial_init(&trial);
    for (unsigned round = 0; round < 100; round++) {
        struct plan plan = {.storage = EB_STORAGE_F32, .dim = 1 + draw(NARROW_DIM_MAX)};
        plan.reduction = (enum eb_reduction)(EB_REDUCTION_SUM + draw(EB_REDUCTION_COUNT - 1));
        plan.is_weighted = may_be_weighted(plan.reduction);
        trial_draw(&trial, &plan, SHAPE_RAGGED);
        for (size_t i = 0; i < sizeof thread_counts / sizeof thread_counts[0]; i++) {
            trial_clear_out(&trial);
            struct supply supply = {.job = &trial.job};
            const struct eb_bag_team team = {
                .ops = eb_bag_ops_find(NULL),
                .schedules = &eb_bag_schedules_default,
                .thread_count = thread_counts[i],
                .next = next_tile,
                .done = ignore_done,
                .context = &supply,
            };
            (void)eb_bag_parallel_run(&team);
            trial_compare(&trial, "a team");
        }
    }
    trial_deinit(&trial);
}

static int set_up(void **state)
{
    (void)state;
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        print_message("%s: %s\n", eb_bag_ops_name(ops),
            eb_bag_ops_runs_here(ops) ? "tested" : "skipped, this machine cannot run it");
    }
    trial_seed();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_equal_reference_on_f32),
        cmocka_unit_test(variants_equal_reference_on_other_storages),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
