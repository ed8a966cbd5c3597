#include "client/cli/commands.h"

#include "client/cli/workload.h"
#include "server/formats/npy.h"
#include "tests/lib/test_group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#define PATH_BYTES 256

int __real_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags);
int __wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags);

/* Whether renameat2 fails as if the file system could not rename without replacing. The linker
 * sends the calls to the wrapper here (--wrap). */
static bool cannot_rename;
/* Whether the version appears just before the rename, as if another process created it. */
static bool is_overtaken;

int __wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    if (is_overtaken) {
        assert_int_equal(mkdir(to, 0755), 0);
    }
    errno = cannot_rename ? EINVAL : errno;
    return cannot_rename ? -1 : __real_renameat2(from_at, from, to_at, to, flags);
}

static int set_up(void **state)
{
    char path[] = "/tmp/embag-test.XXXXXX";
    *state = mkdtemp(path) ? strdup(path) : NULL;
    return *state ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *position)
{
    (void)status;
    (void)kind;
    (void)position;
    return remove(path);
}

static int tear_down(void **state)
{
    int rc = nftw(*state, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return rc;
}

static int make(const char *directory, const char *flag, const char *value, const char *scale)
{
    char *arguments[] = {"make-model", (char *)flag, (char *)value, "--scale", (char *)scale,
        (char *)directory, NULL};
    return eb_make_model_main(6, arguments);
}

/* Reads a whole file below `directory`, and the tensor that its header describes. The caller frees
 * the bytes. */
static uint8_t *read_table(const char *directory, const char *name, struct eb_tensor *tensor)
{
    char path[PATH_BYTES];
    struct stat status;
    struct eb_failure failure;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDONLY);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &status), 0);
    size_t size = (size_t)status.st_size;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    assert_int_equal(read(file, bytes, size), size);
    assert_int_equal(close(file), 0);
    size_t head = size < EB_NPY_HEADER_BYTES_MAX ? size : EB_NPY_HEADER_BYTES_MAX;
    assert_true(eb_npy_parse(bytes, head, size, tensor, &failure));
    return bytes;
}

static void writes_every_table_with_its_published_values(void **state)
{
    uint32_t table_count = eb_workload_find("dlrm-v2")->table_count;
    assert_int_equal(make(*state, "--workload", "dlrm-v2", "100000"), 0);
    for (uint32_t table = 0; table < table_count; table++) {
        char name[EB_WORKLOAD_TABLE_NAME_BYTES], path[PATH_BYTES];
        struct eb_tensor tensor;
        eb_workload_table_name(table, name);
        snprintf(path, sizeof path, "dlrm-v2/1/%s.npy", name);
        uint8_t *bytes = read_table(*state, path, &tensor);
        assert_int_equal(tensor.storage, EB_STORAGE_F32);
        assert_int_equal(tensor.rank, 2);
        assert_int_equal(
            tensor.dims[0], eb_workload_rows(eb_workload_find("dlrm-v2"), table, 100000));
        assert_int_equal(tensor.dims[1], 128);
        uint64_t seed = eb_workload_seed(name, 1);
        const float *values = (const float *)(bytes + tensor.data_offset);
        for (uint64_t at = 0; at < tensor.dims[0] * 128; at++) {
            assert_true(values[at] == eb_workload_value(seed, at / 128, at % 128));
        }
        free(bytes);
    }
}

static void writes_more_rows_than_fit_a_chunk(void **state)
{
    struct eb_tensor tensor;
    assert_int_equal(make(*state, "--workload", "rows", "5000"), 0);
    uint8_t *bytes = read_table(*state, "rows/1/t00.npy", &tensor);
    assert_int_equal(tensor.dims[0], 3200);
    uint64_t seed = eb_workload_seed("t00", 1);
    const float *values = (const float *)(bytes + tensor.data_offset);
    for (uint64_t row = 0; row < 3200; row++) {
        assert_true(values[row * 64 + 63] == eb_workload_value(seed, row, 63));
    }
    free(bytes);
}

static void writes_the_specifications_table(void **state)
{
    static const float expected[] = {
        -0.2f, -0.6f, -0.1f, -0.4f, -1.9f, -1.8f, -1.0f, 1.5f, 0.8f, -0.7f};
    struct eb_tensor tensor;
    assert_int_equal(make(*state, "--example", "spec", "1"), 0);
    uint8_t *bytes = read_table(*state, "spec/1/emb_table.npy", &tensor);
    assert_int_equal(tensor.dims[0], 5);
    assert_int_equal(tensor.dims[1], 2);
    assert_memory_equal(bytes + tensor.data_offset, expected, sizeof expected);
    free(bytes);
}

/* Counts the entries of a directory, including hidden ones, but not "." and "..". */
static unsigned count_entries(const char *directory, const char *name)
{
    char path[PATH_BYTES];
    unsigned count = 0;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    DIR *entries = opendir(path);
    assert_non_null(entries);
    while (readdir(entries)) {
        count++;
    }
    assert_int_equal(closedir(entries), 0);
    return count - 2;
}

static void leaves_a_version_alone_that_is_there(void **state)
{
    struct eb_tensor tensor;
    assert_int_equal(make(*state, "--workload", "rows", "1000000"), 0);
    assert_int_equal(make(*state, "--workload", "rows", "500000"), 1);
    free(read_table(*state, "rows/1/t00.npy", &tensor));
    assert_int_equal(tensor.dims[0], 16);
    assert_int_equal(count_entries(*state, "rows"), 1);
}

static void writes_versions_beside_each_other(void **state)
{
    char *arguments[] = {
        "make-model", "--example=spec", "--version=18446744073709551", *state, NULL};
    assert_int_equal(make(*state, "--example", "spec", "1"), 0);
    assert_int_equal(eb_make_model_main(4, arguments), 0);
    assert_int_equal(count_entries(*state, "spec"), 2);
    assert_int_equal(count_entries(*state, "spec/18446744073709551"), 1);
}

static void writes_where_a_rename_may_always_replace(void **state)
{
    cannot_rename = true;
    int status = make(*state, "--example", "spec", "1");
    cannot_rename = false;
    assert_int_equal(status, 0);
    assert_int_equal(count_entries(*state, "spec"), 1);
    assert_int_equal(count_entries(*state, "spec/1"), 1);
}

static void replaces_no_version_that_comes_into_being(void **state)
{
    for (int round = 0; round < 2; round++) {
        cannot_rename = round == 1;
        is_overtaken = true;
        int status = make(*state, "--example", "spec", "1");
        cannot_rename = false;
        is_overtaken = false;
        assert_int_equal(status, 1);
        assert_int_equal(count_entries(*state, "spec"), 1);
        assert_int_equal(count_entries(*state, "spec/1"), 0);
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/spec/1", (const char *)*state);
        assert_int_equal(rmdir(path), 0);
    }
}

static void refuses_what_does_not_fit_the_disk(void **state)
{
    char *arguments[] = {"make-model", "--workload=dlrm-v2", *state, NULL};
    struct statvfs file_system;
    assert_int_equal(statvfs(*state, &file_system), 0);
    if ((uint64_t)file_system.f_bavail * file_system.f_frsize > UINT64_C(100000000000)) {
        skip(); /* This disk has room for all of dlrm-v2. */
    }
    assert_int_equal(eb_make_model_main(3, arguments), 1);
    assert_int_equal(count_entries(*state, "dlrm-v2"), 0);
}

static void removes_what_it_could_not_finish(void **state)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = {.rlim_cur = 100000, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int status = make(*state, "--workload", "rows", "10000");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(signal(SIGXFSZ, handler) != SIG_ERR);
    assert_int_equal(status, 1);
    assert_int_equal(count_entries(*state, "rows"), 0);
}

static void rejects_wrong_usage(void **state)
{
    char *neither[] = {"make-model", *state, NULL};
    assert_int_equal(eb_make_model_main(2, neither), 2);
    assert_int_equal(make(*state, "--workload", "dlrm", "1"), 2);
    assert_int_equal(make(*state, "--example", "dlrm-v2", "1"), 2);
    assert_int_equal(make(*state, "--workload", "rows", "0"), 2);
    assert_int_equal(make("/proc/nowhere", "--example", "spec", "1"), 1);
}

EB_TEST_GROUP(make_model)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            writes_every_table_with_its_published_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writes_more_rows_than_fit_a_chunk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writes_the_specifications_table, set_up, tear_down),
        cmocka_unit_test_setup_teardown(leaves_a_version_alone_that_is_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writes_versions_beside_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            writes_where_a_rename_may_always_replace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            replaces_no_version_that_comes_into_being, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_what_does_not_fit_the_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(removes_what_it_could_not_finish, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rejects_wrong_usage, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
