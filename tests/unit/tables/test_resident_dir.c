#include "server/tables/resident_dir.h"

#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/tables/resident_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/magic.h>

#include <cmocka.h>

#define PAGE EB_RESIDENT_PAGE_BYTES
#define KEY UINT64_C(0x0123456789abcdef)
#define NAME "0123456789abcdef.t"

/* A directory in a tmpfs. */
struct fixture {
    char root[EB_RESIDENT_FIXTURE_BYTES];
    struct eb_resident_dir dir;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    fixture->dir.descriptor = -1;
    (void)eb_resident_fixture_make(fixture->root); /* without a tmpfs the tests are skipped */
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_faults_disarm();
    eb_resident_dir_close(&fixture->dir);
    eb_resident_fixture_remove(fixture->root);
    free(fixture);
    return 0;
}

/* Opens the directory. Skips the test if there is no tmpfs. */
static struct eb_resident_dir *open_fixture_dir(struct fixture *fixture)
{
    struct eb_failure failure = {.text = ""};
    if (fixture->root[0] == '\0') {
        skip();
    }
    if (!eb_resident_dir_open(&fixture->dir, fixture->root, false, &failure)) {
        fail_msg("%s", failure.text);
    }
    return &fixture->dir;
}

/* Makes a complete file of one page. */
static void make_file(struct eb_resident_dir *dir, const char *name)
{
    char tmp[EB_RESIDENT_NAME_BYTES];
    struct eb_failure failure = {.text = ""};
    int descriptor = eb_resident_dir_create(dir, PAGE, tmp, &failure);
    assert_true(descriptor >= 0);
    assert_true(eb_resident_dir_commit(dir, descriptor, tmp, name, &failure));
    (void)close(descriptor);
}

static bool has_name(const struct eb_resident_dir *dir, const char *name)
{
    struct stat status;
    return fstatat(dir->descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static void refuses_wrong_directories(void **state)
{
    struct fixture *fixture = *state;
    struct eb_failure failure = {.text = ""};
    open_fixture_dir(fixture);
    eb_resident_dir_close(&fixture->dir);
    assert_false(eb_resident_dir_open(&fixture->dir, "/nowhere/at/all", false, &failure));
    assert_non_null(strstr(failure.text, "/nowhere/at/all"));
    assert_false(eb_resident_dir_open(&fixture->dir, "/proc", false, &failure));
    char path[128];
    snprintf(path, sizeof path, "%s/embag", fixture->root);
    assert_int_equal(chmod(path, 0770), 0);
    assert_false(eb_resident_dir_open(&fixture->dir, fixture->root, false, &failure));
    assert_non_null(strstr(failure.text, "others may write"));
    if (geteuid() == 0) {
        assert_int_equal(chmod(path, 0700), 0);
        assert_int_equal(chown(path, 12345, 12345), 0);
        assert_false(eb_resident_dir_open(&fixture->dir, fixture->root, false, &failure));
        assert_non_null(strstr(failure.text, "belongs to user 12345"));
    }
}

/* Returns the mode of a name in the directory, without its type. */
static mode_t read_mode(const struct eb_resident_dir *dir, const char *name)
{
    struct stat status;
    assert_int_equal(fstatat(dir->descriptor, name, &status, AT_SYMLINK_NOFOLLOW), 0);
    return status.st_mode & 07777;
}

static void refuses_what_is_not_its_directory(void **state)
{
    struct fixture *fixture = *state;
    struct eb_failure failure = {.text = ""};
    char path[128];
    open_fixture_dir(fixture);
    eb_resident_dir_close(&fixture->dir);
    snprintf(path, sizeof path, "%s/embag", fixture->root);
    assert_int_equal(unlinkat(AT_FDCWD, path, AT_REMOVEDIR), -1); /* it has a lock */
    char moved[128];
    snprintf(moved, sizeof moved, "%s/moved", fixture->root);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(symlink("moved", path), 0);
    assert_false(eb_resident_dir_open(&fixture->dir, fixture->root, false, &failure));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0700), 0);
    assert_false(eb_resident_dir_open(&fixture->dir, fixture->root, false, &failure));
    assert_non_null(strstr(failure.text, path));
}

/* Refuses a disk, and leaves no directory behind. */
static void refuses_a_file_system_on_a_disk(void **state)
{
    (void)state;
    struct eb_scratch scratch;
    struct eb_resident_dir dir;
    struct eb_failure failure = {.text = ""};
    struct statfs status;
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_init(&scratch);
    assert_int_equal(statfs(scratch.root, &status), 0);
    bool is_disk = status.f_type != TMPFS_MAGIC && status.f_type != HUGETLBFS_MAGIC;
    const char *root = is_disk ? scratch.root : "/proc/self";
    assert_false(eb_resident_dir_open(&dir, root, false, &failure));
    assert_non_null(strstr(failure.text, "not in a tmpfs or a hugetlbfs"));
    assert_int_equal(dir.descriptor, -1);
    eb_scratch_path(&scratch, "embag", path);
    assert_int_equal(access(path, F_OK), -1);
    eb_scratch_deinit(&scratch);
}

static void a_reader_makes_nothing_and_takes_no_lock(void **state)
{
    struct fixture *fixture = *state;
    struct eb_resident_dir reader;
    struct eb_failure failure = {.text = ""};
    struct stat status;
    uint64_t bytes;
    char path[128];
    if (fixture->root[0] == '\0') {
        skip();
    }
    snprintf(path, sizeof path, "%s/embag", fixture->root);
    assert_false(eb_resident_dir_open_reader(&reader, fixture->root, &failure));
    assert_non_null(strstr(failure.text, path));
    assert_int_equal(stat(path, &status), -1);
    struct eb_resident_dir *dir = open_fixture_dir(fixture);
    make_file(dir, NAME);
    eb_resident_dir_disown(dir);
    assert_true(eb_resident_dir_open_reader(&reader, fixture->root, &failure));
    assert_false(atomic_load(&reader.is_owner));
    assert_true(eb_resident_dir_own(dir));
    eb_resident_dir_unlink(&reader, NAME);
    assert_false(eb_resident_dir_write(&reader, "served", "x", 1, &failure));
    assert_false(has_name(dir, "served"));
    int descriptor = eb_resident_dir_find(&reader, NAME, &bytes, &failure);
    assert_true(descriptor >= 0);
    (void)close(descriptor);
    eb_resident_dir_close(&reader);
}

static void sets_modes_for_a_group_that_may_read(void **state)
{
    struct fixture *fixture = *state;
    struct eb_resident_dir *dir = open_fixture_dir(fixture);
    struct eb_failure failure;
    mode_t mask = umask(0);
    assert_int_equal(read_mode(dir, "."), 0700);
    make_file(dir, NAME);
    assert_int_equal(read_mode(dir, NAME), 0400);
    eb_resident_dir_close(dir);
    umask(0077);
    assert_true(eb_resident_dir_open(dir, fixture->root, true, &failure));
    assert_int_equal(read_mode(dir, "."), 0750);
    make_file(dir, NAME);
    assert_int_equal(read_mode(dir, NAME), 0440);
    assert_true(eb_resident_dir_write(dir, "served", "x", 1, &failure));
    assert_int_equal(read_mode(dir, "served"), 0440);
    umask(mask);
}

/* Checks the modes while the owner and a guest have different settings, and after the guest has
 * become the owner. */
static void check_modes_of_two(struct fixture *fixture, bool may_group_read)
{
    struct eb_resident_dir *owner = &fixture->dir;
    struct eb_resident_dir guest;
    struct eb_failure failure = {.text = ""};
    mode_t owner_mode = may_group_read ? 0750 : 0700;
    mode_t guest_mode = may_group_read ? 0700 : 0750;
    assert_true(eb_resident_dir_open(owner, fixture->root, may_group_read, &failure));
    assert_true(eb_resident_dir_has_mode(owner));
    assert_true(eb_resident_dir_open(&guest, fixture->root, !may_group_read, &failure));
    assert_int_equal(read_mode(owner, "."), owner_mode);
    assert_false(eb_resident_dir_has_mode(&guest));
    assert_false(eb_resident_dir_own(&guest));
    assert_int_equal(read_mode(owner, "."), owner_mode);
    eb_resident_dir_close(owner);
    assert_true(eb_resident_dir_own(&guest));
    assert_int_equal(read_mode(&guest, "."), guest_mode);
    assert_true(eb_resident_dir_has_mode(&guest));
    eb_resident_dir_close(&guest);
}

static void only_the_owner_sets_the_mode(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->root[0] == '\0') {
        skip();
    }
    check_modes_of_two(fixture, true);
    check_modes_of_two(fixture, false);
}

static void gives_files_of_an_earlier_owner_its_mode(void **state)
{
    static const char *const names[] = {NAME, "fedcba9876543210.s", "served"};
    struct fixture *fixture = *state;
    struct eb_resident_dir *dir = open_fixture_dir(fixture);
    struct eb_resident_dir guest;
    struct eb_failure failure = {.text = ""};
    make_file(dir, "0000000000000001.t");
    assert_int_equal(fchmodat(dir->descriptor, "0000000000000001.t", 0600, 0), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        make_file(dir, names[i]);
    }
    for (int round = 0; round < 2; round++) {
        mode_t former = round % 2 == 0 ? 0400 : 0440;
        mode_t wanted = round % 2 == 0 ? 0440 : 0400;
        assert_true(eb_resident_dir_open(&guest, fixture->root, wanted == 0440, &failure));
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            assert_int_equal(read_mode(dir, names[i]), former);
        }
        eb_resident_dir_disown(dir);
        assert_true(eb_resident_dir_own(&guest));
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            assert_int_equal(read_mode(dir, names[i]), wanted);
        }
        assert_int_equal(read_mode(dir, "0000000000000001.t"), 0600); /* it may be written */
        assert_int_equal(read_mode(dir, "lock"), 0600);
        eb_resident_dir_close(dir);
        eb_resident_dir_close(&guest);
        assert_true(eb_resident_dir_open(dir, fixture->root, wanted == 0440, &failure));
    }
}

static void has_one_owner(void **state)
{
    struct fixture *fixture = *state;
    struct eb_resident_dir *dir = open_fixture_dir(fixture);
    struct eb_resident_dir guest;
    struct eb_failure failure;
    assert_true(dir->is_owner);
    assert_true(eb_resident_dir_open(&guest, fixture->root, false, &failure));
    assert_false(guest.is_owner);
    assert_false(eb_resident_dir_own(&guest));
    make_file(dir, NAME);
    eb_resident_dir_unlink(&guest, NAME);
    assert_true(has_name(dir, NAME));
    assert_false(eb_resident_dir_write(&guest, "served", "x", 1, &failure));
    assert_non_null(strstr(failure.text, "does not own it"));
    assert_int_equal(eb_resident_dir_sweep(&guest, NULL, NULL), 0);
    assert_true(has_name(dir, NAME));
    eb_resident_dir_disown(dir);
    assert_true(eb_resident_dir_own(&guest));
    assert_true(guest.is_owner);
    assert_in_range(eb_resident_dir_beat_age_s(&guest), 0, 5);
    eb_resident_dir_close(&guest);
}

/* The new owner numbers its files from 0 too. What a process began before it gave up the lock must
 * not end as, or delete, a file of the new owner. */
static void leaves_files_of_the_next_owner_alone(void **state)
{
    struct fixture *fixture = *state;
    struct eb_resident_dir *old = open_fixture_dir(fixture);
    struct eb_resident_dir next;
    struct eb_failure failure;
    char old_tmp[EB_RESIDENT_NAME_BYTES];
    char next_tmp[EB_RESIDENT_NAME_BYTES];
    int old_file = eb_resident_dir_create(old, PAGE, old_tmp, &failure);
    assert_true(old_file >= 0);
    assert_true(eb_resident_dir_open(&next, fixture->root, false, &failure));
    eb_resident_dir_disown(old);
    assert_false(has_name(&next, old_tmp));
    assert_true(eb_resident_dir_own(&next));
    int next_file = eb_resident_dir_create(&next, PAGE, next_tmp, &failure);
    assert_true(next_file >= 0);
    assert_string_equal(next_tmp, old_tmp);
    assert_false(eb_resident_dir_commit(old, old_file, old_tmp, NAME, &failure));
    assert_non_null(strstr(failure.text, "does not own it"));
    assert_false(has_name(&next, NAME));
    eb_resident_dir_unlink(old, old_tmp);
    assert_true(has_name(&next, next_tmp));
    char refused[EB_RESIDENT_NAME_BYTES];
    assert_int_equal(eb_resident_dir_create(old, PAGE, refused, &failure), -1);
    assert_non_null(strstr(failure.text, "does not own it"));
    assert_false(has_name(&next, refused));
    assert_true(eb_resident_dir_commit(&next, next_file, next_tmp, NAME, &failure));
    assert_true(has_name(&next, NAME));
    (void)close(old_file);
    (void)close(next_file);
    eb_resident_dir_close(&next);
}

/* Sets the last heartbeat to `seconds` ago. */
static void age_heartbeat(const struct eb_resident_dir *dir, time_t seconds)
{
    struct timespec times[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
    assert_int_equal(futimens(dir->lock, times), 0);
}

static void only_the_owner_has_a_heartbeat(void **state)
{
    struct fixture *fixture = *state;
    struct eb_resident_dir *dir = open_fixture_dir(fixture);
    struct eb_resident_dir guest;
    struct eb_failure failure;
    assert_true(eb_resident_dir_open(&guest, fixture->root, false, &failure));
    age_heartbeat(dir, 100);
    eb_resident_dir_beat(&guest);
    assert_true(eb_resident_dir_beat_age_s(&guest) >= 100);
    eb_resident_dir_beat(dir);
    assert_true(eb_resident_dir_beat_age_s(&guest) < 100);
    age_heartbeat(dir, -1000); /* the clock was set back */
    assert_int_equal(eb_resident_dir_beat_age_s(&guest), 0);
    eb_resident_dir_close(&guest);
}

#define MAKERS 3
#define MAKER_FILES_MAX 100000 /* of one thread, so that a failing test ends */

/* Makes files until that is refused. */
static void *make_files(void *context)
{
    struct eb_resident_dir *dir = context;
    struct eb_failure failure;
    char tmp[EB_RESIDENT_NAME_BYTES];
    bool is_good = true;
    for (int i = 0; i < MAKER_FILES_MAX && is_good; i++) {
        int descriptor = eb_resident_dir_create(dir, PAGE, tmp, &failure);
        is_good = descriptor >= 0 && eb_resident_dir_commit(dir, descriptor, tmp, NAME, &failure);
        if (descriptor >= 0) {
            (void)close(descriptor);
        }
    }
    return is_good ? context : NULL;
}

static bool note_tmp(void *context, const char *name)
{
    bool *has_tmp = context;
    *has_tmp = *has_tmp || strncmp(name, "tmp-", 4) == 0;
    return true;
}

static void threads_change_nothing_after_the_lock_is_given_up(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    struct eb_failure failure;
    pthread_t threads[MAKERS];
    for (size_t i = 0; i < MAKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, make_files, dir), 0);
    }
    while (atomic_load(&dir->next_number) < MAKERS * 4) {
        (void)sched_yield();
    }
    eb_resident_dir_disown(dir);
    bool has_tmp = false;
    bool is_listed = eb_resident_dir_list(dir, note_tmp, &has_tmp, &failure);
    int rc = unlinkat(dir->descriptor, NAME, 0);
    for (size_t i = 0; i < MAKERS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    assert_true(is_listed);
    assert_false(has_tmp);
    assert_int_equal(rc, 0);
    assert_false(has_name(dir, NAME));
    assert_true(eb_resident_dir_list(dir, note_tmp, &has_tmp, &failure));
    assert_false(has_tmp);
}

static void takes_over_from_a_killed_owner(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->root[0] == '\0') {
        skip();
    }
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char tmp[EB_RESIDENT_NAME_BYTES];
        struct eb_failure failure;
        bool is_good = eb_resident_dir_open(&fixture->dir, fixture->root, false, &failure) &&
                       eb_resident_dir_create(&fixture->dir, PAGE, tmp, &failure) >= 0 &&
                       write(ready[1], "x", 1) == 1;
        for (; is_good;) {
            pause();
        }
        _exit(1);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct eb_resident_dir *dir = open_fixture_dir(fixture);
    assert_false(dir->is_owner);
    assert_true(has_name(dir, "tmp-0"));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(eb_resident_dir_own(dir));
    assert_false(has_name(dir, "tmp-0"));
    (void)close(ready[0]);
    (void)close(ready[1]);
}

static void names_files_by_their_keys(void **state)
{
    (void)state;
    char name[EB_RESIDENT_NAME_BYTES];
    enum eb_resident_kind kind;
    uint64_t key;
    eb_resident_dir_name(EB_RESIDENT_TABLE, KEY, name);
    assert_string_equal(name, NAME);
    eb_resident_dir_name(EB_RESIDENT_SMALL, 1, name);
    assert_string_equal(name, "0000000000000001.s");
    assert_true(eb_resident_dir_parse(name, &kind, &key));
    assert_int_equal(kind, EB_RESIDENT_SMALL);
    assert_int_equal(key, 1);
    static const char *const others[] = {"", "lock", "tmp-1", "0123456789abcdef",
        "0123456789abcdef.", "0123456789abcdef.tt", "0123456789abcde.t", "0123456789abcdef0.t",
        "0123456789ABCDEF.t", "0123456789abcdef/t"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_false(eb_resident_dir_parse(others[i], &kind, &key));
    }
}

static void finds_only_sound_files(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    struct eb_failure failure;
    uint64_t bytes;
    assert_int_equal(eb_resident_dir_find(dir, NAME, &bytes, &failure), -1);
    assert_string_equal(failure.text, "");
    make_file(dir, NAME);
    int descriptor = eb_resident_dir_find(dir, NAME, &bytes, &failure);
    assert_true(descriptor >= 0);
    assert_int_equal(bytes, PAGE);
    struct eb_resident_footer footer;
    assert_int_equal(eb_resident_dir_read_footer(descriptor, bytes, &footer, &failure),
        EB_RESIDENT_FOOTER_DAMAGED);
    (void)close(descriptor);
    assert_int_equal(fchmodat(dir->descriptor, NAME, 0600, 0), 0);
    assert_int_equal(eb_resident_dir_find(dir, NAME, &bytes, &failure), -1);
    assert_non_null(strstr(failure.text, "may be written"));
    assert_int_equal(symlinkat(NAME, dir->descriptor, "link"), 0);
    assert_int_equal(eb_resident_dir_find(dir, "link", &bytes, &failure), -1);
    assert_true(failure.text[0] != '\0');
    assert_int_equal(mkfifoat(dir->descriptor, "fifo", 0400), 0);
    assert_int_equal(eb_resident_dir_find(dir, "fifo", &bytes, &failure), -1);
    assert_non_null(strstr(failure.text, "not a regular file"));
    assert_int_equal(mkdirat(dir->descriptor, "folder", 0500), 0);
    assert_int_equal(eb_resident_dir_find(dir, "folder", &bytes, &failure), -1);
    assert_non_null(strstr(failure.text, "not a regular file"));
}

static void finds_no_file_of_another_user(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    struct eb_failure failure;
    uint64_t bytes;
    make_file(dir, NAME);
    if (fchownat(dir->descriptor, NAME, 12345, 12345, 0) != 0) {
        print_message("only root can give a file to another user\n");
        skip();
    }
    assert_int_equal(eb_resident_dir_find(dir, NAME, &bytes, &failure), -1);
    assert_non_null(strstr(failure.text, "belongs to another user"));
}

static void finds_no_file_with_any_write_bit(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    static const mode_t modes[] = {0600, 0420, 0402};
    struct eb_failure failure;
    uint64_t bytes;
    make_file(dir, NAME);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(fchmodat(dir->descriptor, NAME, modes[i], 0), 0);
        assert_int_equal(eb_resident_dir_find(dir, NAME, &bytes, &failure), -1);
        assert_non_null(strstr(failure.text, "may be written"));
    }
}

static void deletes_a_file_that_cannot_be_named(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    struct eb_failure failure = {.text = ""};
    char tmp[EB_RESIDENT_NAME_BYTES];
    assert_int_equal(mkdirat(dir->descriptor, NAME, 0700), 0);
    int descriptor = eb_resident_dir_create(dir, PAGE, tmp, &failure);
    assert_true(descriptor >= 0);
    assert_true(has_name(dir, tmp));
    assert_false(eb_resident_dir_commit(dir, descriptor, tmp, NAME, &failure));
    assert_true(failure.text[0] != '\0');
    assert_false(has_name(dir, tmp));
    (void)close(descriptor);
}

/* Makes the complete file NAME of one page with a footer, and returns it open. */
static int make_file_with_footer(struct eb_resident_dir *dir)
{
    static const struct eb_resident_table table = {.name = "t",
        .type = EB_F32,
        .storage = EB_STORAGE_F32,
        .rank = 1,
        .dims = {0},
        .row_stride_bytes = 4,
        .chunk_rows = 1};
    struct eb_resident_footer footer = {
        .embag_version = "1.2.3", .source = "/m", .table_count = 1, .tables = &table};
    struct eb_failure failure;
    char tmp[EB_RESIDENT_NAME_BYTES];
    uint64_t bytes;
    int descriptor = eb_resident_dir_create(dir, PAGE, tmp, &failure);
    assert_true(descriptor >= 0);
    uint8_t *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    assert_true(at != MAP_FAILED);
    eb_resident_footer_encode(&footer, at + PAGE);
    assert_int_equal(munmap(at, PAGE), 0);
    assert_true(eb_resident_dir_commit(dir, descriptor, tmp, NAME, &failure));
    (void)close(descriptor);
    descriptor = eb_resident_dir_find(dir, NAME, &bytes, &failure);
    assert_true(descriptor >= 0);
    return descriptor;
}

/* Reads the footer. Expects `error` in the failure's text, or a good footer if it is NULL. */
static void expect_footer(int descriptor, const char *error)
{
    struct eb_resident_footer footer;
    struct eb_failure failure = {.text = ""};
    enum eb_resident_footer_outcome outcome =
        eb_resident_dir_read_footer(descriptor, PAGE, &footer, &failure);
    if (error) {
        assert_int_equal(outcome, EB_RESIDENT_FOOTER_DAMAGED);
        assert_non_null(strstr(failure.text, error));
    } else {
        assert_int_equal(outcome, EB_RESIDENT_FOOTER_GOOD);
        assert_string_equal(footer.tables[0].name, "t");
    }
    eb_resident_footer_deinit(&footer);
}

static ssize_t read_nothing(int file, void *out, size_t bytes, off_t offset)
{
    (void)file;
    (void)out;
    (void)bytes;
    (void)offset;
    return 0;
}

static ssize_t fail_to_read(int file, void *out, size_t bytes, off_t offset)
{
    errno = EIO;
    return read_nothing(file, out, bytes, offset) - 1;
}

/* Reads one byte at a time, and is interrupted in between. */
static ssize_t read_haltingly(int file, void *out, size_t bytes, off_t offset)
{
    static bool is_interrupted;
    is_interrupted = !is_interrupted;
    if (is_interrupted) {
        errno = EINTR;
        return -1;
    }
    return __real_pread(file, out, bytes > 0, offset);
}

static void reads_the_footer_of_a_file(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    int descriptor = make_file_with_footer(dir);
    expect_footer(descriptor, NULL);
    eb_faults.pread = read_haltingly;
    expect_footer(descriptor, NULL);
    eb_faults.pread = read_nothing;
    expect_footer(descriptor, "truncated");
    eb_faults.pread = fail_to_read;
    expect_footer(descriptor, strerror(EIO));
    eb_faults.pread = NULL;
    for (unsigned number = 1; number <= 3; number++) {
        eb_faults_fail_allocation(number);
        expect_footer(descriptor, "memory");
        eb_faults_fail_allocation(0);
    }
    eb_faults_fail_allocation(4);
    expect_footer(descriptor, NULL);
    eb_faults_fail_allocation(0);
    (void)close(descriptor);
}

static void survives_refused_allocations(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    struct eb_failure failure;
    size_t size;
    make_file(dir, NAME);
    assert_true(eb_resident_dir_write(dir, "served", "x", 1, &failure));
    eb_faults_fail_allocation(1);
    assert_false(eb_resident_dir_note_use(dir, NAME));
    assert_null(dir->uses);
    eb_faults_fail_allocation(1);
    assert_null(eb_resident_dir_read(dir, "served", 1, &size, &failure));
    assert_non_null(strstr(failure.text, "memory"));
    eb_faults_fail_allocation(0);
    assert_true(eb_resident_dir_note_use(dir, NAME));
    eb_resident_dir_end_use(dir, NAME);
    assert_false(has_name(dir, NAME));
}

static void finds_truncated_files(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    static const off_t sizes[] = {0, 1, PAGE - 1, PAGE + 1};
    struct eb_failure failure;
    uint64_t bytes;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int descriptor = openat(dir->descriptor, NAME, O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_true(descriptor >= 0);
        assert_int_equal(ftruncate(descriptor, sizes[i]), 0);
        assert_int_equal(fchmod(descriptor, 0400), 0);
        (void)close(descriptor);
        assert_int_equal(eb_resident_dir_find(dir, NAME, &bytes, &failure), -1);
        assert_non_null(strstr(failure.text, "truncated"));
        assert_int_equal(unlinkat(dir->descriptor, NAME, 0), 0);
    }
}

static void counts_starts_that_did_not_serve(void **state)
{
    struct fixture *fixture = *state;
    struct eb_resident_dir *dir = open_fixture_dir(fixture);
    assert_int_equal(eb_resident_dir_begin_start(dir, false), 1);
    assert_int_equal(eb_resident_dir_begin_start(dir, false), 2);
    assert_int_equal(eb_resident_dir_begin_start(dir, false), 3);
    assert_true(has_name(dir, "short-3"));
    assert_false(has_name(dir, "short-2"));
    assert_int_equal(eb_resident_dir_begin_start(dir, true), 3);
    assert_true(has_name(dir, "short-3"));
    eb_resident_dir_end_start(dir);
    assert_false(has_name(dir, "short-3"));
    assert_int_equal(eb_resident_dir_begin_start(dir, true), 1);
    assert_true(has_name(dir, "short-1"));
}

static void make_empty(const struct eb_resident_dir *dir, const char *name)
{
    int descriptor = openat(dir->descriptor, name, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(descriptor >= 0);
    (void)close(descriptor);
}

/* A process that ends while it counts leaves two names, or more after several such ends. */
static void counts_from_the_largest_of_several_counts(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    static const char *const others[] = {"short-0", "short-01", "short-x", "short-4x", "short-",
        "short-1001", "short-99999999999999999999"};
    make_empty(dir, "short-1");
    make_empty(dir, "short-2");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        make_empty(dir, others[i]);
    }
    assert_int_equal(eb_resident_dir_begin_start(dir, false), 3);
    assert_true(has_name(dir, "short-3"));
    assert_false(has_name(dir, "short-1"));
    assert_false(has_name(dir, "short-2"));
    assert_int_equal(eb_resident_dir_begin_start(dir, true), 3);
    assert_true(has_name(dir, "short-3"));
    eb_resident_dir_end_start(dir);
    assert_false(has_name(dir, "short-3"));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_true(has_name(dir, others[i]));
    }
}

static void counts_at_most_a_thousand_starts(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    make_empty(dir, "short-999");
    assert_int_equal(eb_resident_dir_begin_start(dir, false), 1000);
    assert_int_equal(eb_resident_dir_begin_start(dir, false), 1000);
    assert_true(has_name(dir, "short-1000"));
    assert_false(has_name(dir, "short-999"));
}

static bool count_name(void *context, const char *name)
{
    unsigned *count = context;
    (void)name;
    (*count)++;
    return true;
}

/* Names that readdir makes up before it reads the directory. */
static unsigned made_up_names;

struct dirent *__real_readdir(DIR *stream);
struct dirent *__wrap_readdir(DIR *stream);

struct dirent *__wrap_readdir(DIR *stream)
{
    static struct dirent entry = {.d_name = "made-up"};
    if (made_up_names == 0) {
        return __real_readdir(stream);
    }
    made_up_names--;
    return &entry;
}

static void lists_no_more_names_than_its_limit(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    struct eb_failure failure;
    for (unsigned more = 0; more < 2; more++) {
        unsigned listed = 0;
        made_up_names = EB_RESIDENT_NAMES_MAX - 1 + more; /* and `lock` */
        assert_true(eb_resident_dir_list(dir, count_name, &listed, &failure));
        made_up_names = 0;
        assert_int_equal(listed, EB_RESIDENT_NAMES_MAX);
    }
    unsigned listed = 0;
    made_up_names = EB_RESIDENT_NAMES_MAX - 2;
    assert_true(eb_resident_dir_list(dir, count_name, &listed, &failure));
    assert_int_equal(listed, EB_RESIDENT_NAMES_MAX - 1);
}

static void replaces_small_files_at_once(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    struct eb_failure failure;
    size_t size = 0;
    assert_null(eb_resident_dir_read(dir, "served", 100, &size, &failure));
    assert_string_equal(failure.text, "");
    assert_true(eb_resident_dir_write(dir, "served", "first", 5, &failure));
    assert_true(eb_resident_dir_write(dir, "served", "second!", 7, &failure));
    char *text = eb_resident_dir_read(dir, "served", 7, &size, &failure);
    assert_non_null(text);
    assert_int_equal(size, 7);
    assert_memory_equal(text, "second!", 7);
    free(text);
    assert_null(eb_resident_dir_read(dir, "served", 6, &size, &failure));
    assert_non_null(strstr(failure.text, "at most 6 bytes"));
    assert_false(has_name(dir, "tmp-0"));
}

static void writes_empty_markers(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    struct eb_failure failure = {.text = ""};
    size_t size = 1;
    if (!eb_resident_dir_write(dir, "loading-m-1", NULL, 0, &failure)) {
        fail_msg("%s", failure.text);
    }
    void *bytes = eb_resident_dir_read(dir, "loading-m-1", 0, &size, &failure);
    assert_non_null(bytes);
    assert_int_equal(size, 0);
    free(bytes);
}

static void deletes_files_after_their_last_use(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    make_file(dir, NAME);
    assert_true(eb_resident_dir_note_use(dir, NAME));
    assert_true(eb_resident_dir_note_use(dir, NAME));
    eb_resident_dir_end_use(dir, NAME);
    assert_true(has_name(dir, NAME));
    eb_resident_dir_end_use(dir, NAME);
    assert_false(has_name(dir, NAME));
    make_file(dir, NAME);
    assert_true(eb_resident_dir_note_use(dir, NAME));
    dir->is_ending = true;
    eb_resident_dir_end_use(dir, NAME);
    assert_true(has_name(dir, NAME));
}

static bool needs_the_second(void *context, const char *name)
{
    (void)context;
    return strcmp(name, "0000000000000002.t") == 0;
}

static void sweeps_what_nobody_needs(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    struct eb_failure failure;
    make_file(dir, "0000000000000001.t");
    make_file(dir, "0000000000000002.t");
    make_file(dir, "0000000000000003.s");
    assert_true(eb_resident_dir_write(dir, "served", "x", 1, &failure));
    assert_true(eb_resident_dir_note_use(dir, "0000000000000001.t"));
    assert_int_equal(eb_resident_dir_sweep(dir, needs_the_second, NULL), PAGE);
    assert_true(has_name(dir, "0000000000000001.t"));
    assert_true(has_name(dir, "0000000000000002.t"));
    assert_false(has_name(dir, "0000000000000003.s"));
    assert_true(has_name(dir, "served"));
    assert_true(has_name(dir, "lock"));
    assert_true(eb_resident_dir_free_bytes(dir) > 0);
}

static time_t adopting_clock_s;

static int read_adopting_clock(clockid_t clock, struct timespec *out)
{
    (void)clock;
    *out = (struct timespec){.tv_sec = adopting_clock_s};
    return 0;
}

static void expect_adopting_s(struct eb_resident_dir *dir, uint64_t seconds)
{
    assert_int_equal(eb_resident_dir_adopting_ns(dir), seconds * UINT64_C(1000000000));
}

static void adds_up_the_time_in_which_any_thread_adopts(void **state)
{
    struct eb_resident_dir *dir = open_fixture_dir(*state);
    eb_faults.clock_gettime = read_adopting_clock;
    adopting_clock_s = 10;
    expect_adopting_s(dir, 0);
    eb_resident_dir_begin_adopting(dir);
    adopting_clock_s = 12;
    eb_resident_dir_begin_adopting(dir);
    adopting_clock_s = 13;
    expect_adopting_s(dir, 3);
    eb_resident_dir_end_adopting(dir);
    adopting_clock_s = 20;
    eb_resident_dir_end_adopting(dir);
    adopting_clock_s = 100;
    expect_adopting_s(dir, 10);
    eb_resident_dir_begin_adopting(dir);
    adopting_clock_s = 101;
    eb_resident_dir_end_adopting(dir);
    expect_adopting_s(dir, 11);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

EB_TEST_GROUP(resident_dir)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(refuses_wrong_directories),
        WITH_FIXTURE(refuses_what_is_not_its_directory),
        cmocka_unit_test(refuses_a_file_system_on_a_disk),
        WITH_FIXTURE(a_reader_makes_nothing_and_takes_no_lock),
        WITH_FIXTURE(sets_modes_for_a_group_that_may_read),
        WITH_FIXTURE(only_the_owner_sets_the_mode),
        WITH_FIXTURE(gives_files_of_an_earlier_owner_its_mode),
        WITH_FIXTURE(has_one_owner),
        WITH_FIXTURE(leaves_files_of_the_next_owner_alone),
        WITH_FIXTURE(only_the_owner_has_a_heartbeat),
        WITH_FIXTURE(threads_change_nothing_after_the_lock_is_given_up),
        WITH_FIXTURE(takes_over_from_a_killed_owner),
        cmocka_unit_test(names_files_by_their_keys),
        WITH_FIXTURE(finds_only_sound_files),
        WITH_FIXTURE(finds_no_file_of_another_user),
        WITH_FIXTURE(finds_no_file_with_any_write_bit),
        WITH_FIXTURE(finds_truncated_files),
        WITH_FIXTURE(deletes_a_file_that_cannot_be_named),
        WITH_FIXTURE(reads_the_footer_of_a_file),
        WITH_FIXTURE(survives_refused_allocations),
        WITH_FIXTURE(counts_starts_that_did_not_serve),
        WITH_FIXTURE(counts_from_the_largest_of_several_counts),
        WITH_FIXTURE(counts_at_most_a_thousand_starts),
        WITH_FIXTURE(lists_no_more_names_than_its_limit),
        WITH_FIXTURE(replaces_small_files_at_once),
        WITH_FIXTURE(writes_empty_markers),
        WITH_FIXTURE(deletes_files_after_their_last_use),
        WITH_FIXTURE(sweeps_what_nobody_needs),
        WITH_FIXTURE(adds_up_the_time_in_which_any_thread_adopts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
