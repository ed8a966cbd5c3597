/* Loads by several threads: the same bytes, digests and errors as by one. */
#include "server/tables/row_load.h"

#include "server/contents/piece_reader.h"
#include "server/tables/table_plan.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/packed_fixture.h"
#include "tests/unit/tables/set_fixture.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include <cmocka.h>

#define MANY_ROWS 90000 /* of ELEMENTS f32: 11 chunks */
#define FEW_ROWS 5
#define ELEMENTS 16
#define ROW_BYTES (ELEMENTS * sizeof(float))
#define CHUNK_ROWS (EB_ROW_LOAD_CHUNK_BYTES / ROW_BYTES)
#define FUSED_BYTES (ELEMENTS + 2 * sizeof(float))
#define WIDE_ELEMENTS 140000 /* more bytes of f32 than a chunk */
#define PACKED_ELEMENTS 56   /* 64 bytes with scale and bias */
#define PACKED_ROWS 160000   /* more bytes than a task of a packed file */
#define THREADS_MAX 7
#define AWAIT_S 60 /* longest wait for another thread; only a broken test waits so long */

static const unsigned thread_counts[] = {1, 2, THREADS_MAX};
#define THREAD_COUNTS (sizeof thread_counts / sizeof thread_counts[0])

struct fixture {
    struct eb_set_fixture files;
    struct eb_model_config config;
    struct eb_table_options options;
    float *values;       /* [MANY_ROWS * ELEMENTS] */
    int64_t *keys;       /* [MANY_ROWS] */
    uint8_t *fused_rows; /* [MANY_ROWS * FUSED_BYTES] rows of codes, a scale and a bias */
    float *scales;       /* [MANY_ROWS] */
};

/* ---- reads and threads: the linker redirects the calls (--wrap) ---- */

/* How reads of files whose path contains `part` behave. Changed only while nothing is loaded. */
static struct {
    const char *part;        /* NULL: all files are read as usual */
    uint64_t failing_offset; /* reads from there on fail; UINT64_MAX: none does */
    unsigned other_reads;    /* the first read waits until there have been that many others */
    atomic_uint count;       /* reads of all files that are done */
    atomic_bool is_waiting;  /* the first read has begun to wait */
    atomic_uint stalls;      /* reports of a stalled read */
    atomic_uint_fast64_t stalled_s;
    char stalled_path[EB_SCRATCH_PATH_BYTES];
} reads;

static struct {
    bool is_ours; /* the clock of the pool stands still unless a test moves it */
    atomic_uint_fast64_t now_ms;
    atomic_uint main_calls; /* calls of the thread that watches the workers */
    pthread_t main;
} pool_clock;

static atomic_uint threads_allowed; /* further threads cannot be created */

bool __real_eb_piece_reader_read(struct eb_piece_reader *reader, uint64_t offset, void *out,
    uint64_t bytes, struct eb_failure *failure);
bool __wrap_eb_piece_reader_read(struct eb_piece_reader *reader, uint64_t offset, void *out,
    uint64_t bytes, struct eb_failure *failure);

static int pass_pool_time(void)
{
    return sched_yield();
}

/* Lets a read take as long as a stalled one, until it is reported and all others are done. */
static void stall_read(const char *path)
{
    eb_read_watch_begin(path);
    atomic_fetch_add(&pool_clock.now_ms, EB_READ_WATCH_STALL_MS);
    while (atomic_load(&reads.stalls) == 0 || atomic_load(&reads.count) < reads.other_reads) {
        (void)pass_pool_time();
    }
    eb_read_watch_end();
}

bool __wrap_eb_piece_reader_read(struct eb_piece_reader *reader, uint64_t offset, void *out,
    uint64_t bytes, struct eb_failure *failure)
{
    bool is_meant = reads.part && strstr(reader->path, reads.part);
    if (is_meant && offset >= reads.failing_offset) {
        return eb_failure_set(failure, "no byte %" PRIu64, offset);
    }
    if (is_meant && reads.other_reads > 0 && !atomic_exchange(&reads.is_waiting, true)) {
        stall_read(reader->path);
    }
    bool is_good = __real_eb_piece_reader_read(reader, offset, out, bytes, failure);
    atomic_fetch_add(&reads.count, 1);
    return is_good;
}

typedef void *start_fn(void *argument);

int __real_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, start_fn *start, void *argument);
int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, start_fn *start, void *argument);

int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, start_fn *start, void *argument)
{
    if (atomic_load(&threads_allowed) == 0) {
        return EAGAIN;
    }
    atomic_fetch_sub(&threads_allowed, 1);
    return __real_pthread_create(thread, attributes, start, argument);
}

/* The clock of the pool is far behind, so that the watching thread never sleeps, and advances only
 * when a test says so. */
static int read_pool_clock(clockid_t id, struct timespec *out)
{
    if (!pool_clock.is_ours || id != CLOCK_MONOTONIC_COARSE) {
        return __real_clock_gettime(id, out);
    }
    uint64_t now_ms = atomic_load(&pool_clock.now_ms);
    if (pthread_equal(pthread_self(), pool_clock.main)) {
        atomic_fetch_add(&pool_clock.main_calls, 1);
        (void)pass_pool_time();
    }
    *out = (struct timespec){
        .tv_sec = (time_t)(now_ms / 1000), .tv_nsec = (long)(now_ms % 1000 * 1000000)};
    return 0;
}

static void note_stalled(void *context, const char *path, uint64_t seconds)
{
    (void)context;
    snprintf(reads.stalled_path, sizeof reads.stalled_path, "%s", path);
    atomic_store(&reads.stalled_s, seconds);
    atomic_fetch_add(&reads.stalls, 1);
}

/* ---- fixture ---- */

static void fill(struct fixture *fixture)
{
    for (size_t i = 0; i < (size_t)MANY_ROWS * ELEMENTS; i++) {
        fixture->values[i] = (float)(i * UINT64_C(2654435761) % 1000) / 500 - 1;
    }
    for (size_t row = 0; row < MANY_ROWS; row++) {
        uint8_t *fused = fixture->fused_rows + row * FUSED_BYTES;
        const float scale[] = {(float)(row % 7 + 1) / 8, (float)(row % 5) - 2};
        for (size_t i = 0; i < ELEMENTS; i++) {
            fused[i] = (uint8_t)(row * 31 + i * 17);
        }
        memcpy(fused + ELEMENTS, scale, sizeof scale);
        fixture->scales[row] = scale[0];
        fixture->keys[row] = ((int64_t)row - MANY_ROWS / 2) * 1021;
    }
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    *state = fixture;
    eb_set_fixture_init(&fixture->files);
    fixture->values = malloc(MANY_ROWS * ROW_BYTES);
    fixture->keys = malloc(MANY_ROWS * sizeof *fixture->keys);
    fixture->fused_rows = malloc(MANY_ROWS * FUSED_BYTES);
    fixture->scales = malloc(MANY_ROWS * sizeof *fixture->scales);
    if (!fixture->values || !fixture->keys || !fixture->fused_rows || !fixture->scales) {
        return -1;
    }
    fill(fixture);
    fixture->options = (struct eb_table_options){
        .row_bytes_max = WIDE_ELEMENTS * sizeof(float), .name_bytes_max = 255};
    memset(&reads, 0, sizeof reads);
    reads.failing_offset = UINT64_MAX;
    pool_clock.is_ours = false;
    atomic_store(&pool_clock.now_ms, 1000);
    pool_clock.main = pthread_self();
    atomic_store(&threads_allowed, UINT32_MAX);
    eb_faults.clock_gettime = read_pool_clock;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    (void)eb_faults_tear_down(state);
    eb_model_config_deinit(&fixture->config);
    eb_set_fixture_deinit(&fixture->files);
    free(fixture->values);
    free(fixture->keys);
    free(fixture->fused_rows);
    free(fixture->scales);
    free(fixture);
    return 0;
}

static void describe(struct fixture *fixture, const char *yaml)
{
    struct eb_failure failure = {.text = ""};
    if (!eb_model_config_parse(
            (const uint8_t *)yaml, strlen(yaml), 255, &fixture->config, &failure)) {
        fail_msg("%s", failure.text);
    }
    fixture->options.config = &fixture->config;
}

/* Writes the values from row `first` to `end` - 1. */
static void write_values(
    const struct fixture *fixture, const char *name, uint64_t first, uint64_t end)
{
    eb_set_fixture_write_npy(&fixture->files, name, EB_STORAGE_F32,
        (uint64_t[]){end - first, ELEMENTS}, fixture->values + first * ELEMENTS);
}

/* Writes a file with two tensors of `rows` rows each: f32, and u8 of the same number of bytes. */
static void write_safetensors(const struct fixture *fixture, uint64_t rows)
{
    uint64_t bytes = rows * ROW_BYTES;
    char json[256];
    int size = snprintf(json, sizeof json,
        "{\"st_f\":{\"dtype\":\"F32\",\"shape\":[%" PRIu64 ",%d],\"data_offsets\":[0,%" PRIu64
        "]},\"st_u\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64 ",13],\"data_offsets\":[%" PRIu64
        ",%" PRIu64 "]}}",
        rows, ELEMENTS, bytes, rows, bytes, bytes + rows * 13);
    uint64_t head = (uint64_t)size;
    uint64_t file_bytes = sizeof head + head + bytes + rows * 13;
    uint8_t *file = malloc(file_bytes);
    assert_non_null(file);
    memcpy(file, &head, sizeof head);
    memcpy(file + sizeof head, json, head);
    memcpy(file + sizeof head + head, fixture->values, bytes);
    memcpy(file + sizeof head + head + bytes, fixture->fused_rows, rows * 13);
    eb_scratch_write(&fixture->files.scratch, "two.safetensors", file, file_bytes);
    free(file);
}

/* Writes tables of `rows` rows in codes: fused, and with scales and biases in other tensors, which
 * are in two files each. */
static void write_codes(const struct fixture *fixture, uint64_t rows)
{
    const struct eb_set_fixture *files = &fixture->files;
    uint64_t half = rows / 2;
    eb_set_fixture_write_npy(
        files, "fused.npy", EB_STORAGE_U8, (uint64_t[]){rows, FUSED_BYTES}, fixture->fused_rows);
    eb_set_fixture_write_npy(
        files, "codes.npy", EB_STORAGE_U8, (uint64_t[]){rows, ELEMENTS}, fixture->fused_rows);
    eb_set_fixture_write_npy(
        files, "s-00000-of-00002.npy", EB_STORAGE_F32, (uint64_t[]){half, 0}, fixture->scales);
    eb_set_fixture_write_npy(files, "s-00001-of-00002.npy", EB_STORAGE_F32,
        (uint64_t[]){rows - half, 0}, fixture->scales + half);
    eb_set_fixture_write_npy(
        files, "b.npy", EB_STORAGE_F32, (uint64_t[]){rows, 0}, fixture->values);
}

#define CODES_YAML                                                                                 \
    "{name: fused, format: fbgemm_int8}, {name: codes, format: codes_int8, scales: s, biases: b}"
#define YAML                                                                                       \
    "tables: [" CODES_YAML ", {name: i8, storage: int8}, {name: i4, storage: int4}, "              \
    "{name: f16, storage: f16}, {name: spread, storage: f32}]"

/* Writes tables of every kind that has a way of its own to be loaded, except a packed one. */
static void write_unpacked(const struct fixture *fixture, uint64_t rows)
{
    static const char *const names[] = {"plain.npy", "i8.npy", "i4.npy", "f16.npy", "keyed.npy"};
    const struct eb_set_fixture *files = &fixture->files;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        write_values(fixture, names[i], 0, rows);
    }
    eb_set_fixture_write_npy(
        files, "keyed.keys.npy", EB_STORAGE_I64, (uint64_t[]){rows, 0}, fixture->keys);
    eb_set_fixture_write_npy(files, "spread.npy", EB_STORAGE_F32,
        (uint64_t[]){rows * ELEMENTS / 26, 26}, fixture->values);
    write_values(fixture, "pieces-00000-of-00004.npy", 0, 1);
    write_values(fixture, "pieces-00001-of-00004.npy", 1, 1);
    write_values(fixture, "pieces-00002-of-00004.npy", 1, rows / 3);
    write_values(fixture, "pieces-00003-of-00004.npy", rows / 3, rows);
    write_values(fixture, "one.npy", 7, 8);
    write_values(fixture, "none.npy", 0, 0);
    write_codes(fixture, rows);
    write_safetensors(fixture, rows);
}

static void write_kinds(struct fixture *fixture, uint64_t rows, uint64_t packed_rows)
{
    write_unpacked(fixture, rows);
    struct eb_packed_format format = eb_packed_fixture_format(packed_rows, PACKED_ELEMENTS);
    eb_packed_fixture_write(&fixture->files.scratch, "packed.embag", &format);
    describe(fixture, YAML);
}

static bool try_threads(const struct fixture *fixture, unsigned threads,
    const struct eb_load_progress *progress, struct eb_table_set *set, struct eb_failure *failure)
{
    struct eb_table_options options = fixture->options;
    options.load_threads = threads;
    failure->text[0] = '\0';
    return eb_set_load(fixture->files.scratch.root, &options, progress, set, failure);
}

static void load_threaded(const struct fixture *fixture, unsigned threads, struct eb_table_set *set)
{
    struct eb_failure failure;
    if (!try_threads(fixture, threads, NULL, set, &failure)) {
        fail_msg("%u threads: %s", threads, failure.text);
    }
}

static uint64_t count_chunks(const struct eb_named_table *table)
{
    uint64_t rows = eb_row_load_chunk_rows(table->table.row_stride_bytes);
    return (table->table.row_count + rows - 1) / rows;
}

static void expect_same(const struct eb_table_set *set, const struct eb_table_set *expected)
{
    assert_int_equal(set->count, expected->count);
    assert_true(set->digest == expected->digest);
    for (size_t i = 0; i < set->count; i++) {
        const struct eb_named_table *table = &set->tables[i];
        const struct eb_named_table *other = &expected->tables[i];
        assert_string_equal(table->name, other->name);
        assert_true(table->digest == other->digest);
        assert_memory_equal(
            table->base, other->base, table->table.row_count * table->table.row_stride_bytes);
        assert_memory_equal(
            table->chunk_hashes, other->chunk_hashes, count_chunks(table) * sizeof(uint64_t));
        assert_int_equal(table->index_bytes, other->index_bytes);
        if (table->index) {
            assert_memory_equal(table->index, other->index, table->index_bytes);
        }
    }
}

/* Expects loads to fail, with any number of threads, because of this. */
static void expect_every_failure(
    const struct fixture *fixture, const char *part, const char *other_part)
{
    for (size_t i = 0; i < THREAD_COUNTS; i++) {
        struct eb_table_set set;
        struct eb_failure failure;
        assert_false(try_threads(fixture, thread_counts[i], NULL, &set, &failure));
        assert_int_equal(set.count, 0);
        eb_scratch_expect(failure.text, part);
        eb_scratch_expect(failure.text, other_part);
    }
}

/* ---- equal tables ---- */

static void loads_every_kind_of_table_the_same(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set one;
    write_kinds(fixture, MANY_ROWS, PACKED_ROWS);
    load_threaded(fixture, 1, &one);
    for (size_t i = 1; i < THREAD_COUNTS; i++) {
        struct eb_table_set more;
        load_threaded(fixture, thread_counts[i], &more);
        expect_same(&more, &one);
        eb_table_set_deinit(&more);
    }
    static const char *const plain[] = {"plain", "keyed", "pieces", "st_f"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        const struct eb_named_table *table = eb_table_set_find(&one, plain[i]);
        assert_non_null(table);
        assert_memory_equal(table->base, fixture->values, MANY_ROWS * ROW_BYTES);
    }
    eb_table_set_deinit(&one);
}

static void hashes_chunks_as_they_lie_in_memory(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set set;
    write_kinds(fixture, MANY_ROWS, PACKED_ROWS);
    load_threaded(fixture, 2, &set);
    for (size_t i = 0; i < set.count; i++) {
        const struct eb_named_table *table = &set.tables[i];
        uint64_t stride = table->table.row_stride_bytes;
        uint64_t chunk_rows = eb_row_load_chunk_rows(stride);
        for (uint64_t k = 0; k < count_chunks(table); k++) {
            uint64_t left = table->table.row_count - k * chunk_rows;
            uint64_t rows = left < chunk_rows ? left : chunk_rows;
            assert_true(table->chunk_hashes[k] ==
                        XXH3_64bits(table->base + k * chunk_rows * stride, rows * stride));
        }
    }
    eb_table_set_deinit(&set);
}

/* Compares the hash of each chunk of a table, the last chunk first, with the set's. */
static void expect_chunk_hashes(const struct eb_table_plan *plan,
    const struct eb_planned_table *planned, const struct eb_table_set *set)
{
    const struct eb_named_table *table = eb_table_set_find(set, planned->name);
    struct eb_load_meter meter;
    struct eb_failure failure;
    eb_load_meter_init(&meter, NULL, 0);
    for (uint64_t chunk = count_chunks(table); chunk-- > 0;) {
        uint64_t hash = 0;
        if (!eb_row_load_hash_chunk(plan, planned, chunk, &meter, &hash, &failure)) {
            fail_msg("%s: %s", planned->name, failure.text);
        }
        assert_true(hash == table->chunk_hashes[chunk]);
    }
}

static void hashes_a_single_chunk_as_a_load_does(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set set;
    struct eb_table_plan plan;
    struct eb_failure failure = {.text = ""};
    write_kinds(fixture, MANY_ROWS, PACKED_ROWS);
    load_threaded(fixture, 2, &set);
    if (!eb_table_plan_read(fixture->files.scratch.root, &fixture->options, &plan, &failure)) {
        fail_msg("%s", failure.text);
    }
    assert_int_equal(plan.table_count, set.count);
    for (size_t i = 0; i < plan.table_count; i++) {
        expect_chunk_hashes(&plan, &plan.tables[i], &set);
    }
    eb_table_plan_deinit(&plan);
    eb_table_set_deinit(&set);
}

/* Digests are reported to users and stored in resident files. They may change only on purpose. */
static void keeps_its_digests(void **state)
{
    static const struct {
        const char *name;
        uint64_t digest;
    } golden[] = {
        {"codes", UINT64_C(0xe547afec88057a87)},
        {"f16", UINT64_C(0x2dc51735f32f54bc)},
        {"fused", UINT64_C(0x86d6354b574857bf)},
        {"i8", UINT64_C(0x3ce096c837f2493b)},
        {"keyed", UINT64_C(0xe4b8bf45eb1f8a29)},
        {"none", UINT64_C(0x1a49a2b8eb2762f8)},
        {"packed", UINT64_C(0xbc80112542fad1f7)},
        {"plain", UINT64_C(0xc9960eed97072526)},
        {"spread", UINT64_C(0xfc5aa64c80c55886)},
    };
    struct fixture *fixture = *state;
    struct eb_table_set set;
    write_kinds(fixture, MANY_ROWS, PACKED_ROWS);
    load_threaded(fixture, 2, &set);
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        uint64_t digest = eb_table_set_find(&set, golden[i].name)->digest;
        if (digest != golden[i].digest) {
            fail_msg("table %s: %016" PRIx64, golden[i].name, digest);
        }
    }
    assert_true(
        eb_table_set_find(&set, "pieces")->digest == eb_table_set_find(&set, "plain")->digest);
    eb_table_set_deinit(&set);
}

static void loads_rows_wider_than_a_chunk(void **state)
{
    struct fixture *fixture = *state;
    enum { ROWS = 9 };
    eb_set_fixture_write_npy(&fixture->files, "wide.npy", EB_STORAGE_F32,
        (uint64_t[]){ROWS, WIDE_ELEMENTS}, fixture->values);
    eb_set_fixture_write_npy(&fixture->files, "i8.npy", EB_STORAGE_F32,
        (uint64_t[]){ROWS, WIDE_ELEMENTS}, fixture->values);
    describe(fixture, "tables: [{name: i8, storage: int8}]");
    struct eb_table_set one;
    load_threaded(fixture, 1, &one);
    const struct eb_named_table *wide = eb_table_set_find(&one, "wide");
    assert_int_equal(count_chunks(wide), ROWS);
    assert_memory_equal(wide->base, fixture->values, ROWS * WIDE_ELEMENTS * sizeof(float));
    for (size_t i = 1; i < THREAD_COUNTS; i++) {
        struct eb_table_set more;
        load_threaded(fixture, thread_counts[i], &more);
        expect_same(&more, &one);
        eb_table_set_deinit(&more);
    }
    eb_table_set_deinit(&one);
}

static void cuts_rows_into_chunks_by_their_size(void **state)
{
    (void)state;
    assert_int_equal(eb_row_load_chunk_rows(1), EB_ROW_LOAD_CHUNK_BYTES);
    assert_int_equal(eb_row_load_chunk_rows(EB_ROW_LOAD_CHUNK_BYTES / 2), 2);
    assert_int_equal(eb_row_load_chunk_rows(EB_ROW_LOAD_CHUNK_BYTES / 2 + 1), 1);
    assert_int_equal(eb_row_load_chunk_rows(EB_ROW_LOAD_CHUNK_BYTES), 1);
    assert_int_equal(eb_row_load_chunk_rows(EB_ROW_LOAD_CHUNK_BYTES + 1), 1);
    struct eb_planned_table table = {.row_stride_bytes = ROW_BYTES};
    static const uint64_t rows[] = {0, 1, CHUNK_ROWS, CHUNK_ROWS + 1};
    static const uint64_t chunks[] = {0, 1, 1, 2};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        table.tensor.dims[0] = rows[i];
        assert_int_equal(eb_row_load_chunk_count(&table), chunks[i]);
    }
}

static void shares_tables_that_compare_equal(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set first;
    write_kinds(fixture, MANY_ROWS, PACKED_ROWS);
    load_threaded(fixture, 1, &first);
    const struct eb_table_set *residents[] = {&first};
    fixture->options.residents = residents;
    fixture->options.resident_count = 1;
    /* The files are new, so that rows have to be compared. One value of one table differs. */
    write_unpacked(fixture, MANY_ROWS);
    fixture->values[(MANY_ROWS - 1) * ELEMENTS]++;
    write_values(fixture, "plain.npy", 0, MANY_ROWS);
    for (size_t i = 0; i < THREAD_COUNTS; i++) {
        struct eb_table_set set;
        load_threaded(fixture, thread_counts[i], &set);
        for (size_t k = 0; k < set.count; k++) {
            const struct eb_named_table *table = &set.tables[k];
            bool is_large = table->resident_bytes >= EB_PAGE_2M_BYTES;
            bool is_equal = strcmp(table->name, "plain") != 0;
            assert_int_equal(table->base == first.tables[k].base, is_large && is_equal);
            assert_int_equal(table->digest == first.tables[k].digest, is_equal);
            assert_ptr_not_equal(table->chunk_hashes, first.tables[k].chunk_hashes);
            assert_int_equal(memcmp(table->chunk_hashes, first.tables[k].chunk_hashes,
                                 count_chunks(table) * sizeof(uint64_t)) == 0,
                is_equal);
        }
        eb_table_set_deinit(&set);
    }
    eb_table_set_deinit(&first);
}

/* ---- errors ---- */

static void tells_the_first_row_that_cannot_be_converted(void **state)
{
    struct fixture *fixture = *state;
    char first[64];
    describe(fixture, "tables: [{name: a, storage: int8}, {name: b, storage: int8}]");
    for (uint64_t row = 3 * CHUNK_ROWS; row < MANY_ROWS; row += CHUNK_ROWS) {
        fixture->values[row * ELEMENTS + 5] = NAN;
    }
    fixture->values[(MANY_ROWS - 1) * ELEMENTS] = INFINITY;
    write_values(fixture, "a.npy", 0, MANY_ROWS);
    write_values(fixture, "b.npy", 3 * CHUNK_ROWS, MANY_ROWS);
    snprintf(first, sizeof first, "/a.npy: row %" PRIu64 " of table 'a': value 5",
        (uint64_t)(3 * CHUNK_ROWS));
    for (int turn = 0; turn < 10; turn++) {
        expect_every_failure(fixture, first, "is nan");
    }
}

static void tells_the_first_read_that_fails(void **state)
{
    struct fixture *fixture = *state;
    char first[64];
    write_values(fixture, "a.npy", 0, MANY_ROWS);
    write_values(fixture, "b.npy", 0, MANY_ROWS);
    reads.part = "/a.npy";
    reads.failing_offset = 4 * EB_ROW_LOAD_CHUNK_BYTES; /* less than a header into chunk 3 */
    for (int turn = 0; turn < 10; turn++) {
        snprintf(
            first, sizeof first, "no byte %" PRIu64, (uint64_t)(4 * EB_ROW_LOAD_CHUNK_BYTES + 128));
        expect_every_failure(fixture, first, "");
    }
}

/* Negative scales are found when all rows of a table are known. The first such row is reported, and
 * an error in a later table is not. */
static void tells_the_first_row_of_a_table_in_another_format(void **state)
{
    struct fixture *fixture = *state;
    enum { FIRST = 9 };
    float negative = -2;
    for (uint64_t row = FIRST; row < MANY_ROWS; row++) {
        memcpy(fixture->fused_rows + row * FUSED_BYTES + ELEMENTS, &negative, sizeof negative);
    }
    fixture->values[0] = NAN;
    eb_set_fixture_write_npy(&fixture->files, "a.npy", EB_STORAGE_U8,
        (uint64_t[]){MANY_ROWS, FUSED_BYTES}, fixture->fused_rows);
    write_values(fixture, "b.npy", 0, CHUNK_ROWS);
    describe(fixture, "tables: [{name: a, format: fbgemm_int8}, {name: b, storage: int8}]");
    for (int turn = 0; turn < 10; turn++) {
        expect_every_failure(fixture, "/a.npy: row 9 of table 'a': ", "the rows may be of format");
    }
}

static void tells_a_damaged_block_of_a_packed_file(void **state)
{
    struct fixture *fixture = *state;
    struct eb_packed_format format = eb_packed_fixture_format(PACKED_ROWS, PACKED_ELEMENTS);
    eb_packed_fixture_write(&fixture->files.scratch, "p.embag", &format);
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->files.scratch, "p.embag", path);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    for (long block = 3; block < 9; block++) {
        long offset = (long)format.head_bytes + block * (long)EB_PACKED_FORMAT_BLOCK_BYTES + 77;
        assert_int_equal(fseek(file, offset, SEEK_SET), 0);
        assert_int_equal(fputc(eb_packed_fixture_byte((uint64_t)offset) ^ 1, file) == EOF, false);
    }
    assert_int_equal(fclose(file), 0);
    char first[64];
    snprintf(first, sizeof first, "bytes %" PRIu64 " to",
        format.head_bytes + 3 * (uint64_t)EB_PACKED_FORMAT_BLOCK_BYTES);
    for (int turn = 0; turn < 5; turn++) {
        expect_every_failure(fixture, first, "are damaged");
    }
}

/* ---- giving up ---- */

struct giving_up {
    atomic_uint left;    /* calls that return true */
    atomic_uint refused; /* calls that returned false */
};

static bool give_up(void *context, uint64_t bytes)
{
    struct giving_up *giving_up = context;
    (void)bytes;
    if (atomic_load(&giving_up->left) == 0) {
        atomic_fetch_add(&giving_up->refused, 1);
        return false;
    }
    atomic_fetch_sub(&giving_up->left, 1);
    return true;
}

/* Every worker is refused at most once: the chunk that it works on is its last. */
static void ends_all_workers_when_the_load_is_given_up(void **state)
{
    struct fixture *fixture = *state;
    write_kinds(fixture, MANY_ROWS, PACKED_ROWS);
    for (size_t i = 0; i < THREAD_COUNTS; i++) {
        struct giving_up giving_up = {.left = 0};
        struct eb_load_progress progress = {.go_on = give_up, .context = &giving_up};
        struct eb_table_set set;
        struct eb_failure failure;
        atomic_store(&giving_up.left, 2 * THREADS_MAX);
        assert_false(try_threads(fixture, thread_counts[i], &progress, &set, &failure));
        eb_scratch_expect(failure.text, "the load was cancelled");
        assert_in_range(atomic_load(&giving_up.refused), 1, thread_counts[i]);
    }
}

/* A meeting of two threads in go_on. */
struct meeting {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned there;
    bool has_failed;
};

static bool meet(void *context, uint64_t bytes)
{
    struct meeting *meeting = context;
    struct timespec until;
    (void)bytes;
    (void)__real_clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += AWAIT_S;
    pthread_mutex_lock(&meeting->mutex);
    meeting->there++;
    pthread_cond_broadcast(&meeting->changed);
    while (meeting->there < 2 && !meeting->has_failed) {
        meeting->has_failed =
            pthread_cond_timedwait(&meeting->changed, &meeting->mutex, &until) != 0;
    }
    pthread_mutex_unlock(&meeting->mutex);
    return true;
}

static void lets_workers_go_on_at_the_same_time(void **state)
{
    struct fixture *fixture = *state;
    struct meeting meeting = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false};
    struct eb_load_progress progress = {.go_on = meet, .context = &meeting};
    struct eb_table_set set;
    struct eb_failure failure;
    write_values(fixture, "t.npy", 0, MANY_ROWS);
    assert_true(try_threads(fixture, 2, &progress, &set, &failure));
    assert_false(meeting.has_failed);
    eb_table_set_deinit(&set);
}

/* ---- progress ---- */

struct totals {
    pthread_mutex_t mutex;
    uint64_t done_bytes; /* the most that was told */
    uint64_t total_bytes;
    uint64_t counted_bytes; /* told to go_on */
};

static void add_report(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    struct totals *totals = context;
    (void)path;
    pthread_mutex_lock(&totals->mutex);
    totals->done_bytes = done_bytes > totals->done_bytes ? done_bytes : totals->done_bytes;
    totals->total_bytes = total_bytes;
    pthread_mutex_unlock(&totals->mutex);
}

static bool add_counted(void *context, uint64_t bytes)
{
    struct totals *totals = context;
    pthread_mutex_lock(&totals->mutex);
    totals->counted_bytes += bytes;
    pthread_mutex_unlock(&totals->mutex);
    return true;
}

/* A clock by which a second passes between any two calls, so that everything is reported. */
static int read_fast_clock(clockid_t id, struct timespec *out)
{
    static atomic_uint_fast64_t now_s;
    if (id != CLOCK_MONOTONIC) {
        return __real_clock_gettime(id, out);
    }
    *out = (struct timespec){.tv_sec = (time_t)(atomic_fetch_add(&now_s, 1) + 1)};
    return 0;
}

static void counts_every_byte_once(void **state)
{
    struct fixture *fixture = *state;
    write_kinds(fixture, MANY_ROWS, PACKED_ROWS);
    eb_faults.clock_gettime = read_fast_clock;
    for (size_t i = 0; i < THREAD_COUNTS; i++) {
        struct totals totals = {.mutex = PTHREAD_MUTEX_INITIALIZER};
        struct eb_load_progress progress = {
            .report = add_report, .go_on = add_counted, .context = &totals};
        struct eb_table_set set;
        struct eb_failure failure;
        assert_true(try_threads(fixture, thread_counts[i], &progress, &set, &failure));
        assert_int_equal(totals.counted_bytes, totals.total_bytes);
        assert_in_range(totals.done_bytes, 1, totals.total_bytes);
        eb_table_set_deinit(&set);
    }
}

/* ---- stalled reads ---- */

/* Loads with one worker, one of whose reads stalls. Expects a report of the file, and that another
 * worker has loaded the rest meanwhile. */
static void expect_stall(const struct fixture *fixture, const char *part, unsigned other_reads)
{
    struct eb_table_set expected;
    struct eb_table_set set;
    struct eb_failure failure;
    struct eb_load_progress progress = {.stalled = note_stalled};
    load_threaded(fixture, 1, &expected);
    atomic_store(&reads.count, 0);
    reads.part = part;
    reads.other_reads = other_reads;
    pool_clock.is_ours = true;
    assert_true(try_threads(fixture, 1, &progress, &set, &failure));
    pool_clock.is_ours = false;
    assert_int_equal(atomic_load(&reads.stalls), 1);
    assert_int_equal(atomic_load(&reads.stalled_s), EB_READ_WATCH_STALL_MS / 1000);
    eb_scratch_expect(reads.stalled_path, part);
    expect_same(&set, &expected);
    eb_table_set_deinit(&set);
    eb_table_set_deinit(&expected);
}

static void reports_a_stalled_read_and_loads_on(void **state)
{
    struct fixture *fixture = *state;
    write_values(fixture, "a.npy", 0, 4 * CHUNK_ROWS);
    write_values(fixture, "b.npy", 0, 4 * CHUNK_ROWS);
    expect_stall(fixture, "/a.npy", 7);
}

static void names_the_file_of_scales_that_stalls(void **state)
{
    struct fixture *fixture = *state;
    write_codes(fixture, MANY_ROWS);
    describe(fixture, "tables: [" CODES_YAML "]");
    expect_stall(fixture, "/b.npy", 2);
}

/* Lets 30 seconds pass for a thread in go_on, until the watching thread has checked it. */
static bool wait_for_the_pace(void *context, uint64_t bytes)
{
    (void)context;
    (void)bytes;
    atomic_fetch_add(&pool_clock.now_ms, EB_READ_WATCH_STALL_MS);
    unsigned calls = atomic_load(&pool_clock.main_calls);
    while (atomic_load(&pool_clock.main_calls) - calls < 4) {
        (void)pass_pool_time();
    }
    return true;
}

static void does_not_take_the_pace_for_a_stall(void **state)
{
    struct fixture *fixture = *state;
    struct eb_load_progress progress = {.go_on = wait_for_the_pace, .stalled = note_stalled};
    struct eb_table_set set;
    struct eb_failure failure;
    write_codes(fixture, FEW_ROWS);
    describe(fixture, "tables: [" CODES_YAML "]");
    pool_clock.is_ours = true;
    bool is_good = try_threads(fixture, 1, &progress, &set, &failure);
    pool_clock.is_ours = false;
    assert_true(is_good);
    assert_int_equal(atomic_load(&reads.stalls), 0);
    eb_table_set_deinit(&set);
}

/* ---- threads and memory that the system refuses ---- */

static void loads_with_the_threads_that_there_are(void **state)
{
    struct fixture *fixture = *state;
    struct eb_table_set expected;
    write_kinds(fixture, MANY_ROWS, PACKED_ROWS);
    load_threaded(fixture, 1, &expected);
    for (unsigned allowed = 0; allowed < 4; allowed++) {
        struct eb_table_set set;
        atomic_store(&threads_allowed, allowed);
        load_threaded(fixture, THREADS_MAX, &set);
        expect_same(&set, &expected);
        eb_table_set_deinit(&set);
    }
    eb_table_set_deinit(&expected);
}

static atomic_uint allocations; /* of all threads */
static unsigned failing_allocation;

static bool refuse_any_thread(void)
{
    return atomic_fetch_add(&allocations, 1) + 1 == failing_allocation;
}

static void *fail_malloc(size_t bytes)
{
    return refuse_any_thread() ? NULL : __real_malloc(bytes);
}

static void *fail_calloc(size_t count, size_t bytes)
{
    return refuse_any_thread() ? NULL : __real_calloc(count, bytes);
}

/* Fails each allocation of a load once, whichever thread makes it. Either the load fails, and says
 * why, or it succeeds without that memory. */
static void fail_allocations(const struct fixture *fixture, unsigned threads, unsigned allowed)
{
    struct eb_table_set expected;
    load_threaded(fixture, 1, &expected);
    eb_faults.malloc = fail_malloc;
    eb_faults.calloc = fail_calloc;
    bool is_done = false;
    for (failing_allocation = 1; !is_done; failing_allocation++) {
        struct eb_table_set set;
        struct eb_failure failure;
        atomic_store(&allocations, 0);
        atomic_store(&threads_allowed, allowed);
        if (try_threads(fixture, threads, NULL, &set, &failure)) {
            is_done = atomic_load(&allocations) < failing_allocation;
            expect_same(&set, &expected);
            eb_table_set_deinit(&set);
        } else {
            eb_scratch_expect(failure.text, "memory");
            assert_int_equal(set.count, 0);
        }
    }
    eb_faults.malloc = NULL;
    eb_faults.calloc = NULL;
    assert_true(failing_allocation > 10);
    eb_table_set_deinit(&expected);
}

static void survives_each_failing_allocation(void **state)
{
    struct fixture *fixture = *state;
    write_kinds(fixture, FEW_ROWS, FEW_ROWS);
    fail_allocations(fixture, 1, 0);
    fail_allocations(fixture, 2, UINT32_MAX);
}

EB_TEST_GROUP(row_load)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(loads_every_kind_of_table_the_same),
        TEST(hashes_chunks_as_they_lie_in_memory),
        TEST(hashes_a_single_chunk_as_a_load_does),
        TEST(keeps_its_digests),
        TEST(loads_rows_wider_than_a_chunk),
        TEST(cuts_rows_into_chunks_by_their_size),
        TEST(shares_tables_that_compare_equal),
        TEST(tells_the_first_row_that_cannot_be_converted),
        TEST(tells_the_first_read_that_fails),
        TEST(tells_the_first_row_of_a_table_in_another_format),
        TEST(tells_a_damaged_block_of_a_packed_file),
        TEST(ends_all_workers_when_the_load_is_given_up),
        TEST(lets_workers_go_on_at_the_same_time),
        TEST(counts_every_byte_once),
        TEST(reports_a_stalled_read_and_loads_on),
        TEST(names_the_file_of_scales_that_stalls),
        TEST(does_not_take_the_pace_for_a_stall),
        TEST(loads_with_the_threads_that_there_are),
        TEST(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
