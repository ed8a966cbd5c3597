/* Packs and checks a keyed table while the n-th call for memory or to the disk fails, for each n.
 * The linker sends these calls of the tool through the wrappers here (--wrap). */
#include "client/cli/commands.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t bytes);
ssize_t __real_pread(int descriptor, void *out, size_t bytes, off_t offset);
ssize_t __real_pwrite(int descriptor, const void *from, size_t bytes, off_t offset);
int __real_fsync(int descriptor);
int __real_linkat(int from_at, const char *from, int to_at, const char *to, int flags);
int __real_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t bytes);
int __wrap_asprintf(char **out, const char *format, ...) __attribute__((format(printf, 2, 3)));
ssize_t __wrap_pread(int descriptor, void *out, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int descriptor, const void *from, size_t bytes, off_t offset);
int __wrap_fsync(int descriptor);
int __wrap_linkat(int from_at, const char *from, int to_at, const char *to, int flags);
int __wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags);

static unsigned call_count;
static unsigned fail_at; /* number of the call that fails, from 1; 0: none */

static bool is_refused(int error)
{
    bool refused = ++call_count == fail_at;
    if (refused) {
        errno = error;
    }
    return refused;
}

void *__wrap_malloc(size_t bytes)
{
    return is_refused(ENOMEM) ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return is_refused(ENOMEM) ? NULL : __real_calloc(count, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return is_refused(ENOMEM) ? NULL : __real_aligned_alloc(alignment, bytes);
}

char *__wrap_strdup(const char *text)
{
    return is_refused(ENOMEM) ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t bytes)
{
    return is_refused(ENOMEM) ? NULL : __real_strndup(text, bytes);
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    if (is_refused(ENOMEM)) {
        return -1;
    }
    va_list arguments;
    va_start(arguments, format);
    int printed = vasprintf(out, format, arguments);
    va_end(arguments);
    return printed;
}

ssize_t __wrap_pread(int descriptor, void *out, size_t bytes, off_t offset)
{
    return is_refused(EIO) ? -1 : __real_pread(descriptor, out, bytes, offset);
}

ssize_t __wrap_pwrite(int descriptor, const void *from, size_t bytes, off_t offset)
{
    return is_refused(EIO) ? -1 : __real_pwrite(descriptor, from, bytes, offset);
}

int __wrap_fsync(int descriptor)
{
    return is_refused(EIO) ? -1 : __real_fsync(descriptor);
}

int __wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    return is_refused(EIO) ? -1 : __real_renameat2(from_at, from, to_at, to, flags);
}

int __wrap_linkat(int from_at, const char *from, int to_at, const char *to, int flags)
{
    return is_refused(EIO) ? -1 : __real_linkat(from_at, from, to_at, to, flags);
}

static struct eb_scratch scratch;
static char input[EB_SCRATCH_PATH_BYTES];
static char keys[EB_SCRATCH_PATH_BYTES];
static char codes[EB_SCRATCH_PATH_BYTES];
static char scales[EB_SCRATCH_PATH_BYTES];
static char output[EB_SCRATCH_PATH_BYTES];
static int saved_out;
static int saved_error;

/* Writes the input, and discards messages, because most runs fail on purpose. */
static int set_up(void **state)
{
    (void)state;
    eb_scratch_init(&scratch);
    eb_scratch_write_npy(
        &scratch, "t.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (20, 2), }", 320);
    eb_scratch_write_npy(
        &scratch, "t.keys.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (20,), }", 160);
    eb_scratch_write_npy(
        &scratch, "c.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (20, 2), }", 40);
    eb_scratch_write_npy(
        &scratch, "s.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (20,), }", 80);
    eb_scratch_path(&scratch, "c.npy", codes);
    eb_scratch_path(&scratch, "s.npy", scales);
    eb_scratch_path(&scratch, "t.npy", input);
    eb_scratch_path(&scratch, "t.keys.npy", keys);
    eb_scratch_path(&scratch, "t.embag", output);
    int nowhere = open("/dev/null", O_WRONLY);
    saved_out = dup(STDOUT_FILENO);
    saved_error = dup(STDERR_FILENO);
    bool is_good = nowhere >= 0 && fflush(stdout) == 0 && dup2(nowhere, STDOUT_FILENO) >= 0 &&
                   dup2(nowhere, STDERR_FILENO) >= 0;
    close(nowhere);
    return is_good ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fail_at = 0;
    fflush(stdout);
    (void)dup2(saved_out, STDOUT_FILENO);
    (void)dup2(saved_error, STDERR_FILENO);
    close(saved_out);
    close(saved_error);
    eb_scratch_deinit(&scratch);
    return 0;
}

static int pack_while_failing(void)
{
    char *arguments[] = {"pack", "--keys", keys, input, output, NULL};
    return eb_pack_command_main(5, arguments);
}

static int pack_codes_while_failing(void)
{
    char *arguments[] = {"pack", "--format", "codes_int8", "--scales", scales, "--biases", scales,
        codes, output, NULL};
    return eb_pack_command_main(9, arguments);
}

/* Counts the files other than the input. */
static unsigned count_files(void)
{
    unsigned count = 0;
    DIR *directory = opendir(scratch.root);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory));) {
        const char *suffix = strrchr(entry->d_name, '.');
        bool is_input = suffix && !strcmp(suffix, ".npy");
        count += !is_input && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(directory);
    return count;
}

/* The last call is the fsync of the directory. By then the file has its name. */
static void expect_nothing_left(int (*run_pack)(void))
{
    call_count = 0;
    fail_at = 0;
    assert_int_equal(run_pack(), 0);
    unsigned calls = call_count;
    assert_true(calls > 20);
    assert_int_equal(unlink(output), 0);
    for (unsigned i = 1; i <= calls; i++) {
        call_count = 0;
        fail_at = i;
        int status = run_pack();
        fail_at = 0;
        if (status != 1 || count_files() != (i == calls)) {
            fail_msg("call %u of %u: status %d, %u files", i, calls, status, count_files());
        }
    }
}

static void packing_leaves_nothing_where_a_call_fails(void **state)
{
    (void)state;
    expect_nothing_left(pack_while_failing);
}

static void packing_codes_leaves_nothing_where_a_call_fails(void **state)
{
    (void)state;
    expect_nothing_left(pack_codes_while_failing);
}

static void checking_says_so_where_a_call_fails(void **state)
{
    (void)state;
    struct eb_failure failure;
    fail_at = 0;
    assert_int_equal(pack_while_failing(), 0);
    call_count = 0;
    assert_true(eb_check_file(output, &failure));
    unsigned calls = call_count;
    assert_true(calls > 8);
    for (unsigned i = 1; i <= calls; i++) {
        failure.text[0] = '\0';
        call_count = 0;
        fail_at = i;
        bool is_good = eb_check_file(output, &failure);
        fail_at = 0;
        if (is_good || failure.text[0] == '\0') {
            fail_msg("call %u of %u", i, calls);
        }
    }
}

EB_TEST_GROUP(pack_allocation)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            packing_leaves_nothing_where_a_call_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            packing_codes_leaves_nothing_where_a_call_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(checking_says_so_where_a_call_fails, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
