#include "kernels/bag_ops.h"
#include "kernels/bag_variant.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* More than two vectors of every instruction set, plus a remainder. */
#define COUNT_MAX 70
#define MISSING_ROW 77

static const uint64_t row_counts[] = {
    0, 1, 2, 1000, INT32_MAX, UINT64_C(1) << 31, UINT64_C(1) << 40, INT64_MAX, UINT64_MAX};

static const int64_t adversaries[] = {-1, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX,
    INT64_C(1) << 31, INT64_C(1) << 32, (INT64_C(1) << 32) + 1, INT64_MIN + 1, -(INT64_C(1) << 32)};
#define ADVERSARY_COUNT (sizeof adversaries / sizeof adversaries[0])

/* The ends of memory that is followed by a guard page. */
static uint8_t *input_end;
static uint8_t *output_end;

#define VARIANTS_MAX 8

/* The variants that run here. */
static const struct eb_bag_index_fns *variants[VARIANTS_MAX];
static size_t variant_count;

static uint64_t seed;

static uint64_t draw_index(uint64_t end)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % end;
}

static uint8_t *map_guarded(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *memory =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + page, page, PROT_NONE), 0);
    return memory + page;
}

static int set_up(void **state)
{
    (void)state;
    input_end = map_guarded();
    output_end = map_guarded();
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        if (eb_bag_ops_runs_here(ops)) {
            assert_true(variant_count < VARIANTS_MAX);
            variants[variant_count++] = eb_bag_ops_variant(ops)->index;
        }
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap(input_end - page, 2 * page);
    munmap(output_end - page, 2 * page);
    return 0;
}

/* Places the values as they may come off the wire, each cut to `width` bytes. Between the last byte
 * and the guard page are `gap` bytes. */
static struct eb_int_array place(
    const int64_t *values, uint32_t count, uint32_t width, uint32_t gap)
{
    uint8_t *data = input_end - gap - count * width;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(data + i * width, &values[i], width);
    }
    return (struct eb_int_array){data, (uint64_t)count * width, width};
}

/* Expects the functions to do the same to the array as the reference. */
typedef void (*compare_fn)(
    const struct eb_bag_index_fns *fns, const struct eb_int_array *array, uint64_t number);

static void compare_with_reference(
    compare_fn compare, const int64_t *values, uint32_t count, uint64_t number)
{
    for (size_t n = 0; n < variant_count; n++) {
        for (uint32_t width = 4; width <= 8; width += 4) {
            struct eb_int_array array = place(values, count, width, (uint32_t)draw_index(9));
            compare(variants[n], &array, number);
        }
    }
}

static void compare_rows(
    const struct eb_bag_index_fns *fns, const struct eb_int_array *array, uint64_t row_count)
{
    uint32_t count = (uint32_t)(array->bytes / array->width);
    int64_t expected[COUNT_MAX];
    int64_t *rows = (int64_t *)(void *)output_end - count;
    uint64_t missing = eb_bag_ref_index.take_rows(array, row_count, MISSING_ROW, expected);
    memset(rows, 0xa5, count * sizeof rows[0]);
    assert_int_equal(fns->take_rows(array, row_count, MISSING_ROW, rows), missing);
    assert_memory_equal(rows, expected, count * sizeof rows[0]);
}

/* Tries only 64-bit integers, the only ones that this function takes. */
static void compare_are_rows(
    const struct eb_bag_index_fns *fns, const struct eb_int_array *array, uint64_t row_count)
{
    if (array->width != sizeof(int64_t)) {
        return;
    }
    bool are_rows = true;
    uint64_t count = array->bytes / sizeof(int64_t);
    for (uint64_t i = 0; i < count; i++) {
        int64_t index;
        memcpy(&index, (const uint8_t *)array->data + i * sizeof index, sizeof index);
        are_rows = are_rows && index >= 0 && (uint64_t)index < row_count;
    }
    assert_int_equal(fns->are_rows(array, row_count), are_rows);
    assert_int_equal(eb_bag_ref_index.are_rows(array, row_count), are_rows);
}

static void compare_bounds(
    const struct eb_bag_index_fns *fns, const struct eb_int_array *array, uint64_t last)
{
    uint32_t count = (uint32_t)(array->bytes / array->width);
    uint32_t expected[COUNT_MAX];
    uint32_t *starts = (uint32_t *)(void *)output_end - count;
    enum eb_bag_order order = eb_bag_ref_index.take_bounds(array, (int64_t)last, expected);
    memset(starts, 0xa5, count * sizeof starts[0]);
    assert_int_equal(fns->take_bounds(array, (int64_t)last, starts), order);
    assert_int_equal(fns->take_bounds(array, (int64_t)last, NULL), order);
    if (order != EB_BAG_ORDER_OUTSIDE) {
        assert_memory_equal(starts, expected, count * sizeof starts[0]);
    }
}

static void compare_lengths(
    const struct eb_bag_index_fns *fns, const struct eb_int_array *array, uint64_t index_count)
{
    uint32_t count = (uint32_t)(array->bytes / array->width);
    uint32_t expected[COUNT_MAX + 1];
    uint32_t *starts = (uint32_t *)(void *)output_end - (count + 1);
    bool is_sound = eb_bag_ref_index.take_lengths(array, (uint32_t)index_count, expected);
    memset(starts, 0xa5, (count + 1) * sizeof starts[0]);
    assert_int_equal(fns->take_lengths(array, (uint32_t)index_count, starts), is_sound);
    if (is_sound) {
        assert_memory_equal(starts, expected, (count + 1) * sizeof starts[0]);
    }
}

static int64_t draw_adversary(uint64_t edge)
{
    uint64_t choice = draw_index(ADVERSARY_COUNT + 2);
    return choice < ADVERSARY_COUNT ? adversaries[choice]
                                    : (int64_t)(edge - (choice - ADVERSARY_COUNT));
}

/* ---- rows ---- */

static void finds_a_missing_index_at_every_position(void **state)
{
    (void)state;
    int64_t values[COUNT_MAX];
    for (uint32_t count = 0; count <= COUNT_MAX; count++) {
        for (uint32_t position = 0; position <= count; position++) {
            for (uint32_t i = 0; i < count; i++) {
                values[i] = i == position ? -1 : (int64_t)draw_index(1000);
            }
            compare_with_reference(compare_rows, values, count, 1000);
        }
    }
}

static void takes_rows_as_the_reference(void **state)
{
    (void)state;
    int64_t values[COUNT_MAX];
    for (int trial = 0; trial < 4000; trial++) {
        uint64_t row_count = row_counts[draw_index(sizeof row_counts / sizeof row_counts[0])];
        uint64_t rarity = 1 + draw_index(40);
        uint32_t count = (uint32_t)draw_index(COUNT_MAX + 1);
        for (uint32_t i = 0; i < count; i++) {
            values[i] = draw_index(rarity) == 0
                            ? draw_adversary(row_count)
                            : (int64_t)draw_index(row_count > 0 ? row_count : 1);
        }
        compare_with_reference(compare_rows, values, count, row_count);
    }
}

static void finds_an_index_that_is_no_row_at_every_position(void **state)
{
    (void)state;
    static const int64_t others[] = {-1, 1000, INT64_MIN, INT64_MAX, INT64_C(1) << 32};
    int64_t values[COUNT_MAX];
    for (uint32_t count = 0; count <= COUNT_MAX; count++) {
        for (uint32_t position = 0; position <= count; position++) {
            for (uint32_t i = 0; i < count; i++) {
                values[i] = i == position ? others[draw_index(5)] : (int64_t)draw_index(1000);
            }
            compare_with_reference(compare_are_rows, values, count, 1000);
        }
    }
}

static void tells_rows_at_the_edges_of_tables(void **state)
{
    (void)state;
    int64_t values[COUNT_MAX];
    for (int trial = 0; trial < 4000; trial++) {
        uint64_t row_count = row_counts[draw_index(sizeof row_counts / sizeof row_counts[0])];
        row_count = row_count > INT64_MAX ? INT64_MAX : row_count;
        uint32_t count = (uint32_t)draw_index(COUNT_MAX + 1);
        for (uint32_t i = 0; i < count; i++) {
            values[i] = (int64_t)(row_count > 0 ? row_count - 1 - draw_index(2) % row_count : 0);
        }
        if (count > 0 && draw_index(2)) {
            values[draw_index(count)] = draw_adversary(row_count);
        }
        compare_with_reference(compare_are_rows, values, count, row_count);
    }
}

static void counts_missing_indices_and_puts_others_in_their_place(void **state)
{
    (void)state;
    static const int64_t values[] = {3, -1, 4, 5, INT64_MIN, 0, INT64_MAX, 4};
    static const int64_t expected[] = {3, 9, 4, 9, 9, 0, 9, 4};
    struct eb_int_array array = {values, sizeof values, 8};
    int64_t rows[8];
    assert_int_equal(eb_bag_ref_index.take_rows(&array, 5, 9, rows), 4);
    assert_memory_equal(rows, expected, sizeof rows);
}

/* ---- bounds ---- */

/* Draws ascending bounds from 0 to at most `last`. */
static void draw_index_bounds(int64_t *values, uint32_t count, uint64_t last)
{
    uint64_t bound = draw_index(last / 2 + 1);
    for (uint32_t i = 0; i < count; i++) {
        values[i] = (int64_t)bound;
        bound += draw_index((last - bound) / 4 + 1);
    }
}

static void takes_bounds_as_the_reference(void **state)
{
    (void)state;
    static const uint64_t lasts[] = {0, 1, 5, 70, EB_BAG_INDICES_MAX};
    int64_t values[COUNT_MAX];
    for (int trial = 0; trial < 6000; trial++) {
        uint64_t last = lasts[draw_index(sizeof lasts / sizeof lasts[0])];
        uint32_t count = (uint32_t)draw_index(COUNT_MAX + 1);
        draw_index_bounds(values, count, last);
        if (count > 0 && draw_index(3) > 0) {
            values[draw_index(count)] =
                draw_index(2) ? draw_adversary(last + 1) : (int64_t)draw_index(last + 1);
        }
        compare_with_reference(compare_bounds, values, count, last);
    }
}

static void finds_an_error_of_order_at_every_position(void **state)
{
    (void)state;
    int64_t values[COUNT_MAX];
    for (uint32_t count = 1; count <= COUNT_MAX; count++) {
        for (uint32_t position = 0; position < count; position++) {
            for (uint32_t i = 0; i < count; i++) {
                values[i] = 5 + i;
            }
            values[position] -= 2;
            compare_with_reference(compare_bounds, values, count, COUNT_MAX + 5);
            values[position] = COUNT_MAX + 6;
            compare_with_reference(compare_bounds, values, count, COUNT_MAX + 5);
            values[position] = -1;
            compare_with_reference(compare_bounds, values, count, COUNT_MAX + 5);
        }
    }
}

static void no_bound_is_inside_an_empty_range(void **state)
{
    (void)state;
    const int64_t values[COUNT_MAX] = {0};
    for (uint32_t count = 0; count <= COUNT_MAX; count++) {
        compare_with_reference(compare_bounds, values, count, UINT64_MAX);
    }
}

static void tells_orders_apart(void **state)
{
    (void)state;
    static const int32_t ascending[] = {0, 2, 2, 6};
    static const int32_t descending[] = {0, 2, 1, 6};
    const struct eb_int_array arrays[] = {{ascending, 16, 4}, {descending, 16, 4}};
    uint32_t starts[4];
    const struct eb_bag_index_fns *fns = &eb_bag_ref_index;
    assert_int_equal(fns->take_bounds(&arrays[0], 6, starts), EB_BAG_ORDER_ASCENDING);
    assert_memory_equal(starts, ascending, sizeof starts);
    assert_int_equal(fns->take_bounds(&arrays[1], 6, starts), EB_BAG_ORDER_DESCENDING);
    assert_memory_equal(starts, descending, sizeof starts);
    assert_int_equal(fns->take_bounds(&arrays[0], 5, starts), EB_BAG_ORDER_OUTSIDE);
}

/* ---- lengths ---- */

static void takes_lengths_as_the_reference(void **state)
{
    (void)state;
    int64_t values[COUNT_MAX];
    for (int trial = 0; trial < 6000; trial++) {
        uint32_t count = (uint32_t)draw_index(COUNT_MAX + 1);
        uint64_t length_max = draw_index(2) ? 3 : EB_BAG_INDICES_MAX / COUNT_MAX;
        uint64_t sum = 0;
        for (uint32_t i = 0; i < count; i++) {
            values[i] = (int64_t)draw_index(length_max + 1);
            sum += (uint64_t)values[i];
        }
        if (count > 0 && draw_index(3) == 0) {
            values[draw_index(count)] = draw_adversary(sum + 1);
        }
        compare_with_reference(compare_lengths, values, count, sum + (draw_index(4) == 0));
    }
}

/* The sum of the lengths equals the number of indices only if the sum is cut to 32 or 64 bits. */
static void lengths_do_not_wrap_around(void **state)
{
    (void)state;
    for (uint32_t count = 4; count <= COUNT_MAX; count++) {
        int64_t values[COUNT_MAX] = {0};
        values[0] = INT64_MAX;
        values[count - 2] = INT64_MAX;
        values[count - 1] = 2;
        compare_with_reference(compare_lengths, values, count, 0);
        values[0] = UINT32_MAX;
        values[count - 2] = 1;
        compare_with_reference(compare_lengths, values, count, 2);
        values[0] = -1;
        compare_with_reference(compare_lengths, values, count, 2);
        int64_t half = INT64_C(1) << 31;
        values[0] = values[1] = values[count - 1] = half;
        values[count - 2] = 0;
        compare_with_reference(compare_lengths, values, count, (uint64_t)half);
    }
}

static void sums_lengths_up(void **state)
{
    (void)state;
    static const int64_t lengths[] = {2, 0, 4};
    static const uint32_t expected[] = {0, 2, 2, 6};
    struct eb_int_array array = {lengths, sizeof lengths, 8};
    uint32_t starts[4];
    assert_true(eb_bag_ref_index.take_lengths(&array, 6, starts));
    assert_memory_equal(starts, expected, sizeof starts);
    assert_false(eb_bag_ref_index.take_lengths(&array, 7, starts));
    assert_false(eb_bag_ref_index.take_lengths(&array, 5, starts));
}

EB_TEST_GROUP(bag_index)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_missing_indices_and_puts_others_in_their_place),
        cmocka_unit_test(finds_a_missing_index_at_every_position),
        cmocka_unit_test(takes_rows_as_the_reference),
        cmocka_unit_test(finds_an_index_that_is_no_row_at_every_position),
        cmocka_unit_test(tells_rows_at_the_edges_of_tables),
        cmocka_unit_test(tells_orders_apart),
        cmocka_unit_test(takes_bounds_as_the_reference),
        cmocka_unit_test(finds_an_error_of_order_at_every_position),
        cmocka_unit_test(no_bound_is_inside_an_empty_range),
        cmocka_unit_test(sums_lengths_up),
        cmocka_unit_test(takes_lengths_as_the_reference),
        cmocka_unit_test(lengths_do_not_wrap_around),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
