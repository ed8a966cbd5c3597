#include "server/work/queue.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define BYTES_MAX 10000
#define NOW_NS 5000000

static const char sources[4];
static const struct eb_admission_terms terms = {
    .queue_bytes_max = BYTES_MAX, .bytes_per_us = 2, .now_ns = NOW_NS};
static struct eb_queue queue;
static struct eb_work works[8];
static struct eb_admission told;

static int reset_terms(void **state)
{
    (void)state;
    memset(&queue, 0, sizeof queue);
    return 0;
}

static void push_work(int index, const void *source, unsigned priority, uint64_t bytes)
{
    works[index] = (struct eb_work){.source = source, .priority = priority, .weight_bytes = bytes};
    eb_queue_push(&queue, &works[index]);
}

static enum eb_admit decide(const void *source, unsigned priority, uint64_t bytes)
{
    struct eb_work work = {.source = source, .priority = priority, .weight_bytes = bytes};
    return eb_admission_decide(&queue, &terms, &work, &told);
}

static enum eb_admit decide_repeated(unsigned priority, uint64_t bytes)
{
    struct eb_work work = {.priority = priority, .is_repeated = true, .weight_bytes = bytes};
    return eb_admission_decide(&queue, &terms, &work, &told);
}

static enum eb_admit decide_deadline(const void *source, uint64_t deadline_ns)
{
    struct eb_work work = {.source = source, .weight_bytes = 1, .deadline_ns = deadline_ns};
    return eb_admission_decide(&queue, &terms, &work, &told);
}

static void takes_what_fits_and_nothing_more(void **state)
{
    (void)state;
    push_work(0, NULL, EB_WORK_INTERACTIVE, 4000);
    assert_int_equal(decide(NULL, EB_WORK_INTERACTIVE, 6000), EB_ADMIT_TAKEN);
    assert_int_equal(told.retry_after_ms, 0);
    assert_int_equal(decide(NULL, EB_WORK_INTERACTIVE, 6001), EB_ADMIT_FULL);
    assert_int_equal(decide(NULL, EB_WORK_INTERACTIVE, UINT64_MAX), EB_ADMIT_FULL);
}

static void takes_anything_where_nothing_of_its_priority_waits(void **state)
{
    (void)state;
    assert_int_equal(decide(&sources[0], EB_WORK_BATCH, 2 * BYTES_MAX), EB_ADMIT_TAKEN);
    push_work(0, NULL, EB_WORK_BATCH, BYTES_MAX);
    assert_int_equal(decide(&sources[0], EB_WORK_INTERACTIVE, 2 * BYTES_MAX), EB_ADMIT_TAKEN);
    push_work(1, NULL, EB_WORK_INTERACTIVE, 2 * BYTES_MAX);
    assert_int_equal(decide(&sources[0], EB_WORK_INTERACTIVE, 1), EB_ADMIT_FULL);
    assert_int_equal(decide(&sources[0], EB_WORK_BATCH, 1), EB_ADMIT_FULL);
}

static void refuses_batch_works_first(void **state)
{
    (void)state;
    push_work(0, NULL, EB_WORK_BATCH, 1000);
    assert_int_equal(decide(NULL, EB_WORK_BATCH, 4000), EB_ADMIT_TAKEN);
    assert_int_equal(decide(NULL, EB_WORK_BATCH, 4001), EB_ADMIT_FULL);
    assert_int_equal(decide(NULL, 2, 4001), EB_ADMIT_FULL);
    assert_int_equal(decide(NULL, EB_WORK_INTERACTIVE, 9000), EB_ADMIT_TAKEN);
    /* Batch items have a share of what interactive items leave, which is less now. */
    push_work(1, NULL, EB_WORK_INTERACTIVE, 8000);
    assert_int_equal(decide(NULL, EB_WORK_BATCH, 1000), EB_ADMIT_TAKEN);
    assert_int_equal(decide(NULL, EB_WORK_BATCH, 1001), EB_ADMIT_FULL);
}

static void leaves_room_beside_a_source_that_floods(void **state)
{
    (void)state;
    int count = 0;
    static struct eb_work flood[BYTES_MAX];
    while (decide(&sources[0], EB_WORK_INTERACTIVE, 1) == EB_ADMIT_TAKEN) {
        flood[count] = (struct eb_work){.source = &sources[0], .weight_bytes = 1};
        eb_queue_push(&queue, &flood[count++]);
    }
    assert_int_equal(count, BYTES_MAX * 4 / 5);
    assert_int_equal(decide(&sources[1], EB_WORK_INTERACTIVE, 2000), EB_ADMIT_TAKEN);
    assert_int_equal(decide(&sources[1], EB_WORK_INTERACTIVE, 2001), EB_ADMIT_FULL);
    /* The batch items of the same source have a share of their own, and so do items without a
     * source. */
    assert_int_equal(decide(&sources[0], EB_WORK_BATCH, 2000), EB_ADMIT_TAKEN);
    assert_int_equal(decide(NULL, EB_WORK_INTERACTIVE, 2000), EB_ADMIT_TAKEN);
}

static void refuses_what_cannot_be_begun_before_its_deadline(void **state)
{
    (void)state;
    push_work(0, &sources[0], EB_WORK_INTERACTIVE, 3000);
    /* A new item waits for 1500 us until the 3000 bytes before it are computed. */
    uint64_t begin_ns = NOW_NS + 1500000;
    assert_int_equal(decide_deadline(&sources[0], begin_ns + 1), EB_ADMIT_TAKEN);
    assert_int_equal(decide_deadline(&sources[0], begin_ns), EB_ADMIT_LATE);
    assert_int_equal(told.retry_after_ms, 2);
    assert_int_equal(decide_deadline(&sources[0], 1), EB_ADMIT_LATE);
    assert_int_equal(decide_deadline(&sources[0], 0), EB_ADMIT_TAKEN);
}

static void counts_what_comes_after_a_work_out_of_its_wait(void **state)
{
    (void)state;
    static const struct eb_admission_terms large_terms = {
        .queue_bytes_max = UINT64_C(1) << 40, .bytes_per_us = 1024, .now_ns = NOW_NS};
    push_work(0, &sources[0], EB_WORK_INTERACTIVE, 100 * EB_QUEUE_QUANTUM_BYTES);
    push_work(1, NULL, EB_WORK_BATCH, 100 * EB_QUEUE_QUANTUM_BYTES);
    struct eb_work work = {.source = &sources[1], .weight_bytes = 1};
    /* A work item of a new source waits only for one round of the other source. */
    work.deadline_ns = NOW_NS + EB_QUEUE_QUANTUM_BYTES / 1024 * 1000 + 1;
    assert_int_equal(eb_admission_decide(&queue, &large_terms, &work, &told), EB_ADMIT_TAKEN);
    work.deadline_ns--;
    assert_int_equal(eb_admission_decide(&queue, &large_terms, &work, &told), EB_ADMIT_LATE);
}

static void decides_on_deadlines_however_far_they_are(void **state)
{
    (void)state;
    static const struct eb_admission_terms fast = {
        .queue_bytes_max = UINT64_MAX, .bytes_per_us = UINT64_C(1) << 40, .now_ns = NOW_NS};
    struct eb_work work = {.weight_bytes = 1, .deadline_ns = UINT64_MAX};
    push_work(0, NULL, EB_WORK_INTERACTIVE, UINT64_C(1) << 60);
    assert_int_equal(eb_admission_decide(&queue, &fast, &work, &told), EB_ADMIT_TAKEN);
    work.deadline_ns = NOW_NS + (UINT64_C(1) << 30);
    assert_int_equal(eb_admission_decide(&queue, &fast, &work, &told), EB_ADMIT_TAKEN);
    work.deadline_ns = NOW_NS + (UINT64_C(1) << 29);
    assert_int_equal(eb_admission_decide(&queue, &fast, &work, &told), EB_ADMIT_LATE);
}

static void takes_what_has_expired_where_nothing_waits(void **state)
{
    (void)state;
    assert_int_equal(decide_deadline(NULL, 1), EB_ADMIT_TAKEN);
}

static void says_when_to_come_again(void **state)
{
    (void)state;
    push_work(0, NULL, EB_WORK_INTERACTIVE, 1);
    assert_int_equal(decide(NULL, EB_WORK_INTERACTIVE, BYTES_MAX), EB_ADMIT_FULL);
    assert_int_equal(told.retry_after_ms, 1);
    /* 2000 bytes take a millisecond. */
    push_work(1, NULL, EB_WORK_INTERACTIVE, 8000);
    assert_int_equal(decide(NULL, EB_WORK_INTERACTIVE, BYTES_MAX), EB_ADMIT_FULL);
    assert_int_equal(told.retry_after_ms, 5);
    push_work(2, NULL, EB_WORK_INTERACTIVE, UINT64_C(1) << 62);
    assert_int_equal(decide(NULL, EB_WORK_INTERACTIVE, BYTES_MAX), EB_ADMIT_FULL);
    assert_int_equal(told.retry_after_ms, UINT32_MAX);
}

static void leaves_the_last_quarter_to_first_attempts(void **state)
{
    (void)state;
    assert_int_equal(decide_repeated(EB_WORK_INTERACTIVE, 2 * BYTES_MAX), EB_ADMIT_TAKEN);
    push_work(0, NULL, EB_WORK_INTERACTIVE, 4000);
    assert_int_equal(decide_repeated(EB_WORK_INTERACTIVE, 3500), EB_ADMIT_TAKEN);
    assert_int_equal(decide_repeated(EB_WORK_INTERACTIVE, 3501), EB_ADMIT_FULL);
    assert_int_equal(decide(NULL, EB_WORK_INTERACTIVE, 6000), EB_ADMIT_TAKEN);
    assert_int_equal(decide_repeated(EB_WORK_BATCH, 3501), EB_ADMIT_FULL);
    push_work(1, NULL, EB_WORK_INTERACTIVE, 4000);
    assert_int_equal(decide_repeated(EB_WORK_INTERACTIVE, 1), EB_ADMIT_FULL);
    assert_int_equal(decide(NULL, EB_WORK_INTERACTIVE, 2000), EB_ADMIT_TAKEN);
}

EB_TEST_GROUP(queue_admission)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(takes_what_fits_and_nothing_more, reset_terms),
        cmocka_unit_test_setup(takes_anything_where_nothing_of_its_priority_waits, reset_terms),
        cmocka_unit_test_setup(refuses_batch_works_first, reset_terms),
        cmocka_unit_test_setup(leaves_room_beside_a_source_that_floods, reset_terms),
        cmocka_unit_test_setup(refuses_what_cannot_be_begun_before_its_deadline, reset_terms),
        cmocka_unit_test_setup(counts_what_comes_after_a_work_out_of_its_wait, reset_terms),
        cmocka_unit_test_setup(decides_on_deadlines_however_far_they_are, reset_terms),
        cmocka_unit_test_setup(takes_what_has_expired_where_nothing_waits, reset_terms),
        cmocka_unit_test_setup(says_when_to_come_again, reset_terms),
        cmocka_unit_test_setup(leaves_the_last_quarter_to_first_attempts, reset_terms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
