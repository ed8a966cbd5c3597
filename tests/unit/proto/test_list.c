#include "proto/list.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT 4

struct item {
    int number;
    struct eb_list link;
};

struct fixture {
    struct eb_list list;
    struct eb_list other;
    struct item items[COUNT];
};

static int set_up(void **state)
{
    static struct fixture fixture;
    eb_list_init(&fixture.list);
    eb_list_init(&fixture.other);
    for (int i = 0; i < COUNT; i++) {
        fixture.items[i].number = i;
        eb_list_init(&fixture.items[i].link);
    }
    *state = &fixture;
    return 0;
}

static void push_all(struct fixture *fixture)
{
    for (int i = 0; i < COUNT; i++) {
        eb_list_push(&fixture->list, &fixture->items[i].link);
    }
}

/* Pops all of `list`, and expects its numbers to be the digits of `expected`. */
static void expect_items(struct eb_list *list, const char *expected)
{
    for (; *expected; expected++) {
        struct eb_list *link = eb_list_pop(list);
        assert_non_null(link);
        assert_int_equal(EB_CONTAINER_OF(link, struct item, link)->number, *expected - '0');
        assert_true(eb_list_is_empty(link));
    }
    assert_null(eb_list_pop(list));
    assert_true(eb_list_is_empty(list));
}

static void gives_links_in_the_order_they_came(void **state)
{
    struct fixture *fixture = *state;
    assert_true(eb_list_is_empty(&fixture->list));
    push_all(fixture);
    assert_false(eb_list_is_empty(&fixture->list));
    assert_false(eb_list_is_empty(&fixture->items[2].link));
    expect_items(&fixture->list, "0123");
}

static void loses_a_link_wherever_it_is(void **state)
{
    static const char *const rest[COUNT] = {"123", "023", "013", "012"};
    for (int i = 0; i < COUNT; i++) {
        set_up(state);
        struct fixture *fixture = *state;
        push_all(fixture);
        eb_list_remove(&fixture->items[i].link);
        eb_list_remove(&fixture->items[i].link);
        assert_true(eb_list_is_empty(&fixture->items[i].link));
        expect_items(&fixture->list, rest[i]);
    }
}

static void moves_all_links_behind_those_of_another(void **state)
{
    struct fixture *fixture = *state;
    eb_list_push(&fixture->list, &fixture->items[2].link);
    eb_list_push(&fixture->list, &fixture->items[3].link);
    eb_list_push(&fixture->other, &fixture->items[0].link);
    eb_list_push(&fixture->other, &fixture->items[1].link);
    eb_list_move(&fixture->other, &fixture->list);
    assert_true(eb_list_is_empty(&fixture->list));
    eb_list_move(&fixture->other, &fixture->list);
    expect_items(&fixture->other, "0123");
}

EB_TEST_GROUP(list)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gives_links_in_the_order_they_came, set_up),
        cmocka_unit_test_setup(loses_a_link_wherever_it_is, set_up),
        cmocka_unit_test_setup(moves_all_links_behind_those_of_another, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
