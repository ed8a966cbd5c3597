#include "server/tables/table_share.h"

#include "server/tables/table_plan.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/packed_fixture.h"
#include "tests/unit/tables/set_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ROWS 1200000 /* of two f32; more than the chunks that are read at a time */
#define ELEMENTS 2
#define BYTES (ROWS * ELEMENTS * sizeof(float))
#define CHUNK_BYTES (512 << 10)
#define THREADS 4
#define TURNS 5000

static struct eb_set_fixture fixture;
static float *values;
static int64_t *keys;
static uint64_t read_bytes;    /* bytes read since the last load began */
static uint64_t missing_bytes; /* as reported by the last load that was short of memory */
static uint64_t available_bytes;

static uint64_t tell_share_memory(void)
{
    return available_bytes;
}

static int limit_share_memory(void **state)
{
    (void)state;
    eb_faults.eb_machine_available_bytes = tell_share_memory;
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    available_bytes = UINT64_MAX;
    eb_set_fixture_init(&fixture);
    values = malloc(BYTES);
    keys = malloc(ROWS * sizeof *keys);
    for (int i = 0; i < ROWS * ELEMENTS; i++) {
        values[i] = (float)i;
    }
    for (int i = 0; i < ROWS; i++) {
        keys[i] = (i - ROWS / 2) * INT64_C(1021);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_set_fixture_deinit(&fixture);
    free(values);
    free(keys);
    return 0;
}

static void write_shared_rows(const char *name)
{
    static const uint64_t dims[2] = {ROWS, ELEMENTS};
    eb_set_fixture_write_npy(&fixture, name, EB_STORAGE_F32, dims, values);
}

static void write_shared_keys(const char *name)
{
    static const uint64_t dims[2] = {ROWS, 0};
    eb_set_fixture_write_npy(&fixture, name, EB_STORAGE_I64, dims, keys);
}

static void link_file(const char *from, const char *to)
{
    char old[EB_SCRATCH_PATH_BYTES];
    char new[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture.scratch, from, old);
    eb_scratch_path(&fixture.scratch, to, new);
    assert_int_equal(link(old, new), 0);
}

static bool count_bytes(void *context, uint64_t bytes)
{
    *(uint64_t *)context += bytes;
    return true;
}

static void note_missing(void *context, uint64_t bytes)
{
    (void)context;
    missing_bytes = bytes;
}

/* Loads ROOT/version beside the resident tables. */
static void load_shared(const char *version, const char *yaml, const struct eb_table_set *resident,
    struct eb_table_set *set)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_model_config config;
    struct eb_failure failure = {.text = ""};
    struct eb_load_progress progress = {.go_on = count_bytes, .context = &read_bytes};
    eb_scratch_path(&fixture.scratch, version, path);
    assert_true(eb_model_config_parse((const uint8_t *)yaml, strlen(yaml), 255, &config, &failure));
    struct eb_table_options options = {.row_bytes_max = 65536,
        .name_bytes_max = 255,
        .config = &config,
        .residents = &resident,
        .resident_count = resident ? 1 : 0};
    read_bytes = 0;
    if (!eb_set_load(path, &options, &progress, set, &failure)) {
        fail_msg("%s", failure.text);
    }
    eb_model_config_deinit(&config);
}

static const struct eb_named_table *find(const struct eb_table_set *set, const char *name)
{
    const struct eb_named_table *table = eb_table_set_find(set, name);
    assert_non_null(table);
    return table;
}

static void expect_shared(
    const struct eb_table_set *a, const struct eb_table_set *b, const char *name)
{
    const struct eb_named_table *left = find(a, name);
    const struct eb_named_table *right = find(b, name);
    assert_ptr_equal(left->table.rows, right->table.rows);
    assert_ptr_equal(left->table.scales, right->table.scales);
    assert_ptr_equal(left->index, right->index);
    assert_true(left->digest == right->digest);
    assert_int_equal(left->resident_bytes, right->resident_bytes);
}

static void expect_apart(
    const struct eb_table_set *a, const struct eb_table_set *b, const char *name)
{
    assert_ptr_not_equal(find(a, name)->table.rows, find(b, name)->table.rows);
    assert_int_equal(b->memory.shared_bytes, 0);
}

static bool is_mapped(const void *at)
{
    const void *page = (const uint8_t *)at - (uintptr_t)at % 4096;
    return msync((void *)(uintptr_t)page, 4096, MS_ASYNC) == 0;
}

static void shares_linked_files_without_reading_them(void **state)
{
    (void)state;
    struct eb_table_set one;
    struct eb_table_set two;
    write_shared_rows("1/t.npy");
    load_shared("1", "", NULL, &one);
    assert_int_equal(read_bytes, BYTES);
    eb_scratch_make_directory(&fixture.scratch, "2");
    link_file("1/t.npy", "2/t.npy");
    link_file("1/t.npy", "2/other.npy");
    load_shared("2", "", &one, &two);
    assert_int_equal(read_bytes, 0);
    expect_shared(&one, &two, "t");
    assert_ptr_equal(find(&one, "t")->base, find(&two, "other")->base);
    assert_int_equal(two.bytes, one.bytes);
    assert_int_equal(two.memory.shared_bytes, two.bytes);
    assert_int_equal(find(&two, "t")->pages.bytes, BYTES);
    eb_table_set_deinit(&one);
    eb_table_set_deinit(&two);
}

static void shares_copies_with_the_same_manifest_without_reading_them(void **state)
{
    (void)state;
    static const char text[] = "format: 1\nparts: 1\nfiles:\n"
                               "- {name: t.npy, bytes: %zu, xxh3_64: 0123456789abcdef}\n";
    struct eb_table_set one;
    struct eb_table_set two;
    struct stat status;
    char path[EB_SCRATCH_PATH_BYTES];
    char manifest[256];
    write_shared_rows("1/t.npy");
    write_shared_rows("2/t.npy");
    eb_scratch_path(&fixture.scratch, "1/t.npy", path);
    assert_int_equal(stat(path, &status), 0);
    snprintf(manifest, sizeof manifest, text, (size_t)status.st_size);
    eb_scratch_write_text(&fixture.scratch, "1/manifest.yaml", manifest);
    eb_scratch_write_text(&fixture.scratch, "2/manifest.yaml", manifest);
    load_shared("1", "", NULL, &one);
    load_shared("2", "", &one, &two);
    assert_int_equal(read_bytes, 0);
    expect_shared(&one, &two, "t");
    eb_table_set_deinit(&one);
    eb_table_set_deinit(&two);
}

static void shares_copies_and_keeps_them_until_the_last_has_gone(void **state)
{
    (void)state;
    struct eb_table_set one;
    struct eb_table_set two;
    write_shared_rows("1/t.npy");
    write_shared_rows("2/t.npy");
    for (int turn = 0; turn < 2; turn++) {
        load_shared("1", "", NULL, &one);
        load_shared("2", "", &one, &two);
        assert_int_equal(read_bytes, BYTES);
        expect_shared(&one, &two, "t");
        assert_int_equal(eb_table_memory_joint_bytes(&one.memory), one.bytes);
        const float *rows = find(&one, "t")->table.rows;
        eb_table_set_deinit(turn == 0 ? &one : &two);
        assert_int_equal(memcmp(rows, values, BYTES), 0);
        struct eb_table_set *left = turn == 0 ? &two : &one;
        assert_int_equal(eb_table_memory_joint_bytes(&left->memory), 0);
        eb_table_set_deinit(left);
        assert_false(is_mapped(rows));
    }
}

static void loads_what_differs_in_its_last_row(void **state)
{
    (void)state;
    struct eb_table_set one;
    struct eb_table_set two;
    write_shared_rows("1/t.npy");
    write_shared_rows("1/u.npy");
    values[ROWS * ELEMENTS - 1] = -1;
    write_shared_rows("2/t.npy");
    link_file("1/u.npy", "2/u.npy");
    load_shared("1", "", NULL, &one);
    load_shared("2", "", &one, &two);
    assert_int_equal(read_bytes, 2 * BYTES);
    expect_shared(&one, &two, "u");
    assert_ptr_not_equal(find(&one, "t")->base, find(&two, "t")->base);
    assert_true(find(&one, "t")->digest != find(&two, "t")->digest);
    assert_int_equal(two.memory.shared_bytes, eb_table_memory_footprint(BYTES));
    assert_int_equal(two.bytes, one.bytes);
    assert_int_equal(memcmp(find(&two, "t")->table.rows, values, BYTES), 0);
    eb_table_set_deinit(&one);
    eb_table_set_deinit(&two);
}

/* A different file with the size and the time of the first. */
static void is_not_deceived_by_times(void **state)
{
    (void)state;
    struct eb_table_set one;
    struct eb_table_set two;
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture.scratch, "1/t.npy", path);
    write_shared_rows("1/t.npy");
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    load_shared("1", "", NULL, &one);
    assert_int_equal(unlink(path), 0);
    values[0] = -1;
    write_shared_rows("1/t.npy");
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    load_shared("1", "", &one, &two);
    assert_int_equal(read_bytes, CHUNK_BYTES + BYTES);
    expect_apart(&one, &two, "t");
    assert_true(*(const float *)find(&two, "t")->table.rows == -1);
    eb_table_set_deinit(&one);
    eb_table_set_deinit(&two);
}

static void shares_only_what_is_stored_alike(void **state)
{
    (void)state;
    struct eb_table_set one;
    struct eb_table_set two;
    struct eb_table_set three;
    write_shared_rows("1/t.npy");
    write_shared_rows("2/t.npy");
    load_shared("1", "", NULL, &one);
    load_shared("1", "tables: [{name: t, storage: int8}]", &one, &two);
    expect_apart(&one, &two, "t");
    load_shared("2", "tables: [{name: t, storage: int8, unknown_row: 5}]", &two, &three);
    expect_shared(&two, &three, "t");
    assert_int_equal(find(&two, "t")->table.unknown_row, -1);
    assert_int_equal(find(&three, "t")->table.unknown_row, 5);
    eb_table_set_deinit(&one);
    eb_table_set_deinit(&two);
    eb_table_set_deinit(&three);
}

static void write_shared_codes(const char *name, const char *scales)
{
    static const uint64_t dims[2] = {ROWS, ELEMENTS};
    static const uint64_t scale_dims[2] = {ROWS, 0};
    eb_set_fixture_write_npy(&fixture, name, EB_STORAGE_U8, dims, values);
    eb_set_fixture_write_npy(&fixture, scales, EB_STORAGE_F32, scale_dims, values + 1);
}

static void shares_codes_only_with_their_scales(void **state)
{
    (void)state;
    static const char yaml[] = "tables: [{name: t, format: codes_int8, scales: s}]";
    struct eb_table_set sets[4];
    write_shared_codes("1/t.npy", "1/s.npy");
    write_shared_codes("2/t.npy", "2/s.npy");
    link_file("1/t.npy", "2/u.npy");
    link_file("1/s.npy", "2/v.npy");
    eb_scratch_make_directory(&fixture.scratch, "3");
    link_file("1/t.npy", "3/t.npy");
    values[ROWS / 2] = -5;
    write_shared_codes("3/t2.npy", "3/s.npy");
    load_shared("1", yaml, NULL, &sets[0]);
    load_shared("2", "only: [u, v]\ntables: [{name: t, source: u, format: codes_int8, scales: v}]",
        &sets[0], &sets[1]);
    assert_int_equal(read_bytes, 0);
    expect_shared(&sets[0], &sets[1], "t");
    load_shared("2", "only: [t, s]\ntables: [{name: t, format: codes_int8, scales: s}]", &sets[0],
        &sets[2]);
    assert_int_equal(read_bytes, ROWS * (ELEMENTS + sizeof(float)));
    expect_shared(&sets[0], &sets[2], "t");
    load_shared("3", "only: [t, s]\ntables: [{name: t, format: codes_int8, scales: s}]", &sets[0],
        &sets[3]);
    expect_apart(&sets[0], &sets[3], "t");
    assert_true(find(&sets[0], "t")->digest != find(&sets[3], "t")->digest);
    assert_true(eb_table_scale(&find(&sets[3], "t")->table, ROWS / 2 - 1).scale == -5);
    for (size_t i = 0; i < 4; i++) {
        eb_table_set_deinit(&sets[i]);
    }
}

static void shares_tables_that_differ_in_their_default_vector(void **state)
{
    (void)state;
    static const char yaml[] = "tables: [{name: t, default_vector: [%d], unknown_row: %s}]";
    struct eb_table_set one;
    struct eb_table_set two;
    char first[128];
    char second[128];
    write_shared_rows("1/t.npy");
    write_shared_rows("2/t.npy");
    snprintf(first, sizeof first, yaml, 1, "default_vector");
    snprintf(second, sizeof second, yaml, 2, "0");
    load_shared("1", first, NULL, &one);
    load_shared("2", second, &one, &two);
    expect_shared(&one, &two, "t");
    assert_true(one.digest == two.digest);
    assert_int_equal(find(&one, "t")->table.unknown_row, EB_ROW_VECTOR);
    assert_int_equal(find(&two, "t")->table.unknown_row, 0);
    float vectors[2];
    memcpy(&vectors[0], find(&one, "t")->table.vector, sizeof vectors[0]);
    memcpy(&vectors[1], find(&two, "t")->table.vector, sizeof vectors[1]);
    assert_true(vectors[0] == 1 && vectors[1] == 2);
    eb_table_set_deinit(&one);
    memcpy(&vectors[1], find(&two, "t")->table.vector, sizeof vectors[1]);
    assert_true(vectors[1] == 2);
    eb_table_set_deinit(&two);
}

static void shares_packed_files_of_one_digest_without_reading_them(void **state)
{
    (void)state;
    struct eb_table_set one;
    struct eb_table_set two;
    struct eb_packed_format format = eb_packed_fixture_format(ROWS, 4);
    eb_scratch_make_directory(&fixture.scratch, "1");
    eb_scratch_make_directory(&fixture.scratch, "2");
    eb_packed_fixture_write(&fixture.scratch, "1/t.embag", &format);
    eb_packed_fixture_write(&fixture.scratch, "2/t.embag", &format);
    load_shared("1", "", NULL, &one);
    load_shared("2", "", &one, &two);
    assert_int_equal(read_bytes, 0);
    expect_shared(&one, &two, "t");
    eb_table_set_deinit(&one);
    eb_table_set_deinit(&two);
}

static void shares_rows_only_with_their_keys(void **state)
{
    (void)state;
    struct eb_table_set one;
    struct eb_table_set two;
    struct eb_table_set three;
    write_shared_rows("1/t.npy");
    write_shared_keys("1/t.keys.npy");
    write_shared_rows("2/t.npy");
    write_shared_keys("2/t.keys.npy");
    keys[ROWS - 1] = 7;
    write_shared_rows("3/t.npy");
    write_shared_keys("3/t.keys.npy");
    load_shared("1", "", NULL, &one);
    load_shared("2", "", &one, &two);
    assert_int_equal(read_bytes, BYTES + ROWS * sizeof *keys);
    expect_shared(&one, &two, "t");
    eb_table_set_deinit(&one);
    assert_int_equal(eb_key_index_find(find(&two, "t")->table.keys, keys[5]), 5);
    load_shared("3", "", &two, &three);
    expect_apart(&two, &three, "t");
    assert_int_equal(eb_key_index_find(find(&two, "t")->table.keys, 7), -1);
    assert_int_equal(eb_key_index_find(find(&three, "t")->table.keys, 7), ROWS - 1);
    eb_table_set_deinit(&two);
    eb_table_set_deinit(&three);
}

/* The page that small tables share stays with its version. The few keys of "wide" do not lie in
 * that page, so versions can share them together with "wide". */
static void shares_few_keys_without_what_lies_beside_them(void **state)
{
    (void)state;
    enum { WIDE_ROWS = 160, WIDE = 4096 };
    static const uint64_t wide_dims[2] = {WIDE_ROWS, WIDE};
    static const uint64_t key_dims[2] = {WIDE_ROWS, 0};
    static const uint64_t small_dims[2] = {100000, ELEMENTS};
    struct eb_table_set one;
    struct eb_table_set two;
    eb_set_fixture_write_npy(&fixture, "1/wide.npy", EB_STORAGE_F32, wide_dims, values);
    eb_set_fixture_write_npy(&fixture, "1/wide.keys.npy", EB_STORAGE_I64, key_dims, keys);
    eb_set_fixture_write_npy(&fixture, "1/a.npy", EB_STORAGE_F32, small_dims, values);
    eb_set_fixture_write_npy(&fixture, "1/b.npy", EB_STORAGE_F32, small_dims, values);
    eb_set_fixture_write_npy(&fixture, "2/wide.npy", EB_STORAGE_F32, wide_dims, values);
    eb_set_fixture_write_npy(&fixture, "2/wide.keys.npy", EB_STORAGE_I64, key_dims, keys);
    load_shared("1", "", NULL, &one);
    load_shared("2", "", &one, &two);
    expect_shared(&one, &two, "wide");
    assert_int_equal(one.bytes, 3 * EB_PAGE_2M_BYTES);
    assert_int_equal(two.bytes, 2 * EB_PAGE_2M_BYTES);
    eb_table_set_deinit(&one);
    assert_int_equal(eb_key_index_find(find(&two, "wide")->table.keys, keys[5]), 5);
    eb_table_set_deinit(&two);
}

static void loads_small_tables_anew(void **state)
{
    (void)state;
    static const uint64_t dims[2] = {8, ELEMENTS};
    struct eb_table_set one;
    struct eb_table_set two;
    eb_set_fixture_write_npy(&fixture, "1/t.npy", EB_STORAGE_F32, dims, values);
    load_shared("1", "", NULL, &one);
    load_shared("1", "", &one, &two);
    expect_apart(&one, &two, "t");
    assert_true(one.digest == two.digest);
    eb_table_set_deinit(&one);
    eb_table_set_deinit(&two);
}

static void needs_memory_only_for_what_is_loaded(void **state)
{
    (void)state;
    static const uint64_t dims[2] = {8, ELEMENTS};
    struct eb_table_set one;
    struct eb_table_plan plan;
    struct eb_load_meter meter;
    struct eb_failure failure;
    char path[EB_SCRATCH_PATH_BYTES];
    write_shared_rows("1/t.npy");
    write_shared_keys("1/t.keys.npy");
    eb_set_fixture_write_npy(&fixture, "1/small.npy", EB_STORAGE_F32, dims, values);
    load_shared("1", "", NULL, &one);
    const struct eb_table_set *resident = &one;
    struct eb_table_options options = {
        .row_bytes_max = 65536, .name_bytes_max = 255, .residents = &resident, .resident_count = 1};
    eb_scratch_path(&fixture.scratch, "1", path);
    assert_true(eb_table_plan_read(path, &options, &plan, &failure));
    assert_true(eb_table_memory_need_bytes(&plan.need) > BYTES);
    assert_int_equal(plan.key_bytes, ROWS * sizeof *keys);
    eb_load_meter_init(&meter, NULL, plan.work_bytes);
    eb_table_share_find_known(&plan, &options);
    assert_true(eb_table_share_find_equal(&plan, &options, &meter, &failure));
    assert_int_equal(plan.need.whole_bytes, 0);
    assert_int_equal(plan.need.common_bytes, 8 * ELEMENTS * sizeof(float));
    assert_int_equal(plan.key_bytes, 0);
    assert_int_equal(meter.total_bytes, 8 * ELEMENTS * sizeof(float));
    eb_table_plan_deinit(&plan);
    eb_table_set_deinit(&one);
}

/* Before anything is read, it is known whether the tables that cannot be resident will fit. */
static void reads_nothing_of_what_is_too_large_anyway(void **state)
{
    (void)state;
    static const uint64_t dims[2] = {ROWS / 2, ELEMENTS};
    struct eb_table_set one;
    struct eb_table_set two;
    struct eb_failure failure = {.text = ""};
    char path[EB_SCRATCH_PATH_BYTES];
    write_shared_rows("1/t.npy");
    write_shared_rows("2/t.npy");
    write_shared_rows("2/more.npy");
    eb_set_fixture_write_npy(&fixture, "1/grown.npy", EB_STORAGE_F32, dims, values);
    write_shared_rows("2/grown.npy");
    load_shared("1", "", NULL, &one);
    const struct eb_table_set *resident = &one;
    struct eb_load_progress progress = {
        .go_on = count_bytes, .run_short = note_missing, .context = &read_bytes};
    struct eb_table_options options = {
        .row_bytes_max = 65536, .name_bytes_max = 255, .residents = &resident, .resident_count = 1};
    eb_scratch_path(&fixture.scratch, "2", path);
    uint64_t needed = 2 * eb_table_memory_footprint(BYTES);
    read_bytes = 0;
    available_bytes = needed - 1;
    assert_false(eb_set_load(path, &options, &progress, &two, &failure));
    eb_scratch_expect(failure.text, "its tables need 20971520 bytes of memory, but 20971519 are");
    assert_int_equal(read_bytes, 0);
    /* The missing bytes include those of "t", because it is not known yet that "t" is resident. */
    assert_int_equal(missing_bytes, eb_table_memory_footprint(BYTES) + 1);
    available_bytes = needed;
    assert_true(eb_set_load(path, &options, &progress, &two, &failure));
    assert_int_equal(read_bytes, 3 * BYTES);
    expect_shared(&one, &two, "t");
    eb_table_set_deinit(&one);
    eb_table_set_deinit(&two);
}

static void *share_and_give(void *argument)
{
    const struct eb_table_set *set = argument;
    struct eb_table_mapping *mapping = eb_table_memory_find(&set->memory, find(set, "t")->base);
    for (int i = 0; i < TURNS; i++) {
        struct eb_table_memory memory = {0};
        struct eb_failure failure;
        if (!eb_table_memory_share(&memory, mapping, &failure) || memory.shared_bytes == 0) {
            return argument;
        }
        eb_table_memory_deinit(&memory);
    }
    return NULL;
}

static void counts_holders_on_many_threads(void **state)
{
    (void)state;
    struct eb_table_set one;
    pthread_t threads[THREADS];
    write_shared_rows("1/t.npy");
    load_shared("1", "", NULL, &one);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, share_and_give, &one), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    assert_int_equal(eb_table_memory_joint_bytes(&one.memory), 0);
    assert_int_equal(memcmp(find(&one, "t")->table.rows, values, BYTES), 0);
    eb_table_set_deinit(&one);
}

EB_TEST_GROUP(table_share)
{
#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(shares_linked_files_without_reading_them),
        WITH_FIXTURE(shares_copies_with_the_same_manifest_without_reading_them),
        WITH_FIXTURE(shares_copies_and_keeps_them_until_the_last_has_gone),
        WITH_FIXTURE(loads_what_differs_in_its_last_row),
        WITH_FIXTURE(is_not_deceived_by_times),
        WITH_FIXTURE(shares_only_what_is_stored_alike),
        WITH_FIXTURE(shares_codes_only_with_their_scales),
        WITH_FIXTURE(shares_tables_that_differ_in_their_default_vector),
        WITH_FIXTURE(shares_packed_files_of_one_digest_without_reading_them),
        WITH_FIXTURE(shares_rows_only_with_their_keys),
        WITH_FIXTURE(shares_few_keys_without_what_lies_beside_them),
        WITH_FIXTURE(loads_small_tables_anew),
        WITH_FIXTURE(needs_memory_only_for_what_is_loaded),
        WITH_FIXTURE(reads_nothing_of_what_is_too_large_anyway),
        WITH_FIXTURE(counts_holders_on_many_threads),
    };
    return cmocka_run_group_tests(tests, limit_share_memory, eb_faults_tear_down);
}
