#include "server/formats/packed_writer.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/packed_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* What the file system supports. */
enum ability { CAN_ALL, CANNOT_NAME_LATER, CANNOT_RENAME_EITHER, ABILITY_COUNT };

static enum ability ability;

static int access_as_able(const char *name, int mode)
{
    bool is_refused = ability != CAN_ALL && strncmp(name, "/proc/self/fd/", 14) == 0;
    errno = is_refused ? ENOENT : errno;
    return is_refused ? -1 : __real_access(name, mode);
}

static int rename_as_able(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    bool is_refused = ability == CANNOT_RENAME_EITHER;
    errno = is_refused ? EINVAL : errno;
    return is_refused ? -1 : __real_renameat2(from_at, from, to_at, to, flags);
}

static int limit_file_system(void **state)
{
    (void)state;
    eb_faults.access = access_as_able;
    eb_faults.renameat2 = rename_as_able;
    return 0;
}

static char path[EB_SCRATCH_PATH_BYTES];

static int set_up(void **state)
{
    if (eb_scratch_set_up(state) != 0) {
        return -1;
    }
    ability = CAN_ALL;
    eb_scratch_path(*state, "t.embag", path);
    return 0;
}

/* Counts the entries of the scratch directory, hidden ones too. */
static unsigned count_entries(const struct eb_scratch *scratch)
{
    unsigned count = 0;
    DIR *directory = opendir(scratch->root);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory));) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(directory);
    return count;
}

static void shows_a_file_when_it_is_published(const struct eb_scratch *scratch)
{
    static const uint8_t rows[36];
    struct eb_packed_writer writer;
    struct eb_failure failure;
    struct stat status;
    struct eb_packed_format format = eb_packed_fixture_format(3, 4);
    assert_int_equal(format.tensor.data_bytes, sizeof rows);
    assert_true(eb_packed_writer_open(&writer, path, &format, &failure));
    assert_true(eb_packed_writer_begin(&writer, EB_PACKED_ROWS, &failure));
    assert_true(eb_packed_writer_append(&writer, rows, sizeof rows, &failure));
    assert_true(eb_packed_writer_end(&writer, &failure));
    assert_int_equal(access(path, F_OK), -1);
    assert_true(eb_packed_writer_publish(&writer, &failure));
    eb_packed_writer_close(&writer);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0644);
    assert_int_equal(count_entries(scratch), 1);
    assert_true(eb_packed_fixture_verify(path, &failure));
    assert_int_equal(unlink(path), 0);
}

static void shows_a_file_only_when_it_is_published(void **state)
{
    const struct eb_scratch *scratch = *state;
    for (int i = CAN_ALL; i < ABILITY_COUNT; i++) {
        ability = (enum ability)i;
        shows_a_file_when_it_is_published(scratch);
    }
}

static void leaves_nothing_where_it_is_closed_before(void **state)
{
    const struct eb_scratch *scratch = *state;
    static const uint8_t rows[36];
    struct eb_packed_format format = eb_packed_fixture_format(3, 4);
    for (int round = 0; round < 3 * ABILITY_COUNT; round++) {
        int steps = round % 3;
        ability = (enum ability)(round / 3);
        struct eb_packed_writer writer;
        struct eb_failure failure;
        assert_true(eb_packed_writer_open(&writer, path, &format, &failure));
        if (steps > 0) {
            assert_true(eb_packed_writer_append(&writer, rows, sizeof rows, &failure));
        }
        if (steps > 1) {
            assert_true(eb_packed_writer_end(&writer, &failure));
        }
        assert_true(ability == CAN_ALL || count_entries(scratch) == 1);
        eb_packed_writer_close(&writer);
        assert_int_equal(count_entries(scratch), 0);
    }
    struct eb_packed_writer zeroed = {0};
    eb_packed_writer_close(&zeroed);
}

/* Needs a file system that supports files without a name. */
static void leaves_nothing_where_it_is_killed(void **state)
{
    const struct eb_scratch *scratch = *state;
    int nameless = open(scratch->root, O_TMPFILE | O_RDWR, 0600);
    if (nameless < 0) {
        skip();
    }
    assert_int_equal(close(nameless), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct eb_packed_writer writer;
        struct eb_failure failure;
        struct eb_packed_format format = eb_packed_fixture_format(3, 4);
        (void)raise(eb_packed_writer_open(&writer, path, &format, &failure) ? SIGKILL : SIGABRT);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(count_entries(scratch), 0);
}

static void keeps_the_file_that_is_there(const struct eb_scratch *scratch)
{
    struct eb_packed_writer writer;
    struct eb_failure failure = {.text = ""};
    struct eb_packed_format format = eb_packed_fixture_format(0, 4);
    assert_true(eb_packed_writer_open(&writer, path, &format, &failure));
    assert_true(eb_packed_writer_end(&writer, &failure));
    eb_scratch_write(scratch, "t.embag", "x", 1);
    assert_false(eb_packed_writer_publish(&writer, &failure));
    eb_scratch_expect(
        failure.text, "t.embag: it cannot be put into place (File exists); remove it");
    eb_packed_writer_close(&writer);
    assert_false(eb_packed_writer_open(&writer, path, &format, &failure));
    eb_scratch_expect(failure.text, "File exists");
    assert_int_equal(count_entries(scratch), 1);
    assert_int_equal(unlink(path), 0);
}

static void replaces_no_file(void **state)
{
    const struct eb_scratch *scratch = *state;
    for (int i = CAN_ALL; i < ABILITY_COUNT; i++) {
        ability = (enum ability)i;
        keeps_the_file_that_is_there(scratch);
    }
}

static void says_where_no_file_can_be(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_packed_writer writer;
    struct eb_failure failure = {.text = ""};
    struct eb_packed_format format = eb_packed_fixture_format(0, 4);
    eb_scratch_path(scratch, "absent/t.embag", path);
    assert_false(eb_packed_writer_open(&writer, path, &format, &failure));
    eb_scratch_expect(failure.text, "absent/t.embag: it cannot be written");
    eb_scratch_expect(failure.text, "create its directory");
}

static void begins_nothing_that_has_no_room(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct rlimit before;
    struct eb_packed_writer writer;
    struct eb_failure failure = {.text = ""};
    struct eb_packed_format format = eb_packed_fixture_format(1000, 100);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = 50000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    bool is_open = eb_packed_writer_open(&writer, path, &format, &failure);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_false(is_open);
    eb_scratch_expect(failure.text, "bytes of disk space cannot be reserved for it");
    assert_int_equal(count_entries(scratch), 0);
}

EB_TEST_GROUP(packed_writer)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            shows_a_file_only_when_it_is_published, set_up, eb_scratch_tear_down),
        cmocka_unit_test_setup_teardown(
            leaves_nothing_where_it_is_closed_before, set_up, eb_scratch_tear_down),
        cmocka_unit_test_setup_teardown(
            leaves_nothing_where_it_is_killed, set_up, eb_scratch_tear_down),
        cmocka_unit_test_setup_teardown(replaces_no_file, set_up, eb_scratch_tear_down),
        cmocka_unit_test_setup_teardown(says_where_no_file_can_be, set_up, eb_scratch_tear_down),
        cmocka_unit_test_setup_teardown(
            begins_nothing_that_has_no_room, set_up, eb_scratch_tear_down),
    };
    return cmocka_run_group_tests(tests, limit_file_system, eb_faults_tear_down);
}
