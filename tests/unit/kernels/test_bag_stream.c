/* A stream gives the bytes of the reference, with every schedule and however jobs are cut into
 * tiles. The stream is compiled into this file, so that calls of eb_bag_prefetch_heads, by which it
 * announces the rows that it pools next, are noted here. */
#define eb_bag_stream_init noted_stream_init
#define eb_bag_stream_pool noted_stream_pool
#define eb_bag_pool noted_pool
#define eb_bag_prefetch_heads note_heads
#include "kernels/bag_stream.c"
#undef eb_bag_stream_init
#undef eb_bag_stream_pool
#undef eb_bag_pool
#undef eb_bag_prefetch_heads

#include "kernels/element.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <stdlib.h>
#include <string.h>

void eb_bag_prefetch_heads(struct eb_bag_prefetch *prefetch, uint64_t row_count);

/* Fewer widths with a sanitizer, because it is slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DIM_STEP 20
#define WIDE_STEP 4
#else
#define DIM_STEP 6
#define WIDE_STEP 2
#endif

#define ROW_COUNT 300
#define JOB_COUNT 6
#define INDICES_MAX 512
#define PARTS_MAX 64
#define NO_TARGET UINT64_MAX

static uint64_t part_rows[PARTS_MAX]; /* row counts of the last calls of note_heads */
static unsigned part_count;

void note_heads(struct eb_bag_prefetch *prefetch, uint64_t row_count)
{
    part_rows[part_count++ % PARTS_MAX] = row_count;
    eb_bag_prefetch_heads(prefetch, row_count);
}

static uint64_t stream_seed = 1;

static uint32_t draw_stream(uint32_t below)
{
    stream_seed = stream_seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((stream_seed >> 33) % below);
}

/* One of every kind of schedules for which functions are compiled, and some others. */
static const struct eb_bag_schedule all_schedules[] = {
    {0, false, 0, false},
    {0, false, 16, true},
    {0, false, 32, false},
    {64, false, 32, false},
    {64, true, 4, true},
    {64, false, 16, true},
    {64, false, 0, false},
    {32, true, 0, false},
    {0, false, 1, false},
    {0, false, EB_BAG_SCHEDULE_ROWS_MAX, true},
    {EB_BAG_SCHEDULE_ROWS_MAX, false, 1, false},
};
#define SCHEDULE_COUNT (sizeof all_schedules / sizeof all_schedules[0])

/* Rows of each bag of the jobs. The jobs have long bags, bags of one row, empty bags and no bags.
 */
static const uint32_t bags_of_job[JOB_COUNT][10] = {
    {3, 0, 1, 40, 300, 5, 5, 0, 70, 2}, {0, 0}, {17, 4, 4}, {0}, {0}, {100}};
static const uint32_t bag_counts[JOB_COUNT] = {10, 2, 3, 330, 0, 1};
#define REPEATED_JOB 0 /* its bag 6 is the same as bag 5 */
#define SINGLE_JOB 3   /* every bag has one row */

/* The properties of a lookup. */
struct stream_case {
    enum eb_storage storage;
    enum eb_type type;
    enum eb_type output_type;
    uint32_t dim;
    enum eb_reduction reduction;
    bool is_weighted;
    bool has_zero_rows;
    bool has_vector_rows; /* in place of the zero rows */
    bool has_scales_apart;
    uint32_t index_width;
    uint64_t gap_bytes; /* between rows */
};

struct stream_lookup {
    struct eb_table table;
    uint8_t *memory;
    struct eb_row_scale *scales;
    uint8_t *vector;
    int64_t lengths[JOB_COUNT][INDICES_MAX];
    void *indices[JOB_COUNT]; /* no longer than needed, for the address sanitizer */
    void *weights[JOB_COUNT];
    struct bag_fixture checked[JOB_COUNT]; /* with the results of the reference */
    struct eb_bag_job jobs[JOB_COUNT];
    size_t out_bytes[JOB_COUNT];
};

/* ---- lookups ---- */

static void fill_values(enum eb_storage storage, uint8_t *bytes, size_t count)
{
    bool is_float = !eb_storage_is_code(storage) && storage < EB_STORAGE_F8_E4M3 &&
                    eb_type_is_float((enum eb_type)storage);
    size_t element_bytes = is_float ? eb_storage_bytes(storage) : 1;
    for (size_t at = 0; at + element_bytes <= count; at += element_bytes) {
        if (is_float) {
            double value = ((double)draw_stream(1 << 20) - (1 << 19)) / (1 << 18);
            eb_element_store_float((enum eb_type)storage, value, bytes + at);
        } else {
            bytes[at] = (uint8_t)draw_stream(256);
        }
    }
}

static void make_stream_table(struct stream_lookup *lookup, const struct stream_case *plan)
{
    bool is_code = eb_storage_is_code(plan->storage);
    size_t before = is_code && !plan->has_scales_apart ? sizeof(struct eb_row_scale) : 0;
    size_t row_bytes = before + eb_storage_row_bytes(plan->storage, plan->dim);
    size_t stride = row_bytes + plan->gap_bytes;
    size_t bytes = (ROW_COUNT * stride + 63) / 64 * 64;
    lookup->memory = aligned_alloc(64, bytes);
    lookup->scales = calloc(ROW_COUNT, sizeof lookup->scales[0]);
    size_t vector_bytes = plan->dim * eb_type_bytes(plan->type);
    lookup->vector = malloc(vector_bytes);
    assert_non_null(lookup->memory);
    assert_non_null(lookup->scales);
    assert_non_null(lookup->vector);
    fill_values(plan->storage, lookup->memory, bytes);
    fill_values((enum eb_storage)plan->type, lookup->vector, vector_bytes);
    for (size_t row = 0; row < ROW_COUNT; row++) {
        struct eb_row_scale scale = {(float)draw_stream(999) / 777, (float)draw_stream(99) / -7};
        lookup->scales[row] = scale;
        memcpy(lookup->memory + row * stride, &scale, before);
    }
    lookup->table = (struct eb_table){
        .rows = lookup->memory + before,
        .row_count = ROW_COUNT,
        .row_stride_bytes = stride,
        .row_elements = plan->dim,
        .storage = plan->storage,
        .type = plan->type,
        .unknown_row = plan->has_vector_rows ? EB_ROW_VECTOR : -1,
        .vector = plan->has_vector_rows ? lookup->vector : NULL,
    };
    if (is_code) {
        lookup->table.scales = before > 0 ? (void *)lookup->memory : (void *)lookup->scales;
        lookup->table.scale_stride_bytes = before > 0 ? stride : sizeof lookup->scales[0];
    }
}

static struct eb_int_array make_stream_indices(
    struct stream_lookup *lookup, const struct stream_case *plan, unsigned n, size_t count)
{
    struct eb_int_array array = {NULL, count * plan->index_width, plan->index_width};
    uint8_t *bytes = malloc(array.bytes > 0 ? array.bytes : 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++) {
        int64_t index = draw_stream(ROW_COUNT);
        if ((plan->has_zero_rows || plan->has_vector_rows) && draw_stream(16) == 0) {
            index = -1;
        }
        memcpy(bytes + i * plan->index_width, &index, plan->index_width);
    }
    if (n == REPEATED_JOB) {
        size_t bag = 3 + 1 + 40 + 300;
        memcpy(bytes + (bag + 5) * array.width, bytes + bag * array.width, 5 * array.width);
    }
    lookup->indices[n] = bytes;
    array.data = bytes;
    return array;
}

static void make_stream_job(
    struct stream_lookup *lookup, const struct stream_case *plan, unsigned n)
{
    struct eb_bag_query query = query_of(&lookup->table);
    size_t count = 0;
    for (uint32_t bag = 0; bag < bag_counts[n]; bag++) {
        lookup->lengths[n][bag] = n == SINGLE_JOB ? 1 : bags_of_job[n][bag];
        count += (size_t)lookup->lengths[n][bag];
    }
    query.reduction = plan->reduction;
    query.output_type = plan->output_type;
    query.missing = plan->has_vector_rows ? EB_MISSING_UNKNOWN_ROW
                    : plan->has_zero_rows ? EB_MISSING_ZERO
                                          : EB_MISSING_ERROR;
    query.layout = EB_LAYOUT_LENGTHS;
    query.bounds = (struct eb_int_array){lookup->lengths[n], bag_counts[n] * sizeof(int64_t), 8};
    query.indices = make_stream_indices(lookup, plan, n, count);
    query.has_default = n > 0;
    query.default_index = ROW_COUNT - 1;
    if (plan->is_weighted) {
        query.weights_type = plan->type;
        query.weights_bytes = count * eb_type_bytes(plan->type);
        lookup->weights[n] = malloc(query.weights_bytes > 0 ? query.weights_bytes : 1);
        assert_non_null(lookup->weights[n]);
        fill_values((enum eb_storage)plan->type, lookup->weights[n], query.weights_bytes);
        query.weights = lookup->weights[n];
    }
    struct bag_fixture *checked = &lookup->checked[n];
    if (!bag_fixture_check(checked, &query)) {
        fail_msg("%s", checked->error.text);
    }
    bag_fixture_pool(checked, eb_bag_ops_find("ref"));
    lookup->out_bytes[n] = checked->extent.result_rows * checked->extent.result_row_bytes;
    lookup->jobs[n] = checked->job;
    lookup->jobs[n].out = malloc(lookup->out_bytes[n] > 0 ? lookup->out_bytes[n] : 1);
    assert_non_null(lookup->jobs[n].out);
}

static struct stream_lookup *make_lookup(const struct stream_case *plan)
{
    struct stream_lookup *lookup = calloc(1, sizeof *lookup);
    assert_non_null(lookup);
    make_stream_table(lookup, plan);
    for (unsigned n = 0; n < JOB_COUNT; n++) {
        make_stream_job(lookup, plan, n);
    }
    return lookup;
}

static void free_lookup(struct stream_lookup *lookup)
{
    for (unsigned n = 0; n < JOB_COUNT; n++) {
        free(lookup->jobs[n].out);
        free(lookup->indices[n]);
        free(lookup->weights[n]);
        bag_fixture_release(&lookup->checked[n]);
    }
    free(lookup->memory);
    free(lookup->scales);
    free(lookup->vector);
    free(lookup);
}

/* ---- comparisons ---- */

static void use_one_schedule(
    const struct eb_bag_schedule *schedule, struct eb_bag_schedules *schedules)
{
    *schedules = (struct eb_bag_schedules){.cached_bytes = 0};
    eb_bag_schedule_spread(schedule, schedules);
}

/* Pools all jobs in tiles of about `bytes_target`. If `is_known`, each tile is announced by the one
 * before it. */
static void pool_tiles(struct eb_bag_stream *stream, const struct eb_bag_job *jobs,
    uint64_t bytes_target, bool is_known)
{
    struct eb_bag_cut cut = {0};
    struct eb_bag_tile tiles[2];
    bool is_left = !eb_bag_cut_is_over(jobs, JOB_COUNT, &cut);
    if (is_left) {
        eb_bag_cut_tile(jobs, JOB_COUNT, bytes_target, &cut, &tiles[0]);
    }
    while (is_left) {
        is_left = !eb_bag_cut_is_over(jobs, JOB_COUNT, &cut);
        if (is_left) {
            eb_bag_cut_tile(jobs, JOB_COUNT, bytes_target, &cut, &tiles[1]);
        }
        noted_stream_pool(stream, &tiles[0], is_left && is_known ? &tiles[1] : NULL);
        tiles[0] = tiles[1];
    }
}

static void expect_same_results(const struct stream_lookup *lookup, const struct stream_case *plan,
    const struct eb_bag_schedule *schedule, const char *who)
{
    for (unsigned n = 0; n < JOB_COUNT; n++) {
        if (memcmp(lookup->jobs[n].out, lookup->checked[n].out, lookup->out_bytes[n]) != 0) {
            char text[EB_BAG_SCHEDULE_TEXT_BYTES];
            eb_bag_schedule_format(schedule, text);
            fail_msg("%s with %s: job %u, %s of %s as %s, dim %u, %sweighted, to %s", who, text, n,
                eb_reduction_name(plan->reduction), eb_storage_name(plan->storage),
                eb_type_name(plan->type), plan->dim, plan->is_weighted ? "" : "not ",
                eb_type_name(lookup->jobs[n].output_type));
        }
    }
}

/* Pools the lookup with the functions of every instruction set but the reference, with every
 * schedule, and cut in one of several ways. */
static void compare_with_every_schedule(const struct stream_case *plan)
{
    static const uint64_t targets[] = {1, 3000, 60000, NO_TARGET};
    struct stream_lookup *lookup = make_lookup(plan);
    const struct eb_bag_ops *ops;
    for (size_t n = 1; (ops = eb_bag_ops_at(n)); n++) {
        for (size_t i = 0; i < SCHEDULE_COUNT && eb_bag_ops_runs_here(ops); i++) {
            struct eb_bag_schedules schedules;
            struct eb_bag_stream stream;
            use_one_schedule(&all_schedules[i], &schedules);
            noted_stream_init(&stream, ops, &schedules);
            for (unsigned job = 0; job < JOB_COUNT; job++) {
                memset(lookup->jobs[job].out, 0xa5, lookup->out_bytes[job]);
            }
            pool_tiles(&stream, lookup->jobs, targets[draw_stream(4)], draw_stream(4) > 0);
            expect_same_results(lookup, plan, &all_schedules[i], eb_bag_ops_name(ops));
        }
    }
    free_lookup(lookup);
}

static bool may_reduce_so(enum eb_type type, enum eb_reduction reduction, bool is_weighted)
{
    if (is_weighted && (reduction == EB_REDUCTION_MEAN || reduction == EB_REDUCTION_MAX ||
                           reduction == EB_REDUCTION_MIN)) {
        return false;
    }
    return eb_type_is_float(type) ||
           (reduction != EB_REDUCTION_WEIGHTED_MEAN && reduction != EB_REDUCTION_SQRTN);
}

static enum eb_type draw_table_type(enum eb_storage storage)
{
    static const enum eb_type narrow[] = {EB_F32, EB_F16, EB_BF16};
    enum eb_type type = eb_storage_type(storage);
    enum eb_type other = narrow[draw_stream(3)];
    return eb_storage_holds(storage, other) ? other : type;
}

static enum eb_type draw_result_type(enum eb_type type)
{
    static const enum eb_type types[] = {EB_TYPE_UNSPECIFIED, EB_F32, EB_F16, EB_BF16};
    return eb_type_is_float(type) ? types[draw_stream(4)] : EB_TYPE_UNSPECIFIED;
}

/* Returns whether the machine is emulated, and so slow that little is to be tried. */
static bool is_emulated(void)
{
    return getenv("EMBAG_TEST_WIDTHS");
}

static void compare_reductions(enum eb_storage storage, uint32_t dim)
{
    int step = is_emulated() ? 3 : 1;
    for (int reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_COUNT; reduction += step) {
        for (int is_weighted = 0; is_weighted < 2; is_weighted++) {
            struct stream_case plan = {
                .storage = storage,
                .type = draw_table_type(storage),
                .dim = dim,
                .reduction = (enum eb_reduction)reduction,
                .is_weighted = is_weighted,
                .has_zero_rows = draw_stream(4) == 0,
                .has_vector_rows = draw_stream(4) == 0,
                .has_scales_apart = draw_stream(4) == 0,
                .index_width = draw_stream(2) ? 4 : 8,
                .gap_bytes = draw_stream(3) == 0 ? draw_stream(70) : 0,
            };
            plan.output_type = draw_result_type(plan.type);
            if (may_reduce_so(plan.type, plan.reduction, plan.is_weighted)) {
                compare_with_every_schedule(&plan);
            }
        }
    }
}

/* Widths that one function pools, in one pass or several, and widths that need several functions.
 * EMBAG_TEST_WIDTHS, which is set for emulated machines, leaves one of each and some reductions. */
static void compare_widths(enum eb_storage storage, uint32_t dim_step)
{
    static const uint32_t wide[] = {48, 64, 96, 100, 128, 192, 256, 512, 1000};
    uint32_t wide_step = is_emulated() ? sizeof wide / sizeof wide[0] : WIDE_STEP;
    dim_step = is_emulated() ? 40 : dim_step;
    for (uint32_t dim = 1 + draw_stream(dim_step); dim <= 40; dim += dim_step) {
        compare_reductions(storage, dim);
    }
    for (size_t i = draw_stream(wide_step); i < sizeof wide / sizeof wide[0]; i += wide_step) {
        compare_reductions(storage, wide[i]);
    }
}

static void pools_f32_as_the_reference(void **state)
{
    (void)state;
    compare_widths(EB_STORAGE_F32, DIM_STEP / 3);
}

static void pools_f64_as_the_reference(void **state)
{
    (void)state;
    compare_widths(EB_STORAGE_F64, DIM_STEP);
}

static void pools_halves_as_the_reference(void **state)
{
    (void)state;
    compare_widths(EB_STORAGE_F16, DIM_STEP);
    compare_widths(EB_STORAGE_BF16, DIM_STEP);
}

static void pools_fp8_as_the_reference(void **state)
{
    (void)state;
    compare_widths(EB_STORAGE_F8_E4M3, DIM_STEP);
    compare_widths(EB_STORAGE_F8_E5M2, DIM_STEP);
}

static void pools_codes_as_the_reference(void **state)
{
    (void)state;
    compare_widths(EB_STORAGE_INT8, DIM_STEP);
    compare_widths(EB_STORAGE_INT4, DIM_STEP);
    compare_widths(EB_STORAGE_INT2, DIM_STEP);
}

static void pools_integers_as_the_reference(void **state)
{
    (void)state;
    compare_widths(EB_STORAGE_I8, DIM_STEP);
    compare_widths(EB_STORAGE_U32, DIM_STEP);
    compare_widths(EB_STORAGE_I64, DIM_STEP);
}

/* ---- parts of long ranges ---- */

#define PART_INDICES_MAX 1000

/* The work that follows a job. */
enum follower { NOTHING, ANOTHER_JOB, ANOTHER_TILE };

/* Pools a job of bags of these sizes. Expects that it is pooled in parts of `parts` rows; a list of
 * sizes or of parts ends with 0. */
static void expect_parts(const uint32_t *sizes, const uint64_t *parts, enum follower follower)
{
    static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static int64_t indices[PART_INDICES_MAX];
    int64_t lengths[PART_INDICES_MAX];
    uint32_t bag_count = 0;
    int64_t index_count = 0;
    for (; sizes[bag_count] > 0; bag_count++) {
        lengths[bag_count] = sizes[bag_count];
        index_count += sizes[bag_count];
    }
    assert_in_range(index_count, 1, PART_INDICES_MAX);
    for (int64_t i = 0; i < index_count; i++) {
        indices[i] = i % 4;
    }
    struct eb_table table = table_of(EB_F32, values, 4, 2);
    struct eb_bag_query query = query_of(&table);
    query.layout = EB_LAYOUT_LENGTHS;
    query.bounds = (struct eb_int_array){lengths, bag_count * sizeof lengths[0], 8};
    query.indices = (struct eb_int_array){indices, (uint64_t)index_count * sizeof(int64_t), 8};
    struct bag_fixture fixture;
    assert_true(bag_fixture_check(&fixture, &query));
    bag_fixture_pool(&fixture, eb_bag_ops_find("ref"));
    struct eb_bag_job jobs[2] = {fixture.job, fixture.job};
    float out[2][2 * PART_INDICES_MAX];
    jobs[0].out = (uint8_t *)out[0];
    jobs[1].out = (uint8_t *)out[1];
    struct eb_bag_schedules schedules;
    struct eb_bag_stream stream;
    use_one_schedule(&all_schedules[3], &schedules);
    noted_stream_init(&stream, eb_bag_ops_find(NULL), &schedules);
    struct eb_bag_tile tile = {.jobs = jobs,
        .job_count = follower == ANOTHER_JOB ? 2 : 1,
        .bag_end = bag_count,
        .element_end = UINT32_MAX};
    struct eb_bag_tile next = tile;
    next.jobs = &jobs[1];
    part_count = 0;
    noted_stream_pool(&stream, &tile, follower == ANOTHER_TILE ? &next : NULL);
    unsigned count = 0;
    for (; parts[count] > 0; count++) {
        assert_int_equal(part_rows[count], parts[count]);
    }
    assert_int_equal(part_count, follower == ANOTHER_JOB ? count + 1 : count);
    size_t bytes = bag_count * 2 * sizeof(float);
    assert_memory_equal(out[0], fixture.out, bytes);
    if (follower == ANOTHER_JOB) {
        assert_memory_equal(out[1], fixture.out, bytes);
    }
    bag_fixture_release(&fixture);
}
#define SIZES(...) ((const uint32_t[]){__VA_ARGS__, 0})
#define PARTS(...) ((const uint64_t[]){__VA_ARGS__, 0})

/* Returns whether this machine has functions that prefetch. */
static bool has_prefetches(void)
{
    return eb_bag_ops_variant(eb_bag_ops_find(NULL))->prefetches;
}

static void cuts_long_ranges_before_others(void **state)
{
    (void)state;
    if (!has_prefetches()) {
        skip();
    }
    expect_parts(SIZES(100, 100, 56), PARTS(256), ANOTHER_JOB);
    expect_parts(SIZES(100, 100, 57), PARTS(100, 157), ANOTHER_JOB);
    expect_parts(SIZES(100, 100, 63), PARTS(100, 163), ANOTHER_JOB);
    expect_parts(SIZES(100, 100, 64), PARTS(200, 64), ANOTHER_JOB);
    expect_parts(SIZES(100, 100, 63, 1), PARTS(200, 64), ANOTHER_JOB);
    expect_parts(SIZES(100, 100, 63, 2), PARTS(200, 65), ANOTHER_JOB);
    expect_parts(SIZES(100, 200, 1, 1), PARTS(100, 202), ANOTHER_JOB);
    expect_parts(SIZES(10, 290), PARTS(10, 290), ANOTHER_JOB);
    expect_parts(SIZES(290, 10), PARTS(300), ANOTHER_JOB); /* The second part would be all of it. */
    expect_parts(SIZES(300), PARTS(300), ANOTHER_JOB);
    expect_parts(SIZES(100, 100, 56), PARTS(256), ANOTHER_TILE);
    expect_parts(SIZES(100, 100, 64), PARTS(200, 64), ANOTHER_TILE);
}

static void leaves_the_last_range_whole(void **state)
{
    (void)state;
    if (!has_prefetches()) {
        skip();
    }
    expect_parts(SIZES(100, 100, 100), PARTS(300), NOTHING);
    expect_parts(SIZES(300), PARTS(300), NOTHING);
}

/* Without starts, every row is a bag. */
static void cuts_long_ranges_of_rows(void **state)
{
    (void)state;
    static const float values[4] = {1, 2, 3, 4};
    static const int64_t indices[400];
    if (!has_prefetches()) {
        skip();
    }
    struct eb_table table = table_of(EB_F32, values, 2, 2);
    struct eb_bag_query query = query_of(&table);
    query.reduction = EB_REDUCTION_NONE;
    query.output_type = EB_F16;
    for (uint64_t count = 255; count <= 400; count += count < 258 ? 1 : 71) {
        struct bag_fixture fixture;
        struct eb_bag_schedules schedules;
        struct eb_bag_stream stream;
        query.indices = (struct eb_int_array){indices, count * sizeof indices[0], 8};
        assert_true(bag_fixture_check(&fixture, &query));
        bag_fixture_pool(&fixture, eb_bag_ops_find("ref"));
        uint8_t out[400 * 4] = {0};
        struct eb_bag_job jobs[2] = {fixture.job, fixture.job};
        jobs[0].out = out;
        jobs[1].bag_count = 0;
        struct eb_bag_tile tile = {.jobs = jobs, .job_count = 2, .element_end = UINT32_MAX};
        use_one_schedule(&all_schedules[2], &schedules);
        noted_stream_init(&stream, eb_bag_ops_find(NULL), &schedules);
        part_count = 0;
        noted_stream_pool(&stream, &tile, NULL);
        if (count <= 256) {
            assert_int_equal(part_count, 2);
            assert_int_equal(part_rows[0], count);
        } else {
            assert_int_equal(part_count, 3);
            assert_int_equal(part_rows[0], count - 64);
            assert_int_equal(part_rows[1], 64);
        }
        assert_memory_equal(out, fixture.out, count * 4);
        bag_fixture_release(&fixture);
    }
}

/* A lone row is read at once, unless the tile was announced. */
static void announces_no_lone_row(void **state)
{
    (void)state;
    if (!has_prefetches()) {
        skip();
    }
    struct stream_case plan = {.storage = EB_STORAGE_F32,
        .type = EB_F32,
        .dim = 16,
        .reduction = EB_REDUCTION_SUM,
        .index_width = 8};
    struct stream_lookup *lookup = make_lookup(&plan);
    const uint32_t *starts = lookup->jobs[0].starts;
    uint32_t single = 0;
    uint32_t several = 0;
    while (starts[single + 1] - starts[single] != 1) {
        single++;
    }
    while (starts[several + 1] - starts[several] < 2) {
        several++;
    }
    struct eb_bag_tile one = {.jobs = lookup->jobs,
        .job_count = 1,
        .bag_first = single,
        .bag_end = single + 1,
        .element_end = UINT32_MAX};
    struct eb_bag_tile two = one;
    two.bag_first = several;
    two.bag_end = several + 1;
    struct eb_bag_schedules schedules;
    struct eb_bag_stream stream;
    use_one_schedule(&all_schedules[3], &schedules);
    noted_stream_init(&stream, eb_bag_ops_find(NULL), &schedules);
    part_count = 0;
    noted_stream_pool(&stream, &one, NULL);
    noted_stream_pool(&stream, &one, &one);
    assert_int_equal(part_count, 0);
    noted_stream_pool(&stream, &two, NULL);
    assert_int_equal(part_count, 1);
    noted_stream_pool(&stream, &one, &two);
    noted_stream_pool(&stream, &two, NULL);
    assert_int_equal(part_count, 3);
    noted_stream_pool(&stream, &one, NULL);
    assert_int_equal(part_count, 3);
    free_lookup(lookup);
}

static void announces_no_rows_that_are_not_prefetched(void **state)
{
    (void)state;
    struct stream_case plan = {.storage = EB_STORAGE_F32,
        .type = EB_F32,
        .dim = 16,
        .reduction = EB_REDUCTION_SUM,
        .index_width = 8};
    struct stream_lookup *lookup = make_lookup(&plan);
    struct eb_bag_schedule off = {0};
    struct eb_bag_schedules schedules;
    struct eb_bag_stream stream;
    use_one_schedule(&off, &schedules);
    noted_stream_init(&stream, eb_bag_ops_find(NULL), &schedules);
    for (int knows_next = 0; knows_next < 2; knows_next++) {
        part_count = 0;
        pool_tiles(&stream, lookup->jobs, 3000, knows_next);
        assert_int_equal(part_count, 0);
        expect_same_results(lookup, &plan, &off, "off");
    }
    free_lookup(lookup);
}

/* Only functions that prefetch need to know when rows are pooled. */
static void announces_no_rows_to_the_reference(void **state)
{
    (void)state;
    struct stream_case plan = {.storage = EB_STORAGE_F32,
        .type = EB_F32,
        .dim = 16,
        .reduction = EB_REDUCTION_SUM,
        .index_width = 8};
    struct stream_lookup *lookup = make_lookup(&plan);
    struct eb_bag_schedules schedules;
    struct eb_bag_stream stream;
    use_one_schedule(&all_schedules[3], &schedules);
    noted_stream_init(&stream, eb_bag_ops_find("ref"), &schedules);
    part_count = 0;
    pool_tiles(&stream, lookup->jobs, 3000, true);
    assert_int_equal(part_count, 0);
    expect_same_results(lookup, &plan, &all_schedules[3], "ref");
    free_lookup(lookup);
}

static void pools_a_range_of_bags(void **state)
{
    (void)state;
    struct stream_case plan = {.storage = EB_STORAGE_F32,
        .type = EB_F32,
        .dim = 24,
        .reduction = EB_REDUCTION_MEAN,
        .index_width = 8};
    struct stream_lookup *lookup = make_lookup(&plan);
    const struct eb_bag_job *job = &lookup->jobs[0];
    size_t row_bytes = job->out_stride_bytes;
    for (uint32_t first = 0; first <= job->bag_count; first++) {
        for (uint32_t end = first; end <= job->bag_count; end++) {
            memset(job->out, 0xa5, lookup->out_bytes[0]);
            noted_pool(eb_bag_ops_find(NULL), job, first, end);
            assert_memory_equal(job->out + first * row_bytes,
                lookup->checked[0].out + first * row_bytes, (end - first) * row_bytes);
            for (size_t at = 0; at < lookup->out_bytes[0]; at++) {
                bool is_inside = at >= first * row_bytes && at < end * row_bytes;
                assert_true(is_inside || job->out[at] == 0xa5);
            }
        }
    }
    free_lookup(lookup);
}

EB_TEST_GROUP(bag_stream)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_f32_as_the_reference),
        cmocka_unit_test(pools_f64_as_the_reference),
        cmocka_unit_test(pools_halves_as_the_reference),
        cmocka_unit_test(pools_fp8_as_the_reference),
        cmocka_unit_test(pools_codes_as_the_reference),
        cmocka_unit_test(pools_integers_as_the_reference),
        cmocka_unit_test(cuts_long_ranges_before_others),
        cmocka_unit_test(leaves_the_last_range_whole),
        cmocka_unit_test(cuts_long_ranges_of_rows),
        cmocka_unit_test(announces_no_lone_row),
        cmocka_unit_test(announces_no_rows_that_are_not_prefetched),
        cmocka_unit_test(announces_no_rows_to_the_reference),
        cmocka_unit_test(pools_a_range_of_bags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
