#include "proto/buffer_bins.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct eb_buffer_range range = {.smallest_bits = 8, .bins = 3}; /* 256 to 1024 */

static void rounds_sizes_up(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 256, 257, 512, 513, 1024, 1025, 1088, 1089, SIZE_MAX / 2};
    static const uint64_t rounded[] = {
        256, 256, 256, 512, 512, 1024, 1024, 1088, 1088, 1152, (uint64_t)SIZE_MAX / 2 + 1};
    static const unsigned bins[] = {0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 3};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(eb_buffer_range_find(range, sizes[i]).bytes, rounded[i]);
        assert_int_equal(eb_buffer_range_find(range, sizes[i]).bin, bins[i]);
    }
}

static void *allocate(size_t bytes)
{
    void *buffer = aligned_alloc(EB_BUFFER_ALIGNMENT, eb_buffer_range_find(range, bytes).bytes);
    assert_non_null(buffer);
    return buffer;
}

static bool push(struct eb_buffer_bins *bins, void *buffer, size_t bytes)
{
    return eb_buffer_bins_push(bins, range, eb_buffer_range_find(range, bytes), buffer);
}

static void *pop(struct eb_buffer_bins *bins, size_t bytes)
{
    return eb_buffer_bins_pop(bins, range, eb_buffer_range_find(range, bytes));
}

static void gives_what_was_kept_last_of_that_size(void **state)
{
    (void)state;
    struct eb_buffer_bins bins = {.kept_bytes_max = 4096};
    void *first = allocate(300);
    void *second = allocate(512);
    void *small = allocate(100);
    assert_null(pop(&bins, 300));
    assert_true(push(&bins, first, 300));
    assert_true(push(&bins, second, 512));
    assert_true(push(&bins, small, 100));
    assert_int_equal(bins.kept_bytes, 512 + 512 + 256);
    assert_null(pop(&bins, 513));
    assert_ptr_equal(pop(&bins, 257), second);
    assert_ptr_equal(pop(&bins, 257), first);
    assert_null(pop(&bins, 257));
    assert_int_equal(bins.kept_bytes, 256);
    free(first);
    free(second);
    eb_buffer_bins_deinit(&bins);
}

static void keeps_neither_what_is_large_nor_too_much(void **state)
{
    (void)state;
    struct eb_buffer_bins bins = {.kept_bytes_max = 1536};
    void *large = allocate(1025);
    void *one = allocate(1024);
    void *two = allocate(512);
    void *past = allocate(1);
    assert_false(push(&bins, large, 1025));
    assert_null(pop(&bins, 1025));
    assert_true(push(&bins, one, 1024));
    assert_true(push(&bins, two, 512));
    assert_false(push(&bins, past, 1));
    assert_int_equal(bins.kept_bytes, 1536);
    free(large);
    free(past);
    eb_buffer_bins_deinit(&bins);
}

EB_TEST_GROUP(buffer_bins)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_sizes_up),
        cmocka_unit_test(gives_what_was_kept_last_of_that_size),
        cmocka_unit_test(keeps_neither_what_is_large_nor_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
