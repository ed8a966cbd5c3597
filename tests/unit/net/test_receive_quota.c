#include "server/net/buffer_pool.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define POOL_BYTES (64 * MIB)
#define MESSAGE_BYTES (16 * MIB) /* the largest message that a peer may send */
#define BUFFERS_MAX 1024

struct fixture {
    struct eb_buffer_pool pool;
    struct eb_receive_quota *share;
    size_t count;
    void *buffers[BUFFERS_MAX];
};

static int set_up(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){0};
    eb_buffer_pool_init(&fixture.pool, POOL_BYTES);
    fixture.share = eb_receive_quota_create(&fixture.pool);
    assert_non_null(fixture.share);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_receive_quota_close(fixture->share);
    eb_buffer_pool_deinit(&fixture->pool);
    return 0;
}

static void *take(struct eb_receive_quota *share, size_t bytes)
{
    const struct eb_memory *memory = eb_receive_quota_memory(share);
    return memory->take(memory->context, bytes);
}

static void give(struct eb_receive_quota *share, void *buffer, size_t bytes)
{
    const struct eb_memory *memory = eb_receive_quota_memory(share);
    memory->give(memory->context, buffer, bytes);
}

/* Takes buffers of `bytes` bytes until one is refused. Returns how many bytes are taken. */
static uint64_t take_all(struct fixture *fixture, size_t bytes)
{
    while (fixture->count < BUFFERS_MAX) {
        void *buffer = take(fixture->share, bytes);
        if (!buffer) {
            break;
        }
        fixture->buffers[fixture->count++] = buffer;
    }
    return fixture->count * eb_buffer_pool_rounded(bytes);
}

static void give_all(struct fixture *fixture, size_t bytes)
{
    while (fixture->count > 0) {
        give(fixture->share, fixture->buffers[--fixture->count], bytes);
    }
}

static void leaves_half_to_others(void **state)
{
    struct fixture *fixture = *state;
    static const size_t sizes[] = {65536, 100000, 1 << 20, MESSAGE_BYTES};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t held = take_all(fixture, sizes[i]);
        /* A share may take more as long as it holds no more than what is left in the pool. */
        assert_true(held >= POOL_BYTES / 2 - MESSAGE_BYTES);
        assert_true(held <= POOL_BYTES / 2 + eb_buffer_pool_rounded(sizes[i]));
        assert_int_equal(held, fixture->pool.taken_bytes);
        give_all(fixture, sizes[i]);
        assert_int_equal(fixture->pool.taken_bytes, 0);
    }
}

static void takes_again_what_it_has_given_back(void **state)
{
    struct fixture *fixture = *state;
    take_all(fixture, MIB);
    assert_null(take(fixture->share, MIB));
    give(fixture->share, fixture->buffers[--fixture->count], MIB);
    void *again = take(fixture->share, MIB);
    assert_non_null(again);
    give(fixture->share, again, MIB);
    give_all(fixture, MIB);
}

static void another_takes_the_largest_message_beside_one_that_takes_all(void **state)
{
    struct fixture *fixture = *state;
    take_all(fixture, MIB);
    struct eb_receive_quota *other = eb_receive_quota_create(&fixture->pool);
    assert_non_null(other);
    /* Takes memory as a growing message does: the smaller buffer is given back only once the larger
     * one is filled. */
    void *first = take(other, MESSAGE_BYTES / 4);
    void *whole = take(other, MESSAGE_BYTES);
    assert_non_null(first);
    assert_non_null(whole);
    give(other, first, MESSAGE_BYTES / 4);
    give(other, whole, MESSAGE_BYTES);
    eb_receive_quota_close(other);
    give_all(fixture, MIB);
}

static void gives_back_after_its_end(void **state)
{
    struct fixture *fixture = *state;
    struct eb_receive_quota *share = eb_receive_quota_create(&fixture->pool);
    assert_non_null(share);
    void *first = take(share, 5000);
    void *second = take(share, 1);
    const struct eb_memory *memory = eb_receive_quota_memory(share);
    eb_receive_quota_close(share);
    memory->give(memory->context, first, 5000);
    assert_int_equal(fixture->pool.taken_bytes, 1024);
    memory->give(memory->context, NULL, 0);
    memory->give(memory->context, second, 1);
    assert_int_equal(fixture->pool.taken_bytes, 0);
}

static void refuses_what_the_pool_has_not(void **state)
{
    struct fixture *fixture = *state;
    assert_null(take(fixture->share, POOL_BYTES + 1));
    assert_null(take(fixture->share, SIZE_MAX));
    assert_int_equal(fixture->pool.refusals, 2);
    void *all = take(fixture->share, POOL_BYTES);
    assert_non_null(all);
    assert_null(take(fixture->share, 1));
    assert_int_equal(fixture->pool.refusals, 3);
    give(fixture->share, all, POOL_BYTES);
}

EB_TEST_GROUP(receive_quota)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(leaves_half_to_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_again_what_it_has_given_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            another_takes_the_largest_message_beside_one_that_takes_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gives_back_after_its_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_what_the_pool_has_not, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
