/* The pool functions under test are compiled into this file, so that every prefetch is noted here
 * instead of being left to the processor. Their vectors are plain C, so that the tests run on every
 * processor. */
static void note_line(const void *address, int is_write, int locality);
#define __builtin_prefetch note_line

#include "kernels/types.h"

#include <math.h>
#include <string.h>

/* ---- vectors of 4 floats; kernels/x86/vec_avx2.h has the contracts ---- */

/* The values of the tests are small integers. No result of theirs is rounded, and none is a NaN. */
typedef float vec __attribute__((vector_size(16)));
#define VEC vec
#define LANES 4
#define PASS_VECTORS 8
#define PASS_VECTORS_IN_PLACE 8
#define INLINE inline __attribute__((always_inline))
#define VEC_NANS bool
#define vec_set(value) ((VEC){value, value, value, value})
#define vec_add(a, b) ((a) + (b))
#define vec_fma(a, b, c) ((a) * (b) + (c))
#define vec_divide(a, b) ((a) / (b))
#define vec_min(x, acc) (-vec_max(-(x), -(acc)))
#define vec_in_order(storage, v) (v)
#define vec_nans(a, b) ((void)(a), (void)(b), false)
#define vec_nans_or(a, b) ((a) || (b))
#define vec_nans_any(nans) (nans)
#define vec_canonical(v) (v)

static uint32_t load_count; /* vectors loaded by the functions under test */

static INLINE VEC vec_load(enum eb_storage storage, const uint8_t *from, unsigned count)
{
    VEC v = {0};
    load_count++;
    for (unsigned i = 0; i < count; i++) {
        v[i] = storage == EB_STORAGE_F32 ? ((const float *)(const void *)from)[i] : from[i];
    }
    return v;
}

static INLINE VEC vec_max(VEC x, VEC acc)
{
    for (unsigned i = 0; i < LANES; i++) {
        acc[i] = x[i] > acc[i] ? x[i] : acc[i];
    }
    return acc;
}

static INLINE void vec_store(enum eb_type type, VEC v, uint8_t *out, unsigned count)
{
    assert(type == EB_F32);
    memcpy(out, &v, count * sizeof(float));
}

#define ACC float
#define ACC_TYPE EB_F32
#define ACC_FMA fmaf
#define ACC_SQRT sqrtf
#define ACC_ZERO_ROW_WEIGHT eb_zero_row_weight_f32
/* Plain sums have all forms, which is enough here and compiles faster. */
#ifndef EMBAG_FEW_FORMS
#define EMBAG_FEW_FORMS
#endif
#include "kernels/bag_float_tmpl.c"

static void pool_f32(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead);
static void pool_int8(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead);
DEFINE_POOL(EB_STORAGE_F32, f32, pool_f32)
DEFINE_POOL(EB_STORAGE_INT8, int8, pool_int8)

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- tables, jobs and notes ---- */

#define ROWS 64
#define ROWS_AT 4096 /* offset of the table in the memory, behind the address of EB_ROW_ZERO */
#define SCALES_AT (100 << 10)
#define MEMORY_BYTES (128 << 10)
#define MEMORY_LINES (MEMORY_BYTES / EB_LINE_BYTES)
#define NOTES_MAX 8192
#define COLUMNS_MAX 304
#define BAGS 7

/* The range is bags 1 to 5 of these, so that the job has rows before and after it. */
static const uint32_t bag_starts[BAGS + 1] = {0, 4, 4, 11, 12, 20, 37, 46};
#define BAG_FIRST 1
#define BAG_END 6
#define ROW_FIRST 4
#define ROW_END 37
#define RANGE_ROWS (ROW_END - ROW_FIRST)

enum level { LEVEL_L1, LEVEL_L2, LEVEL_COUNT };

struct line_note {
    uint32_t line;       /* in the memory */
    uint32_t load_count; /* vectors loaded before */
};

struct fixture {
    struct eb_table table;
    struct eb_bag_job job;
    int64_t rows[ROWS];
    float out[BAGS][COLUMNS_MAX];
    uint32_t counts[LEVEL_COUNT][MEMORY_LINES]; /* number of prefetches of each line */
    uint32_t wanted[LEVEL_COUNT][MEMORY_LINES];
    struct line_note notes[NOTES_MAX];
    uint32_t note_count;
    uint8_t *memory; /* [MEMORY_BYTES], aligned to a cache line */
};

static struct fixture *fixture;

static void note_line(const void *address, int is_write, int locality)
{
    uintptr_t offset = (uintptr_t)address - (uintptr_t)fixture->memory;
    assert_int_equal(is_write, 0);
    assert_true(locality == 3 || locality == 2);
    assert_true(offset < MEMORY_BYTES);
    assert_true(fixture->note_count < NOTES_MAX);
    uint32_t line = (uint32_t)(offset / EB_LINE_BYTES);
    fixture->counts[locality == 3 ? LEVEL_L1 : LEVEL_L2][line]++;
    fixture->notes[fixture->note_count++] = (struct line_note){line, load_count};
}

/* Finds the job's lines again after a change of the table. */
static void find_lines(void)
{
    fixture->job.lines = eb_bag_lines_find(&fixture->table, 0, fixture->table.row_elements);
}

/* Makes a table in our own layout, all values of which are 1, and a job of sums. */
static void use_form_rows(enum eb_storage storage, uint32_t columns)
{
    struct eb_row_format format = eb_row_format_of(storage, columns);
    bool has_codes = storage == EB_STORAGE_INT8;
    uint8_t *first = fixture->memory + ROWS_AT;
    fixture->table = (struct eb_table){
        .rows = first + format.row_offset_bytes,
        .row_count = ROWS,
        .row_stride_bytes = format.stride_bytes,
        .scales = has_codes ? first : NULL,
        .scale_stride_bytes = has_codes ? format.stride_bytes : 0,
        .row_elements = columns,
        .storage = storage,
        .type = EB_F32,
        .unknown_row = -1,
    };
    assert_true(ROWS_AT + ROWS * format.stride_bytes <= SCALES_AT);
    for (uint32_t i = 0; i < MEMORY_BYTES / sizeof(float); i++) {
        memcpy(fixture->memory + i * sizeof(float), &(float){1}, sizeof(float));
    }
    for (uint32_t i = 0; has_codes && i < ROWS; i++) {
        uint8_t *scale = first + i * format.stride_bytes;
        memcpy(scale, &(struct eb_row_scale){1, 0}, sizeof(struct eb_row_scale));
        memset(scale + format.row_offset_bytes, 1, columns);
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        fixture->rows[i] = (i * 37 + 5) % ROWS;
    }
    fixture->job = (struct eb_bag_job){
        .table = &fixture->table,
        .rows = fixture->rows,
        .starts = bag_starts,
        .bag_count = BAGS,
        .reduction = EB_REDUCTION_SUM,
        .output_type = EB_F32,
        .default_row = -1,
        .out = (uint8_t *)fixture->out,
        .out_stride_bytes = sizeof fixture->out[0],
    };
    find_lines();
}

static struct eb_bag_range range_of_job(void)
{
    return (struct eb_bag_range){
        .job = &fixture->job,
        .bag_first = BAG_FIRST,
        .bag_end = BAG_END,
        .element_end = fixture->table.row_elements,
    };
}

/* Pools the range with a schedule, or without prefetching if it is NULL. */
static void pool_with(const struct eb_bag_schedule *schedule)
{
    struct eb_bag_range range = range_of_job();
    struct eb_bag_ahead ahead = {schedule, fixture->job.rows + ROW_END};
    fixture->note_count = 0;
    load_count = 0;
    memset(fixture->counts, 0, sizeof fixture->counts);
    memset(fixture->wanted, 0, sizeof fixture->wanted);
    (fixture->table.storage == EB_STORAGE_F32 ? pool_f32 : pool_int8)(
        &range, schedule ? &ahead : NULL);
    for (uint32_t b = BAG_FIRST; b < BAG_END; b++) {
        float sum = 0;
        for (uint32_t i = bag_starts[b]; i < bag_starts[b + 1]; i++) {
            bool is_max = fixture->job.reduction == EB_REDUCTION_MAX;
            sum = is_max ? 1 : sum + (fixture->rows[i] >= 0);
        }
        for (uint32_t column = 0; column < fixture->table.row_elements; column++) {
            assert_true(fixture->out[b][column] == sum);
        }
    }
}

static enum form form_for(struct eb_bag_schedule schedule)
{
    struct eb_bag_range range = range_of_job();
    return choose_form(&range, &(struct eb_bag_ahead){&schedule, fixture->job.rows + ROW_END});
}

/* ---- expectations ---- */

/* Returns the number of the memory's cache line at an address. */
static uint32_t line_at(const uint8_t *address)
{
    return (uint32_t)((size_t)(address - fixture->memory) / EB_LINE_BYTES);
}

/* Returns row i of the range from its first byte on: that of a scale directly before it, if any. */
static const uint8_t *start_of_row(uint32_t i)
{
    const struct eb_table *table = &fixture->table;
    bool has_scale = table->scales && !fixture->job.lines.has_scales_apart;
    const uint8_t *first = has_scale ? table->scales : table->rows;
    return first + fixture->rows[ROW_FIRST + i] * (int64_t)table->row_stride_bytes;
}

/* Wants the first line of row i of the range. */
static void want_first_line(uint32_t i, enum level level)
{
    fixture->wanted[level][line_at(start_of_row(i))]++;
}

/* Wants every line of row i of the range once, unless it is wanted for another row already. */
static void want_row(uint32_t i, enum level level)
{
    const uint8_t *last = start_of_row(i) + fixture->job.lines.bytes - 1;
    for (uint32_t line = line_at(start_of_row(i)); line <= line_at(last); line++) {
        fixture->wanted[level][line]++;
    }
}

static void want_rows_from(uint32_t first, enum level level)
{
    for (uint32_t i = first; i < RANGE_ROWS; i++) {
        want_row(i, level);
    }
}

/* Expects the wanted lines, as often as they are wanted or, if not `is_exact`, at least once, and
 * no others. */
static void expect_wanted(bool is_exact)
{
    for (unsigned level = 0; level < LEVEL_COUNT; level++) {
        for (uint32_t line = 0; line < MEMORY_LINES; line++) {
            uint32_t count = fixture->counts[level][line];
            uint32_t wanted = fixture->wanted[level][line];
            assert_true(is_exact ? count == wanted : (count > 0) == (wanted > 0));
        }
    }
}

static int set_up(void **state)
{
    (void)state;
    fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    fixture->memory = aligned_alloc(EB_LINE_BYTES, MEMORY_BYTES);
    assert_non_null(fixture->memory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(fixture->memory);
    free(fixture);
    return 0;
}

/* Tables whose rows all touch as many lines as their functions prefetch. Functions of 8 vectors at
 * most make one pass, those of 16 and 32 several. */
static const struct {
    enum eb_storage storage;
    uint32_t columns;
} full_tables[] = {
    {EB_STORAGE_F32, 4},
    {EB_STORAGE_F32, 8},
    {EB_STORAGE_F32, 16},
    {EB_STORAGE_F32, 24},
    {EB_STORAGE_F32, 32},
    {EB_STORAGE_F32, 64},
    {EB_STORAGE_F32, 128},
    {EB_STORAGE_INT8, 64},
    {EB_STORAGE_INT8, 128},
};
#define FULL_TABLES (sizeof full_tables / sizeof full_tables[0])

static const uint16_t distances[] = {1, 5, RANGE_ROWS - 1, RANGE_ROWS};
#define DISTANCES (sizeof distances / sizeof distances[0])

/* ---- forms of their own ---- */

/* Pools every table with every near distance, and a far distance `more_rows` greater, or none if it
 * is 0. If `form` is FORM_L2, the first line of each row at the far distance is prefetched too, or
 * once more if there is none. The last row stands for those past the range. */
static void expect_form(enum form form, uint16_t more_rows)
{
    for (size_t n = 0; n < FULL_TABLES * DISTANCES; n++) {
        uint16_t near_rows = distances[n % DISTANCES];
        uint16_t far_rows = (uint16_t)(near_rows + more_rows);
        uint32_t rows_end = RANGE_ROWS + (uint32_t)more_rows;
        struct eb_bag_schedule schedule = {
            more_rows > 0 ? far_rows : 0, false, near_rows, form == FORM_L1};
        use_form_rows(full_tables[n / DISTANCES].storage, full_tables[n / DISTANCES].columns);
        assert_int_equal(form_for(schedule), form);
        pool_with(&schedule);
        want_rows_from(near_rows, form == FORM_L1 ? LEVEL_L1 : LEVEL_L2);
        for (uint32_t i = far_rows; form == FORM_L2 && i < rows_end; i++) {
            want_first_line(i < RANGE_ROWS ? i : RANGE_ROWS - 1, LEVEL_L2);
        }
        expect_wanted(true);
    }
}

static void prefetches_every_line_of_a_row_ahead_into_l1(void **state)
{
    (void)state;
    expect_form(FORM_L1, 0);
}

static void prefetches_first_lines_twice_into_l2_without_a_far_distance(void **state)
{
    (void)state;
    expect_form(FORM_L2, 0);
}

static void prefetches_the_first_line_of_a_row_further_ahead(void **state)
{
    (void)state;
    expect_form(FORM_L2, 6);
}

static void prefetches_a_row_while_that_at_its_distance_is_pooled(void **state)
{
    (void)state;
    for (int is_l1 = 0; is_l1 < 2; is_l1++) {
        use_form_rows(EB_STORAGE_F32, 32);
        pool_with(&(struct eb_bag_schedule){0, false, 5, is_l1});
        for (uint32_t n = 0; n < fixture->note_count; n++) {
            uint32_t first = line_at(start_of_row(fixture->notes[n].load_count / 8 + 5));
            assert_in_range(fixture->notes[n].line, first, first + 1);
        }
    }
}

/* Several functions pool these columns, and groups of bags if the rows are long. */
static void prefetches_every_line_of_rows_that_several_functions_pool(void **state)
{
    (void)state;
    static const uint32_t columns[] = {1, 13, 29, 36, 61, 125, 301};
    for (unsigned n = 0; n < 4 * sizeof columns / sizeof columns[0]; n++) {
        bool is_l1 = n % 2;
        use_form_rows(n / 2 % 2 ? EB_STORAGE_INT8 : EB_STORAGE_F32, columns[n / 4]);
        pool_with(&(struct eb_bag_schedule){0, false, 5, is_l1});
        want_rows_from(5, is_l1 ? LEVEL_L1 : LEVEL_L2);
        expect_wanted(false);
    }
}

/* ---- all other rows and schedules ---- */

/* Expects that FORM_ANY prefetches rows 5 ahead, and changes nothing else. */
static void expect_any_form(bool is_exact)
{
    for (int is_l1 = 0; is_l1 < 2; is_l1++) {
        struct eb_bag_schedule schedule = {0, false, 5, is_l1};
        assert_int_equal(form_for(schedule), FORM_ANY);
        pool_with(&schedule);
        want_rows_from(5, is_l1 ? LEVEL_L1 : LEVEL_L2);
        if (fixture->job.lines.has_scales_apart) {
            for (uint32_t i = ROW_FIRST + 5; i < ROW_END; i++) {
                const uint8_t *scale = fixture->memory + SCALES_AT + fixture->rows[i] * 8;
                fixture->wanted[LEVEL_L2][line_at(scale)]++;
            }
        }
        expect_wanted(is_exact);
        pool_with(NULL);
        assert_int_equal(fixture->note_count, 0);
    }
}

static void prefetches_rows_among_rows_of_zeros(void **state)
{
    (void)state;
    use_form_rows(EB_STORAGE_F32, 32);
    fixture->rows[ROW_FIRST + 9] = EB_ROW_ZERO;
    fixture->job.has_zero_rows = true;
    expect_any_form(true);
}

static void prefetches_rows_with_scales_apart(void **state)
{
    (void)state;
    use_form_rows(EB_STORAGE_INT8, 32);
    fixture->table.rows = fixture->memory + ROWS_AT;
    fixture->table.row_stride_bytes = 64;
    fixture->table.scales = fixture->memory + SCALES_AT;
    fixture->table.scale_stride_bytes = 8;
    memset(fixture->memory + ROWS_AT, 1, ROWS * 64);
    for (uint32_t i = 0; i < ROWS; i++) {
        memcpy(fixture->memory + SCALES_AT + i * 8, &(struct eb_row_scale){1, 0}, 8);
    }
    find_lines();
    expect_any_form(true);
}

static void prefetches_rows_that_are_not_compact(void **state)
{
    (void)state;
    use_form_rows(EB_STORAGE_F32, 16);
    fixture->table.row_stride_bytes = 80;
    find_lines();
    expect_any_form(false);
}

static void prefetches_rows_of_reductions_without_own_forms(void **state)
{
    (void)state;
    use_form_rows(EB_STORAGE_F32, 32);
    fixture->job.reduction = EB_REDUCTION_MAX;
    pool_with(&(struct eb_bag_schedule){0, false, 5, false});
    want_rows_from(5, LEVEL_L2);
    expect_wanted(true);
}

static void follows_schedules_without_own_forms(void **state)
{
    (void)state;
    static const struct eb_bag_schedule schedules[] = {
        {9, false, 5, true},
        {9, true, 5, true},
        {9, true, 5, false},
        {9, true, 0, false},
        {9, false, 0, false},
    };
    for (unsigned n = 0; n < sizeof schedules / sizeof schedules[0]; n++) {
        const struct eb_bag_schedule *schedule = &schedules[n];
        use_form_rows(EB_STORAGE_F32, 32);
        assert_int_equal(form_for(*schedule), FORM_ANY);
        pool_with(schedule);
        for (uint32_t i = 9; i < RANGE_ROWS; i++) {
            (schedule->far_is_whole ? want_row : want_first_line)(i, LEVEL_L2);
        }
        if (schedule->near_rows > 0) {
            want_rows_from(5, schedule->near_is_l1 ? LEVEL_L1 : LEVEL_L2);
        }
        expect_wanted(true);
    }
}

static void prefetches_nothing_without_a_schedule(void **state)
{
    (void)state;
    for (size_t n = 0; n < FULL_TABLES; n++) {
        use_form_rows(full_tables[n].storage, full_tables[n].columns);
        struct eb_bag_range range = range_of_job();
        assert_int_equal(choose_form(&range, NULL), FORM_NONE);
        pool_with(NULL);
        assert_int_equal(fixture->note_count, 0);
    }
}

EB_TEST_GROUP(bag_forms)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(prefetches_every_line_of_a_row_ahead_into_l1),
        TEST(prefetches_first_lines_twice_into_l2_without_a_far_distance),
        TEST(prefetches_the_first_line_of_a_row_further_ahead),
        TEST(prefetches_a_row_while_that_at_its_distance_is_pooled),
        TEST(prefetches_every_line_of_rows_that_several_functions_pool),
        TEST(prefetches_rows_among_rows_of_zeros),
        TEST(prefetches_rows_with_scales_apart),
        TEST(prefetches_rows_that_are_not_compact),
        TEST(prefetches_rows_of_reductions_without_own_forms),
        TEST(follows_schedules_without_own_forms),
        TEST(prefetches_nothing_without_a_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
