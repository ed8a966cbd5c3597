/* Handles: opening them, following what a server publishes, and readers that hang. */
#include "kernels/bag_stream.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"
#include "tests/unit/local/local_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#define DIM EB_LOCAL_FIXTURE_DIM
#define WAIT_STEPS 12000 /* of 5 ms */
#define LINE_BYTES 1024

/* A lookup of this thread that hangs until it is released. */
static _Thread_local bool must_hang;
static sem_t is_hanging;
static sem_t may_go_on;

void __real_eb_bag_stream_pool(
    struct eb_bag_stream *stream, const struct eb_bag_tile *tile, const struct eb_bag_tile *next);
void __wrap_eb_bag_stream_pool(
    struct eb_bag_stream *stream, const struct eb_bag_tile *tile, const struct eb_bag_tile *next);

void __wrap_eb_bag_stream_pool(
    struct eb_bag_stream *stream, const struct eb_bag_tile *tile, const struct eb_bag_tile *next)
{
    if (must_hang) {
        (void)sem_post(&is_hanging);
        (void)sem_wait(&may_go_on);
    }
    __real_eb_bag_stream_pool(stream, tile, next);
}

/* The call that fails while a handle is opened. */
static enum { FAILS_NONE, FAILS_EVENTFD, FAILS_INOTIFY, FAILS_THREAD } failing;

int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags);
int __real_inotify_init1(int flags);
int __wrap_inotify_init1(int flags);
int __real_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context);
int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context);

int __wrap_eventfd(unsigned value, int flags)
{
    errno = EMFILE;
    return failing == FAILS_EVENTFD ? -1 : __real_eventfd(value, flags);
}

int __wrap_inotify_init1(int flags)
{
    errno = EMFILE;
    return failing == FAILS_INOTIFY ? -1 : __real_inotify_init1(flags);
}

int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    return failing == FAILS_THREAD ? EAGAIN
                                   : __real_pthread_create(thread, attributes, run, context);
}

static int tear_down(void **state)
{
    failing = FAILS_NONE;
    return eb_local_host_tear_down(state);
}

/* Looks up row 7 of the large table, in any version if `number` is 0. */
static enum embag_status look_up_row(struct eb_local_host *host, struct embag_local_reader *reader,
    uint64_t number, const struct embag_answer **answer)
{
    static const int64_t row = 7;
    struct embag_query query = {.table = "large", .indices = {&row, 1, 8}, .indices_per_bag = 1};
    struct embag_request request = {
        .model = "m", .version = number, .queries = &query, .query_count = 1};
    return embag_local_lookup(reader, &request, answer, &host->error);
}

/* Checks that an answer is that of the version. */
static void check_answer(const struct embag_answer *answer, uint64_t version)
{
    const float *values = answer->results[0].values;
    assert_int_equal(answer->version, version);
    for (size_t column = 0; column < DIM; column++) {
        assert_true(values[column] == eb_local_fixture_value(version, 7, column));
    }
}

static void check_version(struct eb_local_host *host, uint64_t version)
{
    if (look_up_row(host, host->reader, 0, &host->answer) != EMBAG_OK) {
        fail_msg("%s", host->error.text);
    }
    check_answer(host->answer, version);
}

static void pause_shortly(void)
{
    (void)usleep(5000);
}

/* Waits until lookups are answered by the version. */
static void wait_for_version(struct eb_local_host *host, uint64_t version)
{
    for (unsigned step = 0; step < WAIT_STEPS; step++) {
        assert_int_equal(look_up_row(host, host->reader, 0, &host->answer), EMBAG_OK);
        if (host->answer->version == version) {
            check_version(host, version);
            return;
        }
        pause_shortly();
    }
    fail_msg("version %u was not followed", (unsigned)version);
}

/* Waits until embag_local_check returns the status. */
static void wait_for_check(struct eb_local_host *host, enum embag_status status)
{
    for (unsigned step = 0; step < WAIT_STEPS; step++) {
        if (embag_local_check(host->local, &host->error) == status) {
            return;
        }
        pause_shortly();
    }
    fail_msg("the status stays %d", (int)embag_local_check(host->local, NULL));
}

/* Counts the process's mappings of deleted files of the directory. */
static unsigned count_deleted(const struct eb_local_host *host)
{
    char line[LINE_BYTES];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        count += strstr(line, host->fixture.root) && strstr(line, ".t (deleted)");
    }
    (void)fclose(maps);
    return count;
}

static void wait_for_deleted(const struct eb_local_host *host, unsigned count)
{
    for (unsigned step = 0; step < WAIT_STEPS && count_deleted(host) != count; step++) {
        pause_shortly();
    }
    assert_int_equal(count_deleted(host), count);
}

static void follows_what_is_published(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_host_open(host);
    check_version(host, 1);
    for (uint64_t version = 2; version <= 4; version++) {
        eb_local_fixture_publish(&host->fixture, version, true);
        wait_for_version(host, version);
    }
    wait_for_deleted(host, 0);
    assert_int_equal(embag_local_check(host->local, &host->error), EMBAG_OK);
}

static void answers_for_every_version_in_the_record(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_fixture_publish(&host->fixture, 2, false);
    eb_local_host_open(host);
    check_version(host, 2);
    assert_int_equal(look_up_row(host, host->reader, 1, &host->answer), EMBAG_OK);
    check_answer(host->answer, 1);
    assert_int_equal(look_up_row(host, host->reader, 3, &host->answer), EMBAG_NOT_FOUND);
}

static void keeps_answers_until_the_next_lookup(void **state)
{
    struct eb_local_host *host = *state;
    struct embag_local_reader *other;
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_host_open(host);
    check_version(host, 1);
    const struct embag_answer *before = host->answer;
    assert_int_equal(embag_local_reader_open(host->local, &other, NULL), EMBAG_OK);
    eb_local_fixture_publish(&host->fixture, 2, true);
    do {
        pause_shortly();
        assert_int_equal(look_up_row(host, other, 0, &host->answer), EMBAG_OK);
    } while (host->answer->version != 2);
    wait_for_deleted(host, 0);
    check_answer(before, 1);
    embag_local_reader_close(other);
}

/* A thread whose lookup hangs. */
struct hanging {
    struct embag_local_reader *reader;
    const struct embag_answer *answer;
    enum embag_status status;
};

static void *run_hanging(void *context)
{
    struct hanging *hanging = context;
    struct eb_local_host own = {.error = {.text = ""}};
    must_hang = true;
    hanging->status = look_up_row(&own, hanging->reader, 0, &hanging->answer);
    return NULL;
}

static void a_reader_that_hangs_keeps_one_version(void **state)
{
    struct eb_local_host *host = *state;
    struct hanging hanging = {0};
    pthread_t thread;
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_host_open(host);
    assert_int_equal(sem_init(&is_hanging, 0, 0), 0);
    assert_int_equal(sem_init(&may_go_on, 0, 0), 0);
    assert_int_equal(embag_local_reader_open(host->local, &hanging.reader, NULL), EMBAG_OK);
    assert_int_equal(pthread_create(&thread, NULL, run_hanging, &hanging), 0);
    assert_int_equal(sem_wait(&is_hanging), 0);
    for (uint64_t version = 2; version <= 5; version++) {
        eb_local_fixture_publish(&host->fixture, version, true);
        wait_for_version(host, version);
    }
    wait_for_deleted(host, 1);
    assert_int_equal(sem_post(&may_go_on), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(hanging.status, EMBAG_OK);
    check_answer(hanging.answer, 1);
    wait_for_deleted(host, 0);
    embag_local_reader_close(hanging.reader);
}

/* A thread that looks up until it is told to end. */
struct busy {
    struct embag_local *local;
    atomic_bool is_ending;
    unsigned wrong_count;
    uint64_t last; /* version */
};

static void *run_busy(void *context)
{
    struct busy *busy = context;
    struct eb_local_host own = {.error = {.text = ""}};
    if (embag_local_reader_open(busy->local, &own.reader, NULL) != EMBAG_OK) {
        busy->wrong_count = 1;
        return NULL;
    }
    while (!atomic_load(&busy->is_ending)) {
        bool is_good = look_up_row(&own, own.reader, 0, &own.answer) == EMBAG_OK;
        const float *values = is_good ? own.answer->results[0].values : NULL;
        uint64_t version = is_good ? own.answer->version : 0;
        busy->wrong_count +=
            !is_good || version < busy->last || values[3] != eb_local_fixture_value(version, 7, 3);
        busy->last = version;
    }
    embag_local_reader_close(own.reader);
    return NULL;
}

static void swaps_versions_under_readers(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_host_open(host);
    struct busy busy[2] = {{.local = host->local}, {.local = host->local}};
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_busy, &busy[i]), 0);
    }
    for (uint64_t version = 2; version <= 6; version++) {
        eb_local_fixture_publish(&host->fixture, version, true);
        wait_for_version(host, version);
    }
    for (size_t i = 0; i < 2; i++) {
        atomic_store(&busy[i].is_ending, true);
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(busy[i].wrong_count, 0);
    }
}

static void stays_with_the_old_version_while_the_new_one_is_broken(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_host_open(host);
    eb_local_fixture_record(&host->fixture, true, "00000000000000aa.t");
    wait_for_check(host, EMBAG_FAILED_PRECONDITION);
    assert_non_null(strstr(host->error.text, "00000000000000aa.t"));
    check_version(host, 1);
    eb_local_fixture_record(&host->fixture, true, NULL);
    wait_for_check(host, EMBAG_OK);
    check_version(host, 1);
}

static void refuses_a_version_that_is_not_in_files(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_fixture_record(&host->fixture, false, NULL);
    eb_local_host_open(host);
    assert_int_equal(look_up_row(host, host->reader, 0, &host->answer), EMBAG_FAILED_PRECONDITION);
    assert_string_equal(host->error.text,
        "model \"m\" version 1 has tables that are not in resident files, or is in parts");
}

static void refuses_a_version_in_parts(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    host->fixture.manifest_yaml = "parts: 3\n";
    eb_local_fixture_record(&host->fixture, true, NULL);
    eb_local_host_open(host);
    assert_int_equal(look_up_row(host, host->reader, 0, &host->answer), EMBAG_FAILED_PRECONDITION);
    assert_non_null(strstr(host->error.text, "is in parts"));
}

/* Expects that the directory cannot be opened. */
static void expect_refusal(struct eb_local_host *host, enum embag_status status, const char *text)
{
    assert_int_equal(embag_local_open(host->fixture.root, &host->local, &host->error), status);
    assert_int_equal(host->error.status, status);
    assert_null(host->local);
    if (!strstr(host->error.text, text)) {
        fail_msg("%s", host->error.text);
    }
}

static void says_why_a_directory_cannot_be_opened(void **state)
{
    struct eb_local_host *host = *state;
    assert_int_equal(embag_local_open(NULL, &host->local, NULL), EMBAG_INVALID_ARGUMENT);
    assert_int_equal(
        embag_local_open("/nonexistent/dir", &host->local, NULL), EMBAG_FAILED_PRECONDITION);
    assert_null(host->local);
    if (host->fixture.root[0] == '\0') {
        skip();
    }
    expect_refusal(host, EMBAG_UNAVAILABLE, "no server has published anything yet");
    struct eb_failure failure;
    assert_true(
        eb_resident_dir_write(&host->fixture.dir, EB_SERVED_RECORD_NAME, "embag", 5, &failure));
    expect_refusal(host, EMBAG_FAILED_PRECONDITION, "served");
}

/* Opens the large table's file for writing, as only its owner can. */
static int open_large(const struct eb_local_host *host, char path[EB_SCRATCH_PATH_BYTES])
{
    eb_local_fixture_path(&host->fixture, ".t", path);
    assert_int_equal(chmod(path, 0600), 0);
    int file = open(path, O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    return file;
}

static void close_large(int file, const char *path)
{
    assert_int_equal(close(file), 0);
    assert_int_equal(chmod(path, 0400), 0);
}

static void trusts_no_directory_of_somebody_else(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    const char *path = host->fixture.dir.path;
    assert_int_equal(chmod(path, 0770), 0);
    expect_refusal(host, EMBAG_FAILED_PRECONDITION, "others may write in it");
    assert_int_equal(chmod(path, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
        expect_refusal(host, EMBAG_FAILED_PRECONDITION, "it belongs to user 12345");
        assert_int_equal(chown(path, 0, (gid_t)-1), 0);
    }
    eb_local_host_open(host);
    check_version(host, 1);
}

static void refuses_a_truncated_file(void **state)
{
    struct eb_local_host *host = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    struct stat status;
    eb_local_fixture_publish(&host->fixture, 1, true);
    int file = open_large(host, path);
    assert_int_equal(fstat(file, &status), 0);
    assert_int_equal(ftruncate(file, status.st_size - (2 << 20)), 0);
    close_large(file, path);
    expect_refusal(host, EMBAG_FAILED_PRECONDITION, "no footer");
}

static void refuses_a_file_of_another_layout(void **state)
{
    struct eb_local_host *host = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    struct stat status;
    uint8_t trailer[EB_RESIDENT_TRAILER_BYTES];
    eb_local_fixture_publish(&host->fixture, 1, true);
    int file = open_large(host, path);
    assert_int_equal(fstat(file, &status), 0);
    off_t trailer_at = status.st_size - EB_RESIDENT_TRAILER_BYTES;
    assert_int_equal(pread(file, trailer, sizeof trailer, trailer_at), sizeof trailer);
    uint32_t footer_bytes;
    memcpy(&footer_bytes, trailer + 8, sizeof footer_bytes);
    size_t body_bytes = footer_bytes - sizeof trailer;
    uint8_t *body = malloc(body_bytes);
    assert_non_null(body);
    assert_int_equal(pread(file, body, body_bytes, trailer_at - (off_t)body_bytes), body_bytes);
    trailer[12]++; /* the layout version */
    uint64_t digest = XXH3_64bits_withSeed(trailer + 8, 24, XXH3_64bits(body, body_bytes));
    memcpy(trailer, &digest, sizeof digest);
    free(body);
    assert_int_equal(pwrite(file, trailer, sizeof trailer, trailer_at), sizeof trailer);
    close_large(file, path);
    expect_refusal(host, EMBAG_FAILED_PRECONDITION, "another layout");
}

static void opens_nothing_when_memory_is_short(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    unsigned number = 1;
    for (;; number++) {
        eb_faults_fail_allocation(number);
        enum embag_status status = embag_local_open(host->fixture.root, &host->local, &host->error);
        eb_faults_disarm();
        if (status == EMBAG_OK) {
            break;
        }
        assert_null(host->local);
    }
    assert_true(number > 5);
    eb_faults_fail_allocation(1);
    assert_int_equal(embag_local_reader_open(host->local, &host->reader, &host->error),
        EMBAG_RESOURCE_EXHAUSTED);
    assert_null(host->reader);
}

static void opens_nothing_without_a_thread_or_a_descriptor(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    failing = FAILS_THREAD;
    expect_refusal(host, EMBAG_RESOURCE_EXHAUSTED, "no thread can be started");
    failing = FAILS_EVENTFD;
    expect_refusal(host, EMBAG_RESOURCE_EXHAUSTED, "eventfd: ");
    failing = FAILS_NONE;
    eb_local_host_open(host);
    check_version(host, 1);
}

static void follows_without_inotify(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    failing = FAILS_INOTIFY;
    eb_local_host_open(host);
    eb_local_fixture_publish(&host->fixture, 2, true);
    wait_for_version(host, 2);
}

/* Waits until embag_local_check fails with this part of a text. */
static void wait_for_reason(struct eb_local_host *host, const char *text)
{
    for (unsigned step = 0; step < WAIT_STEPS; step++) {
        if (embag_local_check(host->local, &host->error) != EMBAG_OK &&
            strstr(host->error.text, text)) {
            return;
        }
        pause_shortly();
    }
    fail_msg("%s", host->error.text);
}

static void check_a_new_directory_is_followed(struct eb_local_host *host)
{
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_host_open(host);
    eb_local_fixture_remove(&host->fixture);
    wait_for_reason(host, "no server has published anything yet");
    check_version(host, 1);
    eb_local_fixture_make(&host->fixture);
    eb_local_fixture_publish(&host->fixture, 2, true);
    wait_for_version(host, 2);
    wait_for_check(host, EMBAG_OK);
    wait_for_deleted(host, 0);
    eb_local_fixture_publish(&host->fixture, 3, true);
    wait_for_version(host, 3);
}

static void follows_a_directory_that_is_removed_and_made_again(void **state)
{
    check_a_new_directory_is_followed(*state);
}

static void follows_a_new_directory_without_inotify(void **state)
{
    failing = FAILS_INOTIFY;
    check_a_new_directory_is_followed(*state);
}

static void maps_the_new_files_of_the_same_version(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_host_open(host);
    eb_local_fixture_remove(&host->fixture);
    eb_local_fixture_make(&host->fixture);
    eb_local_fixture_publish(&host->fixture, 1, true);
    wait_for_deleted(host, 0);
    check_version(host, 1);
}

static void follows_no_new_directory_that_others_may_write_in(void **state)
{
    struct eb_local_host *host = *state;
    char path[EB_SCRATCH_PATH_BYTES];
    char new_path[EB_SCRATCH_PATH_BYTES];
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_host_open(host);
    (void)snprintf(path, sizeof path, "%s", host->fixture.dir.path);
    (void)snprintf(new_path, sizeof new_path, "%s/new", host->fixture.root);
    assert_int_equal(mkdir(new_path, 0700), 0);
    assert_int_equal(chmod(new_path, 0770), 0);
    eb_local_fixture_remove(&host->fixture);
    assert_int_equal(rename(new_path, path), 0);
    wait_for_reason(host, "others may write in it");
    check_version(host, 1);
    assert_int_equal(rmdir(path), 0);
    eb_local_fixture_make(&host->fixture);
    eb_local_fixture_publish(&host->fixture, 2, true);
    wait_for_version(host, 2);
    wait_for_check(host, EMBAG_OK);
}

static void lookups_go_on_without_the_server(void **state)
{
    struct eb_local_host *host = *state;
    eb_local_fixture_publish(&host->fixture, 1, true);
    eb_local_host_open(host);
    assert_int_equal(unlinkat(host->fixture.dir.descriptor, EB_SERVED_RECORD_NAME, 0), 0);
    eb_resident_dir_disown(&host->fixture.dir);
    check_version(host, 1);
}

#define WITH_HOST(test) cmocka_unit_test_setup_teardown(test, eb_local_host_set_up, tear_down)

EB_TEST_GROUP(local)
{
    const struct CMUnitTest tests[] = {
        WITH_HOST(follows_what_is_published),
        WITH_HOST(answers_for_every_version_in_the_record),
        WITH_HOST(keeps_answers_until_the_next_lookup),
        WITH_HOST(a_reader_that_hangs_keeps_one_version),
        WITH_HOST(swaps_versions_under_readers),
        WITH_HOST(stays_with_the_old_version_while_the_new_one_is_broken),
        WITH_HOST(refuses_a_version_that_is_not_in_files),
        WITH_HOST(refuses_a_version_in_parts),
        WITH_HOST(says_why_a_directory_cannot_be_opened),
        WITH_HOST(trusts_no_directory_of_somebody_else),
        WITH_HOST(refuses_a_truncated_file),
        WITH_HOST(refuses_a_file_of_another_layout),
        WITH_HOST(opens_nothing_when_memory_is_short),
        WITH_HOST(opens_nothing_without_a_thread_or_a_descriptor),
        WITH_HOST(follows_without_inotify),
        WITH_HOST(follows_a_directory_that_is_removed_and_made_again),
        WITH_HOST(follows_a_new_directory_without_inotify),
        WITH_HOST(maps_the_new_files_of_the_same_version),
        WITH_HOST(follows_no_new_directory_that_others_may_write_in),
        WITH_HOST(lookups_go_on_without_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
