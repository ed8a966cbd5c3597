#include "server/stats/process_usage.h"

#include "tests/lib/test_group.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#define SOME_BYTES ((size_t)64 << 20)

static void tells_what_the_process_uses(void **state)
{
    (void)state;
    struct eb_process_usage usage;
    struct rlimit limit;
    eb_process_usage_read(&usage);
    assert_true(usage.cpu_seconds > 0);
    assert_true(usage.resident_bytes >= 1 << 20 && usage.resident_bytes <= usage.virtual_bytes);
    assert_true(usage.threads >= 1);
    assert_true(usage.open_files >= 3);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(usage.open_files_max, limit.rlim_cur);
}

static void counts_descriptors_one_by_one(void **state)
{
    (void)state;
    struct eb_process_usage before;
    struct eb_process_usage after;
    eb_process_usage_read(&before);
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    eb_process_usage_read(&after);
    close(file);
    assert_int_equal(after.open_files, before.open_files + 1);
}

static void sees_memory_come_and_go(void **state)
{
    (void)state;
    struct eb_process_usage before;
    struct eb_process_usage after;
    eb_process_usage_read(&before);
    char *bytes = malloc(SOME_BYTES);
    assert_non_null(bytes);
    memset(bytes, 1, SOME_BYTES);
    eb_process_usage_read(&after);
    free(bytes);
    assert_true(after.resident_bytes >= before.resident_bytes + SOME_BYTES / 2);
}

static void wait_for_end(void *mutex)
{
    uv_mutex_lock(mutex);
    uv_mutex_unlock(mutex);
}

static void counts_threads_whatever_the_name_is(void **state)
{
    (void)state;
    struct eb_process_usage before;
    struct eb_process_usage after;
    uv_thread_t threads[2]; /* with the first one, a sanitizer may start a thread of its own */
    uv_mutex_t mutex;
    assert_int_equal(prctl(PR_SET_NAME, "a) S 1 2 3 (b"), 0);
    assert_int_equal(uv_mutex_init(&mutex), 0);
    uv_mutex_lock(&mutex);
    assert_int_equal(uv_thread_create(&threads[0], wait_for_end, &mutex), 0);
    eb_process_usage_read(&before);
    assert_int_equal(uv_thread_create(&threads[1], wait_for_end, &mutex), 0);
    eb_process_usage_read(&after);
    uv_mutex_unlock(&mutex);
    uv_thread_join(&threads[0]);
    uv_thread_join(&threads[1]);
    uv_mutex_destroy(&mutex);
    assert_int_equal(after.threads, before.threads + 1);
}

EB_TEST_GROUP(process_usage)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_what_the_process_uses),
        cmocka_unit_test(counts_descriptors_one_by_one),
        cmocka_unit_test(sees_memory_come_and_go),
        cmocka_unit_test(counts_threads_whatever_the_name_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
