/* The texts that choose a server's part. */
#include "server/part_choice.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void assert_part(const char *text, const char *host, uint32_t part, uint32_t parts)
{
    struct eb_part_choice choice;
    struct eb_failure failure;
    if (!eb_part_choice_read_on(text, host, &choice, &failure)) {
        fail_msg("%s", failure.text);
    }
    assert_int_equal(choice.part, part);
    assert_int_equal(choice.parts, parts);
}

static void assert_no_part(const char *text, const char *host, const char *what)
{
    struct eb_part_choice choice;
    struct eb_failure failure;
    assert_false(eb_part_choice_read_on(text, host, &choice, &failure));
    assert_non_null(strstr(failure.text, what));
}

static void reads_numbers(void **state)
{
    (void)state;
    assert_part("0/1", "", 0, 1);
    assert_part("3/16", "pod-9", 3, 16);
    assert_part("4095/4096", "", 4095, 4096);
}

static void takes_the_number_of_the_host(void **state)
{
    (void)state;
    assert_part("hostname/4", "embag-parts-0", 0, 4);
    assert_part("hostname/4", "embag-parts-7", 3, 4);
    assert_part("hostname/4", "12", 0, 4);
    assert_part("hostname/1", "a1b20", 0, 1);
    assert_part("hostname/1000", "node-999999123", 123, 1000);
    assert_part("hostname/4", "embag-parts-7.embag.default.svc.cluster.local", 3, 4);
}

static void refuses_other_texts(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "/", "1", "1/", "/3", "3/3", "0/0", "0/4097", "-1/3",
        "+1/3", " 1/3", "1/3 ", "1/3/4", "host/3", "hostname", "hostname/", "hostname/0",
        "1000000000/3", "0/1000000000", "0x1/3"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_no_part(texts[i], "pod-1", "expected K/P or hostname/P");
    }
}

static void refuses_a_host_without_a_number(void **state)
{
    (void)state;
    assert_no_part("hostname/3", "server", "'server'");
    assert_no_part("hostname/3", "", "''");
    assert_no_part("hostname/3", "pod-3a", "'pod-3a'");
    assert_no_part("hostname/3", "pod.domain-3", "'pod.domain-3'");
    assert_no_part("hostname/3", "node-1000000001", "at most 9 digits");
}

EB_TEST_GROUP(part_choice)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_numbers),
        cmocka_unit_test(takes_the_number_of_the_host),
        cmocka_unit_test(refuses_other_texts),
        cmocka_unit_test(refuses_a_host_without_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
