#include "proto/link/attempt.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void links_attempts_in_order(void **state)
{
    (void)state;
    struct eb_attempt attempts[3] = {0};
    struct eb_attempt_list list;
    eb_attempt_list_init(&list);
    for (int i = 0; i < 3; i++) {
        eb_attempt_list_append(&list, &attempts[i]);
    }
    eb_attempt_list_remove(&list, &attempts[1]);
    assert_ptr_equal(eb_attempt_list_first(&list), &attempts[0]);
    assert_ptr_equal(attempts[0].link.next, &attempts[2].link);
    assert_ptr_equal(eb_attempt_list_last(&list), &attempts[2]);
    assert_ptr_equal(attempts[2].link.previous, &attempts[0].link);
    eb_attempt_list_remove(&list, &attempts[0]);
    eb_attempt_list_remove(&list, &attempts[2]);
    assert_true(eb_list_is_empty(&list.links));
    assert_int_equal(list.count, 0);
}

EB_TEST_GROUP(attempt)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_attempts_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
