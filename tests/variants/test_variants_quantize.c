/* Every variant of the kernels that this machine can run converts rows to the same bytes as the
 * reference, and refuses the same row, for every storage, width, alignment and gap between rows. It
 * reads and writes no byte outside the rows. */
#include "kernels/bag_ops.h"
#include "kernels/element.h"
#include "kernels/quantize.h"
#include "tests/lib/test_group.h"
#include "tests/variants/variant_draw.h"
#include "tests/variants/variant_memory.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 0xa5
#define NARROW_DIM_MAX 130
#define DIM_MAX 10000
#define ROWS_MAX 40
#define GAP_MAX 12
#define STRIDE_MAX (DIM_MAX * sizeof(double) + sizeof(struct eb_row_scale) + GAP_MAX)

static const uint32_t wide_dims[] = {
    191, 192, 255, 256, 257, 383, 511, 512, 768, 1000, 1024, 2048, 2049, 4096, 4099, DIM_MAX};
#define WIDE_DIM_COUNT (sizeof wide_dims / sizeof wide_dims[0])

static const enum eb_storage float_storages[] = {EB_STORAGE_F32, EB_STORAGE_F16, EB_STORAGE_BF16,
    EB_STORAGE_F64, EB_STORAGE_F8_E4M3, EB_STORAGE_F8_E5M2};
#define FLOAT_COUNT (sizeof float_storages / sizeof float_storages[0])

static const enum eb_storage wanted_storages[] = {EB_STORAGE_INT8, EB_STORAGE_INT4, EB_STORAGE_INT2,
    EB_STORAGE_F16, EB_STORAGE_BF16, EB_STORAGE_F32, EB_STORAGE_F8_E4M3, EB_STORAGE_F8_E5M2};
#define WANTED_COUNT (sizeof wanted_storages / sizeof wanted_storages[0])

/* A conversion that all variants do. */
struct trial {
    struct eb_quantize_job job;
    uint64_t count;
    const uint8_t *rows; /* between guard pages */
    uint8_t *expected;   /* what the reference writes, [count] rows with the gaps after them */
    uint64_t expected_count;
    struct guarded rows_memory;
    struct guarded out_memory;
};

static struct trial trial;
static uint32_t width_step;

/* ---- values ---- */

static float draw_unit(void)
{
    return ((float)draw(1 << 24) - (1 << 23)) * 0x1p-23f;
}

static void draw_ordinary(float *values, uint32_t elements)
{
    for (uint32_t i = 0; i < elements; i++) {
        values[i] = draw_unit();
    }
}

static void draw_equal(float *values, uint32_t elements)
{
    float value = ldexpf(draw_unit(), (int)draw(276) - 149);
    for (uint32_t i = 0; i < elements; i++) {
        values[i] = value;
    }
}

static void draw_zeros(float *values, uint32_t elements)
{
    for (uint32_t i = 0; i < elements; i++) {
        values[i] = draw(2) ? 0.0f : -0.0f;
    }
    if (draw(2)) {
        values[draw(elements)] = ldexpf(draw_unit(), (int)draw(160) - 149);
    }
}

/* Draws values of one size, from subnormal to those that are just too far apart. */
static void draw_sized(float *values, uint32_t elements)
{
    int exponent = (int)draw(276) - 149;
    for (uint32_t i = 0; i < elements; i++) {
        values[i] = ldexpf(draw_unit(), exponent);
    }
}

static void draw_many_sizes(float *values, uint32_t elements)
{
    for (uint32_t i = 0; i < elements; i++) {
        values[i] = ldexpf(draw_unit(), (int)draw(274) - 149);
    }
}

/* Draws values whose range is the largest that codes can have, or the next larger one. */
static void draw_widest(float *values, uint32_t elements)
{
    draw_ordinary(values, elements);
    values[draw(elements)] = -0x1p125f;
    values[draw(elements)] = draw(4) ? 0x1p125f : nextafterf(0x1p125f, INFINITY);
}

/* Draws values between two codes, or a little beside that, or as far from it as f32 may decide. */
static void draw_ties(float *values, uint32_t elements)
{
    static const float beside[] = {0, 0, 0x1p-23f, 0x1p-17f, 0x1p-15f, 0x1p-14f, 0x1.1p-14f,
        0x1.fp-15f, 0x1p-13f, 0.25f, 0.5f};
    static const int levels[] = {255, 15, 3};
    int last = levels[draw(3)];
    float step = ldexpf(1 + (draw(2) ? 0 : fabsf(draw_unit())), (int)draw(260) - 149);
    float bias = draw(2) ? 0 : draw_unit() * step * (float)draw(1000);
    for (uint32_t i = 0; i < elements; i++) {
        float distance = beside[draw(sizeof beside / sizeof beside[0])];
        float code = (float)draw((uint32_t)last) + 0.5f + (draw(2) ? distance : -distance);
        values[i] = fmaf(code, step, bias);
        for (uint32_t k = draw(3); k > 0; k--) {
            values[i] = nextafterf(values[i], draw(2) ? INFINITY : -INFINITY);
        }
    }
    values[draw(elements)] = fmaf((float)last, step, bias);
    values[draw(elements)] = bias;
}

/* Puts a value that many storages cannot hold at some place. */
static void spoil(float *values, uint32_t elements)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 65519.996f,
        65520, -65520, 0x1.fefffep127f, 0x1.ffp127f, 464, 464.00003f, 61440, 61440.004f};
    values[draw(elements)] = bad[draw(sizeof bad / sizeof bad[0])];
}

static void draw_row(uint8_t *row, enum eb_storage storage, uint32_t elements)
{
    static void (*const kinds[])(float *, uint32_t) = {draw_ordinary, draw_ordinary, draw_equal,
        draw_zeros, draw_sized, draw_many_sizes, draw_widest, draw_ties, draw_ties};
    static float values[DIM_MAX];
    if (draw(50) == 0 || storage == EB_STORAGE_F8_E4M3 || storage == EB_STORAGE_F8_E5M2) {
        draw_values(row, eb_storage_row_bytes(storage, elements), storage);
        return;
    }
    kinds[draw(sizeof kinds / sizeof kinds[0])](values, elements);
    if (draw(60) == 0) {
        spoil(values, elements);
    }
    for (uint32_t i = 0; i < elements; i++) {
        eb_element_store_float(
            (enum eb_type)storage, values[i], row + i * eb_storage_bytes(storage));
        if (storage == EB_STORAGE_F32 && isnan(values[i])) {
            memcpy(row + i * sizeof values[i], &values[i], sizeof values[i]); /* keeps its sign */
        }
    }
}

/* ---- trials ---- */

static uint64_t out_bytes(void)
{
    const struct eb_quantize_job *job = &trial.job;
    return (trial.count - 1) * job->to_stride_bytes + job->to_offset_bytes +
           eb_storage_row_bytes(job->to, job->elements);
}

/* Makes the bytes of the rows that were not converted equal in all results. */
static void clear_undefined(uint8_t *out, uint64_t converted)
{
    const struct eb_quantize_job *job = &trial.job;
    size_t bytes = job->to_offset_bytes + eb_storage_row_bytes(job->to, job->elements);
    for (uint64_t i = converted; i < trial.count; i++) {
        memset(out + i * job->to_stride_bytes, 0, bytes);
    }
}

static void draw_trial(enum eb_storage from, enum eb_storage to, uint32_t elements)
{
    struct eb_quantize_job *job = &trial.job;
    uint64_t row_bytes = eb_storage_row_bytes(from, elements);
    size_t scale_bytes = eb_storage_is_code(to) ? sizeof(struct eb_row_scale) : 0;
    size_t from_gap = draw(GAP_MAX + 1);
    float *values = job->values;
    *job = (struct eb_quantize_job){.from = from, .to = to, .elements = elements, .values = values};
    trial.count = 1 + draw(elements > 1000 ? 3 : ROWS_MAX);
    job->from_stride_bytes = row_bytes + (from == EB_STORAGE_F32 ? from_gap / 4 * 4 : from_gap);
    job->to_offset_bytes = scale_bytes + draw(2) * draw(GAP_MAX / 2);
    job->to_stride_bytes =
        job->to_offset_bytes + eb_storage_row_bytes(to, elements) + draw(GAP_MAX / 2);
    uint8_t *rows =
        guarded_place(&trial.rows_memory, (trial.count - 1) * job->from_stride_bytes + row_bytes);
    for (uint64_t i = 0; i < trial.count; i++) {
        draw_row(rows + i * job->from_stride_bytes, from, elements);
    }
    trial.rows = rows;
    memset(trial.expected, GUARD, out_bytes());
    trial.expected_count =
        eb_quantize_rows(eb_bag_ops_find("ref"), job, rows, trial.count, trial.expected);
    clear_undefined(trial.expected, trial.expected_count);
}

static void compare_variants(void)
{
    const struct eb_bag_ops *ops;
    for (size_t n = 1; (ops = eb_bag_ops_at(n)); n++) {
        if (!eb_bag_ops_runs_here(ops)) {
            continue;
        }
        uint8_t *out = guarded_place(&trial.out_memory, out_bytes());
        memset(out, GUARD, out_bytes());
        uint64_t count = eb_quantize_rows(ops, &trial.job, trial.rows, trial.count, out);
        clear_undefined(out, count);
        if (count != trial.expected_count || memcmp(out, trial.expected, out_bytes()) != 0) {
            fail_msg("%s: %llu of %llu rows of %u %s to %s differ from the reference, which "
                     "converts %llu",
                eb_bag_ops_name(ops), (unsigned long long)count, (unsigned long long)trial.count,
                trial.job.elements, eb_storage_name(trial.job.from), eb_storage_name(trial.job.to),
                (unsigned long long)trial.expected_count);
        }
    }
}

static void try_width(uint32_t elements)
{
    for (size_t f = 0; f < FLOAT_COUNT; f++) {
        for (size_t w = 0; w < WANTED_COUNT; w++) {
            draw_trial(float_storages[f], wanted_storages[w], elements);
            compare_variants();
        }
    }
}

static void variants_convert_rows_of_any_width(void **state)
{
    (void)state;
    for (uint32_t elements = 1 + draw(width_step); elements <= NARROW_DIM_MAX;
         elements += width_step) {
        try_width(elements);
    }
    for (size_t i = draw(width_step); i < WIDE_DIM_COUNT; i += width_step) {
        try_width(wide_dims[i]);
    }
}

static void variants_convert_many_rows_of_f32(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 6000 / width_step; round++) {
        draw_trial(EB_STORAGE_F32, wanted_storages[draw(5)], 1 + draw(NARROW_DIM_MAX));
        compare_variants();
    }
}

static void variants_convert_no_rows(void **state)
{
    (void)state;
    const struct eb_bag_ops *ops;
    struct eb_quantize_job job = {.from = EB_STORAGE_F32, .to = EB_STORAGE_INT8, .elements = 16};
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        if (eb_bag_ops_runs_here(ops)) {
            assert_int_equal(eb_quantize_rows(ops, &job, trial.rows_memory.end, 0, NULL), 0);
        }
    }
}

static int set_up(void **state)
{
    (void)state;
    const char *widths = getenv("EMBAG_TEST_WIDTHS");
    width_step = widths ? (uint32_t)strtoul(widths, NULL, 10) : 1;
    assert_int_not_equal(width_step, 0);
    draw_seed();
    trial.expected = malloc(ROWS_MAX * STRIDE_MAX);
    trial.job.values = malloc(DIM_MAX * sizeof *trial.job.values);
    assert_true(trial.expected && trial.job.values);
    assert_true(guarded_map(&trial.rows_memory, ROWS_MAX * STRIDE_MAX));
    assert_true(guarded_map(&trial.out_memory, ROWS_MAX * STRIDE_MAX));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    guarded_unmap(&trial.rows_memory);
    guarded_unmap(&trial.out_memory);
    free(trial.expected);
    free(trial.job.values);
    return 0;
}

EB_TEST_GROUP(variants_quantize)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_convert_rows_of_any_width),
        cmocka_unit_test(variants_convert_many_rows_of_f32),
        cmocka_unit_test(variants_convert_no_rows),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
