#include "server/tables/set_load.h"

#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define NPY_5X2 "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }"
#define NPY_I8_3 "{'descr': '|i1', 'fortran_order': False, 'shape': (3,), }"
#define NPY_NO_ROWS "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 2, 3), }"
#define F16_2X2 "{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]}"
#define FP8_3 "{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[8,11]}"

static const struct eb_table_options limits = {.row_bytes_max = 65536, .name_bytes_max = 255};

/* ---- a clock that a test can set ---- */

/* Reports are paced by clock_gettime with CLOCK_MONOTONIC, which nothing else reads here. */

static struct {
    bool is_ours;
    int64_t now_ms;
    int64_t step_ms; /* added at each read */
} test_clock;

static int read_test_clock(clockid_t id, struct timespec *out)
{
    if (!test_clock.is_ours || id != CLOCK_MONOTONIC) {
        return __real_clock_gettime(id, out);
    }
    test_clock.now_ms += test_clock.step_ms;
    *out = (struct timespec){
        .tv_sec = test_clock.now_ms / 1000, .tv_nsec = test_clock.now_ms % 1000 * 1000000};
    return 0;
}

static int pretend_clock(void **state)
{
    (void)state;
    eb_faults.clock_gettime = read_test_clock;
    return 0;
}

/* ---- directories ---- */

static int tear_down(void **state)
{
    test_clock.is_ours = false;
    return eb_scratch_tear_down(state);
}

static void load_set(const struct eb_scratch *scratch, struct eb_table_set *set)
{
    struct eb_failure failure = {.text = ""};
    if (!eb_set_load(scratch->root, &limits, NULL, set, &failure)) {
        fail_msg("%s", failure.text);
    }
}

/* Expects the load to fail with a text that starts with ROOT/`name` and contains `part`. */
static void expect_failure(const struct eb_scratch *scratch, const char *name, const char *part)
{
    struct eb_table_set set;
    struct eb_failure failure = {.text = ""};
    assert_false(eb_set_load(scratch->root, &limits, NULL, &set, &failure));
    assert_int_equal(set.count, 0);
    assert_null(set.tables);
    assert_null(set.memory.holds);
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, name, path);
    eb_scratch_expect(failure.text, name[0] ? path : scratch->root);
    eb_scratch_expect(failure.text, part);
}

static void loads_npy_and_safetensors(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_npy(scratch, "m.npy", NPY_5X2, 40);
    eb_scratch_write_npy(scratch, "none.npy", NPY_NO_ROWS, 0);
    eb_scratch_write_safetensors(
        scratch, "x.safetensors", "{\"z/w\":" F16_2X2 ",\"a\":" FP8_3 "}", 11);
    eb_scratch_write(scratch, "README", "", 0);
    eb_scratch_write(scratch, ".m.npy.part", "", 0);
    struct eb_table_set set;
    load_set(scratch, &set);
    static const char *const names[] = {"a", "m", "none", "z/w"};
    assert_int_equal(set.count, 4);
    assert_int_equal(set.bytes, EB_PAGE_2M_BYTES);
    for (size_t i = 0; i < set.count; i++) {
        assert_string_equal(set.tables[i].name, names[i]);
        assert_ptr_equal(eb_table_set_find(&set, names[i]), &set.tables[i]);
        assert_int_equal((uintptr_t)set.tables[i].table.rows % 64, 0);
        assert_int_equal(set.tables[i].table.unknown_row, -1);
    }
    assert_null(eb_table_set_find(&set, "b"));
    assert_null(eb_table_set_find(&set, ""));
    eb_table_set_deinit(&set);
}

static void describes_tables_as_kernels_want_them(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_npy(scratch, "m.npy", NPY_5X2, 40);
    eb_scratch_write_npy(scratch, "none.npy", NPY_NO_ROWS, 0);
    eb_scratch_write_safetensors(
        scratch, "x.safetensors", "{\"z\":" F16_2X2 ",\"a\":" FP8_3 "}", 11);
    struct eb_table_set set;
    load_set(scratch, &set);
    const struct eb_named_table *m = eb_table_set_find(&set, "m");
    assert_int_equal(m->table.type, EB_F32);
    assert_int_equal(m->table.row_count, 5);
    assert_int_equal(m->table.row_elements, 2);
    assert_int_equal(m->table.row_stride_bytes, 8);
    assert_int_equal(m->rank, 2);
    assert_int_equal(m->resident_bytes, 40);
    assert_int_equal(((const uint8_t *)m->table.rows)[0], 1);
    assert_int_equal(((const uint8_t *)m->table.rows)[39], 40);
    const struct eb_named_table *a = eb_table_set_find(&set, "a");
    assert_int_equal(a->table.storage, EB_STORAGE_F8_E4M3);
    assert_int_equal(a->table.type, EB_F32);
    assert_int_equal(a->table.row_elements, 1);
    assert_int_equal(((const uint8_t *)a->table.rows)[0], 9);
    const struct eb_named_table *none = eb_table_set_find(&set, "none");
    assert_int_equal(none->table.row_count, 0);
    assert_int_equal(none->table.row_elements, 6);
    assert_int_equal(none->dims[2], 3);
    eb_table_set_deinit(&set);
}

static void finds_each_of_a_thousand_tables(void **state)
{
    const struct eb_scratch *scratch = *state;
    char name[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "t%03d.npy", i);
        eb_scratch_write_npy(scratch, name, NPY_I8_3, 3);
    }
    struct eb_table_set set;
    load_set(scratch, &set);
    assert_int_equal(set.count, 1000);
    assert_int_equal(set.memory.mapped_bytes, EB_PAGE_2M_BYTES);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "t%03d", i);
        assert_ptr_equal(eb_table_set_find(&set, name), &set.tables[i]);
        snprintf(name, sizeof name, "u%03d", i);
        assert_null(eb_table_set_find(&set, name));
    }
    eb_table_set_deinit(&set);
}

/* The table is larger than one chunk. */
static void loads_a_table_of_many_pages(void **state)
{
    const struct eb_scratch *scratch = *state;
    enum { ROWS = 20 * 1024 * 1024 / 4 + 1 };
    struct eb_scratch_table head;
    char dict[128];
    snprintf(dict, sizeof dict, "{'descr': '<u4', 'fortran_order': False, 'shape': (%d,), }", ROWS);
    eb_scratch_npy(&head, 1, dict, 0);
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "big.npy", path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head.bytes, 1, head.size, file), head.size);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_int_equal(fwrite(&i, sizeof i, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    struct eb_table_set set;
    load_set(scratch, &set);
    assert_int_equal(set.tables[0].resident_bytes, 4 * (uint64_t)ROWS);
    assert_int_equal(set.bytes, 11 * EB_PAGE_2M_BYTES);
    const uint32_t *rows = set.tables[0].table.rows;
    assert_int_equal((uintptr_t)rows % EB_PAGE_2M_BYTES, 0);
    for (uint32_t i = 0; i < ROWS; i++) {
        if (rows[i] != i) {
            fail_msg("row %u is %u", i, rows[i]);
        }
    }
    eb_table_set_deinit(&set);
}

#define SPARSE_BYTES (20 * 1024 * 1024 + 1) /* forty whole chunks and part of another */
#define SPARSE_CHUNKS 41

/* Writes a table of zeros that takes no disk space. */
static void write_sparse(const struct eb_scratch *scratch, const char *name)
{
    char dict[128];
    snprintf(dict, sizeof dict, "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }",
        SPARSE_BYTES);
    eb_scratch_write_npy(scratch, name, dict, 0);
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, name, path);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size + SPARSE_BYTES), 0);
}

/* ---- rows with gaps between them ---- */

/* Expects zeros from the end of row `row` to the next row. */
static void expect_gap(const struct eb_table *table, uint64_t row, uint64_t row_bytes)
{
    const uint8_t *end = (const uint8_t *)table->rows + row * table->row_stride_bytes + row_bytes;
    for (uint64_t i = 0; i < table->row_stride_bytes - row_bytes; i++) {
        assert_int_equal(end[i], 0);
    }
}

static void spreads_rows_that_would_straddle_cache_lines(void **state)
{
    const struct eb_scratch *scratch = *state;
    static const char dict[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (5, 13), }";
    eb_scratch_write_npy(scratch, "t.npy", dict, 65);
    struct eb_table_set set;
    load_set(scratch, &set);
    const struct eb_named_table *t = &set.tables[0];
    assert_int_equal(t->table.row_stride_bytes, 16);
    assert_int_equal(t->table.row_elements, 13);
    assert_int_equal(t->resident_bytes, 80);
    const uint8_t *rows = t->table.rows;
    for (uint8_t i = 0; i < 65; i++) {
        assert_int_equal(rows[i / 13 * 16 + i % 13], i + 1);
    }
    for (uint64_t row = 0; row < 5; row++) {
        expect_gap(&t->table, row, 13);
    }
    eb_table_set_deinit(&set);
}

static void leaves_rows_together_where_gaps_cost_too_much(void **state)
{
    const struct eb_scratch *scratch = *state;
    static const char dict[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 25), }";
    eb_scratch_write_npy(scratch, "t.npy", dict, 300);
    struct eb_table_set set;
    load_set(scratch, &set);
    assert_int_equal(set.tables[0].table.row_stride_bytes, 100);
    assert_int_equal(set.tables[0].resident_bytes, 300);
    assert_int_equal(((const uint8_t *)set.tables[0].table.rows)[299], (uint8_t)300);
    eb_table_set_deinit(&set);
}

/* The rows fill more than one chunk, and no chunk ends at the end of a row. */
static void spreads_rows_of_many_chunks(void **state)
{
    const struct eb_scratch *scratch = *state;
    enum { ROWS = 700000, COLUMNS = 13, STRIDE = 16 };
    static const char dict[] = "{'descr': '<u2', 'fortran_order': False, 'shape': (700000, 13), }";
    struct eb_scratch_table head;
    eb_scratch_npy(&head, 1, dict, 0);
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "big.npy", path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head.bytes, 1, head.size, file), head.size);
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        uint16_t value = (uint16_t)(i * 31);
        assert_int_equal(fwrite(&value, sizeof value, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    struct eb_table_set set;
    load_set(scratch, &set);
    assert_int_equal(set.tables[0].table.row_stride_bytes, STRIDE * sizeof(uint16_t));
    assert_int_equal(set.tables[0].resident_bytes, ROWS * STRIDE * sizeof(uint16_t));
    assert_int_equal(set.bytes, 11 * EB_PAGE_2M_BYTES);
    const uint16_t *rows = set.tables[0].table.rows;
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        if (rows[i / COLUMNS * STRIDE + i % COLUMNS] != (uint16_t)(i * 31)) {
            fail_msg("value %u of row %u is wrong", i % COLUMNS, i / COLUMNS);
        }
    }
    for (uint64_t row = 0; row < ROWS; row += 1000) {
        expect_gap(&set.tables[0].table, row, COLUMNS * sizeof(uint16_t));
    }
    expect_gap(&set.tables[0].table, ROWS - 1, COLUMNS * sizeof(uint16_t));
    eb_table_set_deinit(&set);
}

static void spreads_rows_wider_than_a_chunk(void **state)
{
    const struct eb_scratch *scratch = *state;
    enum { ROW_BYTES = (9 << 20) + 3, COUNT = 3 };
    char dict[128];
    snprintf(dict, sizeof dict, "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }",
        COUNT, ROW_BYTES);
    eb_scratch_write_npy(scratch, "wide.npy", dict, 0);
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "wide.npy", path);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    for (int row = 0; row < COUNT; row++) {
        /* Writes the last byte of each row, after a hole. */
        assert_int_equal(fseek(file, ROW_BYTES - 1, row == 0 ? SEEK_END : SEEK_CUR), 0);
        assert_int_equal(fputc('a' + row, file), 'a' + row);
    }
    assert_int_equal(fclose(file), 0);
    struct eb_table_options wide = {.row_bytes_max = ROW_BYTES, .name_bytes_max = 255};
    struct eb_table_set set;
    struct eb_failure failure = {.text = ""};
    assert_true(eb_set_load(scratch->root, &wide, NULL, &set, &failure));
    const struct eb_table *table = &set.tables[0].table;
    assert_int_equal(table->row_stride_bytes, ROW_BYTES + 1);
    for (uint64_t row = 0; row < COUNT; row++) {
        const uint8_t *bytes = (const uint8_t *)table->rows + row * table->row_stride_bytes;
        assert_int_equal(bytes[0], 0);
        assert_int_equal(bytes[ROW_BYTES - 1], 'a' + row);
        expect_gap(table, row, ROW_BYTES);
    }
    eb_table_set_deinit(&set);
}

/* ---- pages ---- */

/* Whatever the system gives, no page is larger than asked for, and the tables' counts add up to the
 * set's. */
static void counts_the_pages_of_every_table(void **state)
{
    const struct eb_scratch *scratch = *state;
    write_sparse(scratch, "a.npy");
    eb_scratch_write_npy(scratch, "b.npy", NPY_5X2, 40);
    eb_scratch_write_npy(scratch, "none.npy", NPY_NO_ROWS, 0);
    struct eb_table_options options = limits;
    for (int pages = 0; pages < EB_PAGE_SIZE_COUNT; pages++) {
        options.memory.pages = (enum eb_page_size)pages;
        struct eb_table_set set;
        struct eb_failure failure = {.text = ""};
        assert_true(eb_set_load(scratch->root, &options, NULL, &set, &failure));
        assert_int_equal(set.pages_error, 0);
        assert_int_equal(set.pages.bytes, SPARSE_BYTES + 40);
        const struct eb_page_count *a = &set.tables[0].pages;
        const struct eb_page_count *b = &set.tables[1].pages;
        assert_int_equal(a->bytes, SPARSE_BYTES);
        assert_int_equal(b->bytes, 40);
        assert_int_equal(set.tables[2].pages.bytes_2m, 0);
        assert_int_equal(set.pages.bytes_2m, a->bytes_2m + b->bytes_2m);
        assert_int_equal(set.pages.bytes_1g, a->bytes_1g + b->bytes_1g);
        assert_true(pages != EB_PAGE_SMALL || set.pages.bytes_2m == 0);
        assert_true(pages == EB_PAGE_1G || set.pages.bytes_1g == 0);
        print_message("%s: %" PRIu64 " bytes of 2 MiB pages, %" PRIu64 " of 1 GiB\n",
            eb_page_size_names[pages], set.pages.bytes_2m, set.pages.bytes_1g);
        eb_table_set_deinit(&set);
    }
}

/* ---- progress ---- */

/* Reports of a load. An assert must not end a report, so reports are only collected here. */
struct reports {
    unsigned count;
    unsigned wrong_count; /* reports that went backwards, passed the total or changed the total */
    uint64_t done_bytes;
    uint64_t total_bytes;
    char path[EB_SCRATCH_PATH_BYTES]; /* of the last report */
};

static void collect(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    struct reports *reports = context;
    bool is_total_new = reports->count > 0 && total_bytes != reports->total_bytes;
    if (done_bytes < reports->done_bytes || done_bytes > total_bytes || is_total_new) {
        reports->wrong_count++;
    }
    reports->count++;
    reports->done_bytes = done_bytes;
    reports->total_bytes = total_bytes;
    snprintf(reports->path, sizeof reports->path, "%s", path);
}

/* Loads two sparse tables with a clock that advances by `step_ms` at each read. */
static struct reports load_by_clock(const struct eb_scratch *scratch, int64_t step_ms)
{
    write_sparse(scratch, "a.npy");
    write_sparse(scratch, "b.npy");
    struct reports reports = {0};
    struct eb_load_progress progress = {.report = collect, .context = &reports};
    struct eb_table_set set;
    struct eb_failure failure = {.text = ""};
    test_clock.is_ours = true;
    test_clock.now_ms = 0;
    test_clock.step_ms = step_ms;
    bool is_good = eb_set_load(scratch->root, &limits, &progress, &set, &failure);
    test_clock.is_ours = false;
    if (!is_good) {
        fail_msg("%s", failure.text);
    }
    eb_table_set_deinit(&set);
    return reports;
}

static void reports_progress_up_to_the_total(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct reports reports = load_by_clock(scratch, 1000);
    assert_int_equal(reports.count, 2 * SPARSE_CHUNKS);
    assert_int_equal(reports.wrong_count, 0);
    assert_int_equal(reports.total_bytes, 2 * SPARSE_BYTES);
    assert_int_equal(reports.done_bytes, reports.total_bytes);
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "b.npy", path);
    assert_string_equal(reports.path, path);
}

static void reports_progress_once_a_second(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct reports reports = load_by_clock(scratch, 500);
    assert_int_equal(reports.count, SPARSE_CHUNKS);
    assert_int_equal(reports.wrong_count, 0);
    assert_int_equal(load_by_clock(scratch, 1).count, 0);
}

static void names_the_broken_file(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_npy(scratch, "a.npy", NPY_5X2, 40);
    eb_scratch_write_npy(scratch, "b.npy", NPY_5X2, 39);
    expect_failure(scratch, "b.npy", "cut short");
}

static void names_the_broken_tensor(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_safetensors(scratch, "a.safetensors", "{\"t\":" F16_2X2 "}", 9);
    expect_failure(scratch, "a.safetensors", "after the last tensor");
    eb_scratch_write_safetensors(scratch, "a.safetensors", "{\"t\":5}", 0);
    expect_failure(scratch, "a.safetensors", "tensor 't'");
    eb_scratch_write(scratch, "a.safetensors", "1234567", 7);
    expect_failure(scratch, "a.safetensors", "byte 7");
    eb_scratch_write(scratch, "a.safetensors", "\0\0\0\0\0\0\0\x10{}", 10);
    expect_failure(scratch, "a.safetensors", "1152921504606846976");
}

static void names_both_files_of_a_table_given_twice(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_npy(scratch, "t.npy", NPY_5X2, 40);
    eb_scratch_write_safetensors(scratch, "a.safetensors", "{\"t\":" F16_2X2 "}", 8);
    expect_failure(scratch, "t.npy", "table 't'");
    expect_failure(scratch, "a.safetensors", "table 't'");
}

static void refuses_names_that_are_not_allowed(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_npy(scratch, "a\nb.npy", NPY_5X2, 40);
    expect_failure(scratch, "a\\x0ab.npy: ", "the table name 'a\\x0ab' is not UTF-8");
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "a\nb.npy", path);
    assert_int_equal(unlink(path), 0);
    eb_scratch_write_safetensors(scratch, "a.safetensors", "{\"\":" F16_2X2 "}", 8);
    expect_failure(scratch, "a.safetensors", "is empty");
    char json[512];
    snprintf(json, sizeof json, "{\"%0256d\":" F16_2X2 "}", 0);
    eb_scratch_write_safetensors(scratch, "a.safetensors", json, 8);
    expect_failure(scratch, "a.safetensors", "longer");
    snprintf(json, sizeof json, "{\"%0255d\":" F16_2X2 "}", 0);
    eb_scratch_write_safetensors(scratch, "a.safetensors", json, 8);
    struct eb_table_set set;
    load_set(scratch, &set);
    eb_table_set_deinit(&set);
}

static void refuses_a_row_past_the_limit(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_table_set set;
    struct eb_failure failure = {.text = ""};
    eb_scratch_write_npy(scratch, "t.npy", NPY_5X2, 40);
    struct eb_table_options narrow = {.row_bytes_max = 8, .name_bytes_max = 1};
    assert_true(eb_set_load(scratch->root, &narrow, NULL, &set, &failure));
    eb_table_set_deinit(&set);
    narrow.row_bytes_max = 7;
    assert_false(eb_set_load(scratch->root, &narrow, NULL, &set, &failure));
    eb_scratch_expect(
        failure.text, "rows of table 't' have 8 bytes, more than row_bytes_max, which is 7");
}

static void refuses_a_directory_without_tables(void **state)
{
    const struct eb_scratch *scratch = *state;
    expect_failure(scratch, "", "there is no table in it");
}

static void names_a_file_without_tables_beside_good_ones(void **state)
{
    const struct eb_scratch *scratch = *state;
    eb_scratch_write_npy(scratch, "t.npy", NPY_5X2, 40);
    eb_scratch_write_safetensors(scratch, "a.safetensors", "{}", 0);
    expect_failure(scratch, "a.safetensors", "there is no table in it");
}

static void refuses_what_is_no_regular_file(void **state)
{
    const struct eb_scratch *scratch = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "a.npy", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_failure(scratch, "a.npy", "not a regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_failure(scratch, "a.npy", "not a regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    expect_failure(scratch, "a.npy", "cannot be opened");
}

static void follows_links_to_files(void **state)
{
    const struct eb_scratch *scratch = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_write_npy(scratch, ".data/x", NPY_5X2, 40);
    eb_scratch_path(scratch, "a.npy", path);
    assert_int_equal(symlink(".data/x", path), 0);
    struct eb_table_set set;
    load_set(scratch, &set);
    assert_non_null(eb_table_set_find(&set, "a"));
    eb_table_set_deinit(&set);
}

/* A file with holes has the length that its shape requires, but takes no disk space. */
static void says_how_much_memory_is_missing(void **state)
{
    const struct eb_scratch *scratch = *state;
    static const char dict[] =
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1099511627776, 4), }";
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(scratch, "a.npy", path);
    eb_scratch_write_npy(scratch, "a.npy", dict, 0);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    if (truncate(path, status.st_size + (INT64_C(4) << 40)) != 0) {
        print_message("this file system cannot hold a file of 4 TiB\n");
        skip();
    }
    expect_failure(scratch, "", "need 4398046511104 bytes of memory, ");
}

EB_TEST_GROUP(table_set)
{
#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, eb_scratch_set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(loads_npy_and_safetensors),
        WITH_ROOT(describes_tables_as_kernels_want_them),
        WITH_ROOT(finds_each_of_a_thousand_tables),
        WITH_ROOT(loads_a_table_of_many_pages),
        WITH_ROOT(spreads_rows_that_would_straddle_cache_lines),
        WITH_ROOT(leaves_rows_together_where_gaps_cost_too_much),
        WITH_ROOT(spreads_rows_of_many_chunks),
        WITH_ROOT(spreads_rows_wider_than_a_chunk),
        WITH_ROOT(counts_the_pages_of_every_table),
        WITH_ROOT(reports_progress_up_to_the_total),
        WITH_ROOT(reports_progress_once_a_second),
        WITH_ROOT(names_the_broken_file),
        WITH_ROOT(names_the_broken_tensor),
        WITH_ROOT(names_both_files_of_a_table_given_twice),
        WITH_ROOT(refuses_names_that_are_not_allowed),
        WITH_ROOT(refuses_a_row_past_the_limit),
        WITH_ROOT(refuses_a_directory_without_tables),
        WITH_ROOT(names_a_file_without_tables_beside_good_ones),
        WITH_ROOT(refuses_what_is_no_regular_file),
        WITH_ROOT(follows_links_to_files),
        WITH_ROOT(says_how_much_memory_is_missing),
    };
    return cmocka_run_group_tests(tests, pretend_clock, eb_faults_tear_down);
}
