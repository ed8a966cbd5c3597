#include "server/formats/direct_read.h"

#include "server/formats/table_file.h"
#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

/* Several windows, and a last block that is not whole. */
#define FILE_BYTES (3 * EB_DIRECT_READ_WINDOW_BYTES + 1234)
#define REQUEST_BYTES UINT64_C(500001) /* begins and ends anywhere in a block */

struct case_state {
    struct eb_scratch *scratch;
    char path[EB_SCRATCH_PATH_BYTES];
    uint8_t *expected;
    uint8_t *read;
    struct eb_table_file file;
    struct eb_direct_read_bytes before;
};

enum cache { CACHE_AS_IT_IS, CACHE_EMPTY, CACHE_FULL };

static struct {
    long file_system; /* what fstatfs says; 0: the truth */
    enum cache cache; /* what the page cache seems to hold */
    int refusal;      /* of reads with O_DIRECT; 0: none */
    unsigned interruptions;
    size_t bytes_max; /* of one read with O_DIRECT */
    unsigned direct_reads;
    unsigned direct_opens;
    uint64_t direct_begin; /* of the last one */
} fake;

static bool is_direct(int descriptor)
{
    return (fcntl(descriptor, F_GETFL) & O_DIRECT) != 0;
}

int __wrap_fstatfs(int descriptor, struct statfs *out);
int __real_fstatfs(int descriptor, struct statfs *out);
int __wrap_fstatfs(int descriptor, struct statfs *out)
{
    int rc = __real_fstatfs(descriptor, out);
    fake.direct_opens++;
    if (fake.file_system != 0) {
        out->f_type = fake.file_system;
    }
    return rc;
}

ssize_t __wrap_pread(int descriptor, void *out, size_t bytes, off_t offset);
ssize_t __real_pread(int descriptor, void *out, size_t bytes, off_t offset);
ssize_t __wrap_pread(int descriptor, void *out, size_t bytes, off_t offset)
{
    if (!is_direct(descriptor)) {
        return __real_pread(descriptor, out, bytes, offset);
    }
    if (fake.interruptions > 0) {
        fake.interruptions--;
        errno = EINTR;
        return -1;
    }
    if (fake.refusal != 0) {
        errno = fake.refusal;
        return -1;
    }
    assert_int_equal((uintptr_t)out % EB_DIRECT_READ_ALIGNMENT, 0);
    assert_int_equal(bytes % EB_DIRECT_READ_ALIGNMENT, 0);
    assert_int_equal((uint64_t)offset % EB_DIRECT_READ_ALIGNMENT, 0);
    fake.direct_reads++;
    fake.direct_begin = (uint64_t)offset;
    return __real_pread(descriptor, out, bytes < fake.bytes_max ? bytes : fake.bytes_max, offset);
}

ssize_t __wrap_preadv2(
    int descriptor, const struct iovec *ranges, int count, off_t offset, int flags);
ssize_t __real_preadv2(
    int descriptor, const struct iovec *ranges, int count, off_t offset, int flags);
ssize_t __wrap_preadv2(
    int descriptor, const struct iovec *ranges, int count, off_t offset, int flags)
{
    if (fake.cache == CACHE_EMPTY) {
        errno = EAGAIN;
        return -1;
    }
    return __real_preadv2(descriptor, ranges, count, offset, fake.cache == CACHE_FULL ? 0 : flags);
}

/* Drops the file from the page cache, if its file system can do without it there. */
static void make_cold(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(descriptor >= 0);
    assert_int_equal(fsync(descriptor), 0);
    assert_int_equal(posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED), 0);
    assert_int_equal(close(descriptor), 0);
}

static int set_up(void **state)
{
    struct case_state *test = calloc(1, sizeof *test);
    struct eb_failure failure;
    void *scratch = NULL;
    memset(&fake, 0, sizeof fake);
    fake.bytes_max = SIZE_MAX;
    if (!test || eb_scratch_set_up(&scratch) != 0) {
        return -1;
    }
    test->scratch = scratch;
    test->expected = malloc(FILE_BYTES);
    test->read = calloc(1, FILE_BYTES + 1);
    for (uint64_t i = 0; i < FILE_BYTES; i++) {
        test->expected[i] = (uint8_t)(i * 2654435761U >> 16);
    }
    eb_scratch_write(scratch, "f", test->expected, FILE_BYTES);
    eb_scratch_path(scratch, "f", test->path);
    make_cold(test->path);
    if (!eb_table_file_open(test->path, &test->file, &failure)) {
        return -1;
    }
    test->before = eb_direct_read_count();
    *state = test;
    return 0;
}

static int tear_down(void **state)
{
    struct case_state *test = *state;
    void *scratch = test->scratch;
    eb_table_file_close(&test->file);
    free(test->expected);
    free(test->read);
    free(test);
    return eb_scratch_tear_down(&scratch);
}

/* Returns whether the scratch directory is where files are read with O_DIRECT. */
static bool has_direct(const struct case_state *test)
{
    struct statfs system;
    assert_int_equal(__real_fstatfs(test->file.descriptor, &system), 0);
    return system.f_type == EXT4_SUPER_MAGIC || system.f_type == 0x58465342 ||
           system.f_type == BTRFS_SUPER_MAGIC;
}

static void expect_range(struct case_state *test, uint64_t offset, uint64_t bytes)
{
    struct eb_failure failure;
    memset(test->read, 0xee, bytes + 1);
    assert_true(eb_table_file_read(&test->file, offset, test->read, bytes, &failure));
    assert_memory_equal(test->read, test->expected + offset, bytes);
    assert_int_equal(test->read[bytes], 0xee);
}

static void expect_whole(struct case_state *test)
{
    for (uint64_t at = 0; at < FILE_BYTES; at += REQUEST_BYTES) {
        uint64_t left = FILE_BYTES - at;
        expect_range(test, at, left < REQUEST_BYTES ? left : REQUEST_BYTES);
    }
}

static struct eb_direct_read_bytes count_since(const struct case_state *test)
{
    struct eb_direct_read_bytes now = eb_direct_read_count();
    return (struct eb_direct_read_bytes){.cached = now.cached - test->before.cached,
        .direct = now.direct - test->before.direct,
        .plain = now.plain - test->before.plain};
}

static void expect_plain(struct case_state *test)
{
    expect_whole(test);
    assert_int_equal(count_since(test).plain, FILE_BYTES);
    assert_int_equal(count_since(test).direct, 0);
    assert_int_equal(test->file.direct.state, EB_DIRECT_READ_OFF);
}

static void reads_a_cold_file_in_order_and_no_block_twice(void **state)
{
    struct case_state *test = *state;
    expect_whole(test);
    struct eb_direct_read_bytes bytes = count_since(test);
    if (has_direct(test) && bytes.cached == 0) {
        assert_int_equal(bytes.direct, FILE_BYTES);
        assert_int_equal(bytes.plain, 0);
    }
    assert_true(bytes.cached + bytes.direct + bytes.plain >= FILE_BYTES);
}

static void leaves_the_page_cache_as_it_was(void **state)
{
    struct case_state *test = *state;
    size_t pages = FILE_BYTES / EB_DIRECT_READ_ALIGNMENT;
    size_t requests = FILE_BYTES / REQUEST_BYTES + 1;
    size_t resident = 0;
    expect_whole(test);
    unsigned char *is_resident = calloc(1, pages + 1);
    void *map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, test->file.descriptor, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mincore(map, FILE_BYTES, is_resident), 0);
    for (size_t i = 0; i < pages; i++) {
        resident += is_resident[i] & 1;
    }
    assert_int_equal(munmap(map, FILE_BYTES), 0);
    free(is_resident);
    if (has_direct(test) && count_since(test).cached == 0) {
        assert_true(resident <= requests);
    }
}

static void put_in_page_cache(struct case_state *test)
{
    int descriptor = open(test->path, O_RDONLY | O_CLOEXEC);
    assert_true(descriptor >= 0);
    assert_int_equal(__real_pread(descriptor, test->read, FILE_BYTES, 0), FILE_BYTES);
    assert_int_equal(close(descriptor), 0);
}

static void copies_what_the_page_cache_holds(void **state)
{
    struct case_state *test = *state;
    put_in_page_cache(test);
    expect_whole(test);
    struct eb_direct_read_bytes bytes = count_since(test);
    assert_true(bytes.cached + bytes.direct + bytes.plain >= FILE_BYTES);
    if (has_direct(test)) {
        assert_true(bytes.cached > 0);
    }
}

/* Ranges that never follow each other, none of which is in the buffer. */
static void read_scattered(struct case_state *test, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        expect_range(test, (i % 2 == 0 ? 2 : 0) * EB_DIRECT_READ_WINDOW_BYTES + 9, REQUEST_BYTES);
    }
}

static void asks_the_page_cache_again_after_seven_ranges(void **state)
{
    struct case_state *test = *state;
    fake.cache = CACHE_EMPTY;
    read_scattered(test, 1);
    fake.cache = CACHE_FULL;
    test->before = eb_direct_read_count();
    expect_range(test, 9, REQUEST_BYTES);
    read_scattered(test, 6);
    assert_int_equal(count_since(test).cached, 0);
    expect_range(test, 9 + EB_DIRECT_READ_WINDOW_BYTES, REQUEST_BYTES);
    if (has_direct(test)) {
        assert_int_equal(count_since(test).cached, REQUEST_BYTES);
    }
}

static void reads_ranges_at_and_around_blocks_and_the_end(void **state)
{
    struct case_state *test = *state;
    uint64_t block = EB_DIRECT_READ_ALIGNMENT;
    uint64_t least = EB_DIRECT_READ_BYTES_MIN;
    uint64_t window = EB_DIRECT_READ_WINDOW_BYTES;
    const uint64_t offsets[] = {0, 1, block - 1, block, block + 1, window - 1, window};
    const uint64_t counts[] = {1, least - 1, least, least + 1, window - 1, window, window + 1};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            expect_range(test, offsets[i], counts[k]);
            expect_range(test, FILE_BYTES - counts[k] - offsets[i], counts[k]);
        }
    }
}

static void leaves_small_ranges_to_the_page_cache(void **state)
{
    struct case_state *test = *state;
    expect_range(test, 5, EB_DIRECT_READ_BYTES_MIN - 1);
    assert_int_equal(test->file.direct.state, EB_DIRECT_READ_UNTRIED);
    assert_int_equal(fake.direct_opens, 0);
    assert_null(test->file.direct.buffer);
    expect_range(test, 5, EB_DIRECT_READ_BYTES_MIN);
    assert_int_equal(fake.direct_opens, 1);
}

static void reads_other_file_systems_as_usual(void **state)
{
    fake.file_system = TMPFS_MAGIC;
    expect_plain(*state);
}

static void reads_as_usual_once_direct_reads_are_refused(void **state)
{
    static const int refusals[] = {EINVAL, EOPNOTSUPP};
    struct case_state *test = *state;
    struct eb_failure failure;
    if (!has_direct(test)) {
        expect_plain(test);
        return;
    }
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        eb_table_file_close(&test->file);
        make_cold(test->path);
        assert_true(eb_table_file_open(test->path, &test->file, &failure));
        fake.refusal = refusals[i];
        expect_whole(test);
        assert_int_equal(count_since(test).direct, 0);
        if (count_since(test).cached == 0) {
            assert_int_equal(test->file.direct.state, EB_DIRECT_READ_OFF);
        }
    }
}

static void reads_as_usual_after_an_error_and_tries_again(void **state)
{
    struct case_state *test = *state;
    fake.refusal = EIO;
    expect_range(test, 0, REQUEST_BYTES);
    fake.refusal = 0;
    if (has_direct(test)) {
        assert_int_equal(test->file.direct.state, EB_DIRECT_READ_ON);
    }
    expect_range(test, REQUEST_BYTES, REQUEST_BYTES);
}

static void reads_on_after_short_reads_and_interruptions(void **state)
{
    struct case_state *test = *state;
    fake.interruptions = 3;
    fake.bytes_max = 3 * EB_DIRECT_READ_ALIGNMENT;
    expect_whole(test);
    if (has_direct(test) && count_since(test).cached == 0) {
        assert_int_equal(fake.interruptions, 0);
        assert_int_equal(count_since(test).plain, 0);
    }
}

static void says_where_a_large_range_was_cut_short(void **state)
{
    struct case_state *test = *state;
    struct eb_failure failure;
    assert_int_equal(truncate(test->path, 300001), 0);
    assert_false(eb_table_file_read(&test->file, 0, test->read, FILE_BYTES, &failure));
    eb_scratch_expect(failure.text, "byte 300001: the file was cut short");
    assert_true(failure.is_transient);
    assert_memory_equal(test->read, test->expected, 300001);
    assert_false(eb_table_file_read(&test->file, FILE_BYTES, test->read, 100000, &failure));
    eb_scratch_expect(failure.text, "the file was cut short");
}

EB_TEST_GROUP(direct_read)
{
#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_FILE(reads_a_cold_file_in_order_and_no_block_twice),
        WITH_FILE(leaves_the_page_cache_as_it_was),
        WITH_FILE(copies_what_the_page_cache_holds),
        WITH_FILE(asks_the_page_cache_again_after_seven_ranges),
        WITH_FILE(reads_ranges_at_and_around_blocks_and_the_end),
        WITH_FILE(leaves_small_ranges_to_the_page_cache),
        WITH_FILE(reads_other_file_systems_as_usual),
        WITH_FILE(reads_as_usual_once_direct_reads_are_refused),
        WITH_FILE(reads_as_usual_after_an_error_and_tries_again),
        WITH_FILE(reads_on_after_short_reads_and_interruptions),
        WITH_FILE(says_where_a_large_range_was_cut_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
