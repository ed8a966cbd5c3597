#include "client/cli/pack_table.h"

#include "kernels/key_index.h"
#include "kernels/quantize.h"
#include "server/formats/npy.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROWS 700
#define ELEMENTS 37
#define LARGE_ROWS 100000
#define LARGE_BAD 60000

static struct eb_scratch scratch;
static float table[ROWS][ELEMENTS];
static int64_t row_keys[ROWS];
static char input[EB_SCRATCH_PATH_BYTES];
static char output[EB_SCRATCH_PATH_BYTES];
static char keys_path[EB_SCRATCH_PATH_BYTES];

static void write_npy(const char *name, struct eb_tensor tensor, const void *data, size_t size)
{
    static uint8_t file[1024 + sizeof table];
    uint64_t header = eb_npy_header_write(&tensor, file, 1024);
    memcpy(file + header, data, size);
    eb_scratch_write(&scratch, name, file, header + size);
}

static int make_root(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof table / sizeof(float); i++) {
        random = random * 1664525 + 1013904223;
        table[i / ELEMENTS][i % ELEMENTS] = (float)((double)random / 4294967296.0 * 8 - 4);
    }
    for (int i = 0; i < ROWS; i++) {
        row_keys[i] = (int64_t)i * -1000003 + 5;
    }
    eb_scratch_init(&scratch);
    write_npy("in.npy",
        (struct eb_tensor){.storage = EB_STORAGE_F32, .rank = 2, .dims = {ROWS, ELEMENTS}}, table,
        sizeof table);
    write_npy("in.keys.npy",
        (struct eb_tensor){.storage = EB_STORAGE_I64, .rank = 1, .dims = {ROWS}}, row_keys,
        sizeof row_keys);
    eb_scratch_path(&scratch, "in.npy", input);
    eb_scratch_path(&scratch, "out.embag", output);
    eb_scratch_path(&scratch, "in.keys.npy", keys_path);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    eb_scratch_deinit(&scratch);
    return 0;
}

/* Returns the plan of most tests: all rows go into one file, without a bound on the error. */
static struct eb_pack_plan make_plan(enum eb_storage storage)
{
    return (struct eb_pack_plan){
        .storage = storage,
        .parts = 1,
        .unknown_row = -1,
        .path = output,
        .file_count = 1,
        .error_max = INFINITY,
    };
}

static bool pack(const char *path, struct eb_pack_plan plan, struct eb_pack_result *result,
    struct eb_failure *failure)
{
    struct eb_source_file source;
    if (!eb_source_file_open(&source, path, failure)) {
        fail_msg("%s", failure->text);
    }
    plan.source = &source;
    plan.table = &source.tables[0];
    bool is_good = eb_pack_table(&plan, result, failure);
    eb_source_file_close(&source);
    return is_good;
}

static void expect_packed(
    const char *path, const struct eb_pack_plan *plan, struct eb_pack_result *result)
{
    struct eb_failure failure = {.text = ""};
    if (!pack(path, *plan, result, &failure)) {
        fail_msg("%s", failure.text);
    }
}

/* Returns all rows of a packed file, which the caller frees. */
static uint8_t *read_rows(const char *path, struct eb_packed_format *format)
{
    struct eb_source_file source;
    struct eb_failure failure;
    assert_true(eb_source_file_open(&source, path, &failure));
    *format = source.reader.format;
    uint8_t *rows = malloc(format->tensor.data_bytes + 1);
    struct eb_source_range all = {0, format->tensor.data_bytes};
    assert_true(eb_source_file_read(&source, &source.tables[0], all, rows, &failure));
    eb_source_file_close(&source);
    return rows;
}

/* Makes a row as kernels/quantize.h does, with scale and bias in front if the storage has them.
 * Returns the size of the row. */
static size_t quantize(enum eb_storage storage, const float *values, uint8_t *out)
{
    struct eb_row_scale scale;
    size_t offset = eb_storage_is_code(storage) ? sizeof scale : 0;
    assert_true(eb_quantize_row(storage, values, ELEMENTS, out + offset, &scale));
    memcpy(out, &scale, offset);
    return offset + eb_storage_row_bytes(storage, ELEMENTS);
}

static double measure_error(enum eb_storage storage, const float *values, const uint8_t *row)
{
    float stored[ELEMENTS];
    struct eb_row_scale scale = {0};
    size_t offset = eb_storage_is_code(storage) ? sizeof scale : 0;
    double max = 0;
    memcpy(&scale, row, offset);
    eb_dequantize_row(storage, row + offset, &scale, ELEMENTS, stored);
    for (int i = 0; i < ELEMENTS; i++) {
        max = fmax(max, fabs((double)stored[i] - values[i]));
    }
    return max;
}

static void stores_rows_as_the_kernels_quantise_them(void **state)
{
    (void)state;
    static const enum eb_storage storages[] = {EB_STORAGE_F32, EB_STORAGE_F16, EB_STORAGE_BF16,
        EB_STORAGE_F8_E4M3, EB_STORAGE_F8_E5M2, EB_STORAGE_INT8, EB_STORAGE_INT4, EB_STORAGE_INT2};
    for (size_t i = 0; i < sizeof storages / sizeof storages[0]; i++) {
        struct eb_pack_plan plan = make_plan(storages[i]);
        struct eb_pack_result result;
        struct eb_packed_format format;
        expect_packed(input, &plan, &result);
        uint8_t *rows = read_rows(output, &format);
        double error_max = 0;
        for (int r = 0; r < ROWS; r++) {
            uint8_t expected[sizeof table[0]];
            size_t size = quantize(storages[i], table[r], expected);
            assert_memory_equal(rows + (size_t)r * format.row_stride_bytes, expected, size);
            error_max = fmax(error_max, measure_error(storages[i], table[r], expected));
        }
        assert_true(result.values.max == error_max);
        assert_int_equal(result.is_converted, storages[i] != EB_STORAGE_F32);
        assert_int_equal(format.type, EB_F32);
        free(rows);
        unlink(output);
    }
}

static void refuses_an_error_above_the_bound_and_leaves_nothing(void **state)
{
    (void)state;
    struct eb_pack_plan plan = make_plan(EB_STORAGE_INT4);
    struct eb_pack_result result;
    struct eb_failure failure = {.text = ""};
    expect_packed(input, &plan, &result);
    unlink(output);
    plan.error_max = result.values.max;
    expect_packed(input, &plan, &result);
    unlink(output);
    plan.error_max = nextafter(plan.error_max, 0);
    plan.file_count = 3;
    assert_false(pack(input, plan, &result, &failure));
    eb_scratch_expect(failure.text, "--max-error");
    assert_int_equal(access(output, F_OK), -1);
    unlink(input);
    unlink(keys_path);
    /* rmdir succeeds only if the directory is empty. */
    assert_int_equal(rmdir(scratch.root), 0);
    eb_scratch_init(&scratch);
}

/* Writes a table that is packed in four chunks. Two of its rows have a value that cannot become a
 * code, if is_spoiled. */
static void write_large(const char *name, bool is_spoiled)
{
    struct eb_tensor tensor = {
        .storage = EB_STORAGE_F32, .rank = 2, .dims = {LARGE_ROWS, ELEMENTS}};
    size_t count = (size_t)LARGE_ROWS * ELEMENTS;
    uint8_t *file = malloc(1024 + count * sizeof(float));
    assert_non_null(file);
    uint64_t header = eb_npy_header_write(&tensor, file, 1024);
    uint32_t random = 7;
    for (size_t i = 0; i < count; i++) {
        random = random * 1664525 + 1013904223;
        float value = (float)((double)random / 4294967296.0 - 0.5);
        bool is_bad = i == LARGE_BAD * ELEMENTS + 5 || i == (LARGE_ROWS - 1) * ELEMENTS;
        value = is_bad && is_spoiled ? NAN : value;
        memcpy(file + header + i * sizeof value, &value, sizeof value);
    }
    eb_scratch_write(&scratch, name, file, header + count * sizeof(float));
    free(file);
}

static void expect_equal_deviations(
    const struct eb_pack_deviation *a, const struct eb_pack_deviation *b)
{
    assert_true(a->max == b->max && a->sum == b->sum);
    assert_int_equal(a->max_row, b->max_row);
    assert_int_equal(a->count, b->count);
}

/* Packs a file with one thread, and with others. The files and results must be the same. */
static void expect_same_with_threads(const char *path, enum eb_storage storage)
{
    static const unsigned thread_counts[] = {1, 2, 3, 5};
    struct eb_pack_result results[sizeof thread_counts / sizeof thread_counts[0]];
    uint64_t digest = 0;
    for (size_t i = 0; i < sizeof thread_counts / sizeof thread_counts[0]; i++) {
        struct eb_pack_plan plan = make_plan(storage);
        struct eb_packed_format format;
        plan.thread_count = thread_counts[i];
        expect_packed(path, &plan, &results[i]);
        free(read_rows(output, &format)); /* compares them with their checksums */
        unlink(output);
        digest = i == 0 ? format.digest : digest;
        assert_true(format.digest == digest);
        expect_equal_deviations(&results[i].values, &results[0].values);
        expect_equal_deviations(&results[i].bags, &results[0].bags);
    }
}

static void packs_the_same_with_any_number_of_threads(void **state)
{
    (void)state;
    struct eb_pack_plan plan = make_plan(EB_STORAGE_INT8);
    struct eb_pack_result result;
    char large[EB_SCRATCH_PATH_BYTES];
    char codes[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&scratch, "large.npy", large);
    eb_scratch_path(&scratch, "codes.embag", codes);
    write_large("large.npy", false);
    plan.path = codes;
    expect_packed(large, &plan, &result);
    expect_same_with_threads(large, EB_STORAGE_F32);
    expect_same_with_threads(large, EB_STORAGE_INT8);
    expect_same_with_threads(codes, EB_STORAGE_INT4);
}

static void names_the_first_bad_row_with_any_number_of_threads(void **state)
{
    (void)state;
    char large[EB_SCRATCH_PATH_BYTES];
    char expected[64];
    eb_scratch_path(&scratch, "large.npy", large);
    write_large("large.npy", true);
    snprintf(expected, sizeof expected, "packed row %d: value 5 is nan", LARGE_BAD);
    for (unsigned threads = 1; threads <= 5; threads++) {
        struct eb_pack_plan plan = make_plan(EB_STORAGE_INT8);
        struct eb_pack_result result;
        struct eb_failure failure = {.text = ""};
        plan.thread_count = threads;
        assert_false(pack(large, plan, &result, &failure));
        eb_scratch_expect(failure.text, expected);
        assert_int_equal(access(output, F_OK), -1);
    }
}

static void names_a_value_that_no_code_can_be(void **state)
{
    (void)state;
    struct eb_pack_plan plan = make_plan(EB_STORAGE_INT8);
    struct eb_pack_result result;
    struct eb_failure failure = {.text = ""};
    table[41][7] = NAN;
    write_npy("in.npy",
        (struct eb_tensor){.storage = EB_STORAGE_F32, .rank = 2, .dims = {ROWS, ELEMENTS}}, table,
        sizeof table);
    assert_false(pack(input, plan, &result, &failure));
    eb_scratch_expect(failure.text, "packed row 41: value 7 is nan");
    plan = make_plan(EB_STORAGE_F16);
    expect_packed(input, &plan, &result);
}

static void packs_what_is_packed_to_the_same_bytes(void **state)
{
    (void)state;
    struct eb_pack_plan plan = make_plan(EB_STORAGE_INT4);
    struct eb_pack_result result;
    struct eb_packed_format first;
    struct eb_packed_format second;
    char again[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&scratch, "again.embag", again);
    expect_packed(input, &plan, &result);
    plan.path = again;
    expect_packed(output, &plan, &result);
    assert_false(result.is_converted);
    free(read_rows(output, &first));
    free(read_rows(again, &second));
    assert_true(first.digest == second.digest);
}

/* Every part and every file has at least one row, however large the number of parts is. */
static void makes_no_part_and_no_file_without_a_row(void **state)
{
    (void)state;
    static const uint32_t too_many[] = {ROWS + 1, 100000, UINT32_MAX};
    struct eb_pack_result result;
    for (size_t i = 0; i < sizeof too_many / sizeof too_many[0]; i++) {
        struct eb_failure failure = {.text = ""};
        struct eb_pack_plan plan = make_plan(EB_STORAGE_F32);
        plan.parts = too_many[i];
        assert_false(pack(input, plan, &result, &failure));
        eb_scratch_expect(failure.text, "in.npy: its 700 rows are too few for");
    }
    struct eb_failure failure = {.text = ""};
    struct eb_pack_plan plan = make_plan(EB_STORAGE_F32);
    plan.parts = ROWS;
    plan.part = ROWS - 1;
    plan.file_count = 2;
    assert_false(pack(input, plan, &result, &failure));
    eb_scratch_expect(failure.text, "in.npy: 1 rows are too few for 2 files");
    plan.file_count = 1;
    expect_packed(input, &plan, &result);
    struct eb_packed_format format;
    uint8_t *row = read_rows(output, &format);
    assert_int_equal(format.tensor.dims[0], 1);
    assert_memory_equal(row, table[ROWS - 1], sizeof table[0]);
    free(row);
}

/* Returns the keys of a piece of a table, which the caller frees. */
static int64_t *read_keys(const char *path)
{
    struct eb_source_file source;
    struct eb_pack_keys keys;
    struct eb_failure failure;
    assert_true(eb_source_file_open(&source, path, &failure));
    assert_true(eb_pack_keys_unpack(&keys, &source.reader, &failure));
    eb_source_file_close(&source);
    return keys.keys;
}

static void splits_rows_and_keys(void **state)
{
    (void)state;
    struct eb_pack_plan plan = make_plan(EB_STORAGE_F32);
    struct eb_pack_keys keys;
    struct eb_pack_result result;
    struct eb_failure failure = {.text = ""};
    assert_true(eb_pack_keys_read(&keys, keys_path, &failure));
    plan.keys = &keys;
    plan.file_count = 3;
    expect_packed(input, &plan, &result);
    eb_pack_keys_deinit(&keys);
    uint64_t first = 0;
    for (uint32_t i = 0; i < plan.file_count; i++) {
        struct eb_packed_format format;
        char *path = eb_pack_table_path(output, i, plan.file_count);
        uint8_t *rows = read_rows(path, &format);
        int64_t *piece_keys = read_keys(path);
        uint64_t count = format.tensor.dims[0];
        assert_int_equal(format.row_first, first);
        assert_int_equal(format.rows_total, ROWS);
        assert_int_equal(format.sections[EB_PACKED_KEY_INDEX].bytes, 0);
        for (uint64_t r = 0; r < count; r++) {
            assert_memory_equal(
                rows + r * format.row_stride_bytes, table[first + r], sizeof table[0]);
        }
        assert_memory_equal(piece_keys, row_keys + first, count * sizeof *row_keys);
        first += count;
        free(piece_keys);
        free(rows);
        free(path);
    }
    assert_int_equal(first, ROWS);
}

static void takes_every_row_of_a_part(void **state)
{
    (void)state;
    for (uint32_t part = 0; part < 3; part++) {
        struct eb_pack_plan plan = make_plan(EB_STORAGE_F32);
        struct eb_pack_result result;
        struct eb_packed_format format;
        plan.parts = 3;
        plan.part = part;
        expect_packed(input, &plan, &result);
        uint8_t *rows = read_rows(output, &format);
        assert_int_equal(format.tensor.dims[0], eb_packed_format_part_rows(ROWS, plan.parts, part));
        for (uint64_t r = 0; r < format.tensor.dims[0]; r++) {
            assert_memory_equal(
                rows + r * format.row_stride_bytes, table[r * 3 + part], sizeof table[0]);
        }
        free(rows);
        unlink(output);
    }
}

static void stores_an_index_that_finds_every_key(void **state)
{
    (void)state;
    struct eb_pack_plan plan = make_plan(EB_STORAGE_INT8);
    struct eb_pack_keys keys;
    struct eb_pack_result result;
    struct eb_source_file source;
    struct eb_failure failure = {.text = ""};
    struct eb_key_index index;
    const char *reason;
    assert_true(eb_pack_keys_read(&keys, keys_path, &failure));
    assert_true(eb_pack_keys_index(&keys, &failure));
    plan.keys = &keys;
    expect_packed(input, &plan, &result);
    eb_pack_keys_deinit(&keys);
    assert_true(eb_source_file_open(&source, output, &failure));
    const struct eb_packed_section *section = &source.reader.format.sections[EB_PACKED_KEY_INDEX];
    uint8_t *bytes = aligned_alloc(EB_KEY_INDEX_ALIGNMENT, (section->bytes + 63) / 64 * 64);
    assert_true(
        eb_packed_reader_read(&source.reader, section->offset, bytes, section->bytes, &failure));
    assert_true(eb_key_index_open(&index, bytes, section->bytes, ROWS, &reason));
    for (int64_t row = 0; row < ROWS; row++) {
        assert_int_equal(eb_key_index_find(&index, row_keys[row]), row);
    }
    assert_int_equal(eb_key_index_find(&index, 6), -1);
    free(bytes);
    eb_source_file_close(&source);
}

static void names_rows_with_the_same_key(void **state)
{
    (void)state;
    struct eb_pack_keys keys;
    struct eb_failure failure = {.text = ""};
    row_keys[600] = row_keys[3];
    write_npy("in.keys.npy",
        (struct eb_tensor){.storage = EB_STORAGE_I64, .rank = 1, .dims = {ROWS}}, row_keys,
        sizeof row_keys);
    assert_true(eb_pack_keys_read(&keys, keys_path, &failure));
    assert_false(eb_pack_keys_index(&keys, &failure));
    eb_scratch_expect(failure.text, "rows 3 and 600 have the same key -3000004");
    eb_pack_keys_deinit(&keys);
}

static void takes_no_other_tensor_for_keys(void **state)
{
    (void)state;
    struct eb_pack_keys keys;
    struct eb_failure failure = {.text = ""};
    assert_false(eb_pack_keys_read(&keys, input, &failure));
    eb_scratch_expect(failure.text, "(700, 37) of f32 cannot be keys");
}

EB_TEST_GROUP(pack_table)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            stores_rows_as_the_kernels_quantise_them, make_root, remove_root),
        cmocka_unit_test_setup_teardown(
            refuses_an_error_above_the_bound_and_leaves_nothing, make_root, remove_root),
        cmocka_unit_test_setup_teardown(names_a_value_that_no_code_can_be, make_root, remove_root),
        cmocka_unit_test_setup_teardown(
            packs_the_same_with_any_number_of_threads, make_root, remove_root),
        cmocka_unit_test_setup_teardown(
            names_the_first_bad_row_with_any_number_of_threads, make_root, remove_root),
        cmocka_unit_test_setup_teardown(
            packs_what_is_packed_to_the_same_bytes, make_root, remove_root),
        cmocka_unit_test_setup_teardown(
            makes_no_part_and_no_file_without_a_row, make_root, remove_root),
        cmocka_unit_test_setup_teardown(splits_rows_and_keys, make_root, remove_root),
        cmocka_unit_test_setup_teardown(takes_every_row_of_a_part, make_root, remove_root),
        cmocka_unit_test_setup_teardown(
            stores_an_index_that_finds_every_key, make_root, remove_root),
        cmocka_unit_test_setup_teardown(names_rows_with_the_same_key, make_root, remove_root),
        cmocka_unit_test_setup_teardown(takes_no_other_tensor_for_keys, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
