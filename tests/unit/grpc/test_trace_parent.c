#include "proto/trace_parent.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"
#define GOOD "00-" TRACE "-" SPAN "-01"

/* Parses a copy in memory of exactly that size, so that a sanitizer finds reads beyond it. */
static bool parse_bytes(const char *text, size_t size, struct eb_trace_parent *out)
{
    char *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    bool is_good = eb_trace_parent_parse(copy, size, out);
    free(copy);
    return is_good;
}

static bool parse(const char *text, struct eb_trace_parent *out)
{
    return parse_bytes(text, strlen(text), out);
}

static void assert_none(const struct eb_trace_parent *parent)
{
    static const struct eb_trace_parent none;
    assert_memory_equal(parent, &none, sizeof none);
}

static void reads_what_a_caller_says(void **state)
{
    (void)state;
    struct eb_trace_parent parent;
    assert_true(parse(GOOD, &parent));
    assert_string_equal(parent.trace_id, TRACE);
    assert_string_equal(parent.parent_id, SPAN);
    assert_true(parent.is_sampled);
    assert_true(parse("00-" TRACE "-" SPAN "-00", &parent));
    assert_false(parent.is_sampled);
    /* The other flags have no meaning yet. */
    assert_true(parse("00-" TRACE "-" SPAN "-fe", &parent));
    assert_false(parent.is_sampled);
    assert_true(parse("00-" TRACE "-" SPAN "-ff", &parent));
    assert_true(parent.is_sampled);
    assert_true(parse("00-00000000000000000000000000000001-0000000000000001-00", &parent));
    assert_string_equal(parent.parent_id, "0000000000000001");
}

static void reads_of_later_versions_what_it_knows(void **state)
{
    (void)state;
    struct eb_trace_parent parent;
    static const char *const texts[] = {"01-" TRACE "-" SPAN "-01", "cc-" TRACE "-" SPAN "-01-",
        "fe-" TRACE "-" SPAN "-01-what-will-be", "0f-" TRACE "-" SPAN "-09"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_true(parse(texts[i], &parent));
        assert_string_equal(parent.trace_id, TRACE);
        assert_string_equal(parent.parent_id, SPAN);
        assert_true(parent.is_sampled);
    }
}

static void ignores_what_is_malformed(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "00", "00-", "-", GOOD "-", GOOD "0", GOOD " ",
        " " GOOD, "00-" TRACE "-" SPAN "-1", "00-" TRACE "-" SPAN, "00-" TRACE "-" SPAN "-",
        "0-" TRACE "-" SPAN "-01", "000-" TRACE "-" SPAN "-01", "ff-" TRACE "-" SPAN "-01",
        "FF-" TRACE "-" SPAN "-01", "0x-" TRACE "-" SPAN "-01", "01-" TRACE "-" SPAN "-01x",
        "01-" TRACE "-" SPAN "-0x-y", "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
        "00-" TRACE "-00F067AA0BA902B7-01", "00-" TRACE "-" SPAN "-0A", "00_" TRACE "-" SPAN "-01",
        "00-" TRACE "_" SPAN "-01", "00-" TRACE "-" SPAN "_01",
        "00-" TRACE "-\"\n event=forged \"-01", "00-4bf92f3577b34da6a3ce929d0e0e473-" SPAN "-001"};
    struct eb_trace_parent parent;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        memset(&parent, 'x', sizeof parent);
        assert_false(parse(texts[i], &parent));
        assert_none(&parent);
    }
}

static void ignores_every_part_and_every_wrong_byte(void **state)
{
    (void)state;
    struct eb_trace_parent parent;
    size_t size = strlen(GOOD);
    for (size_t count = 0; count < size; count++) {
        assert_false(parse_bytes(GOOD, count, &parent));
        assert_none(&parent);
    }
    for (size_t at = 0; at < size; at++) {
        static const char wrong[] = {'G', 'g', '/', ':', '`', '\0', '\n', '"', (char)0xff};
        for (size_t i = 0; i < sizeof wrong; i++) {
            char text[] = GOOD;
            text[at] = wrong[i];
            assert_false(parse_bytes(text, size, &parent));
            assert_none(&parent);
        }
    }
}

static void writes_what_it_has_read(void **state)
{
    (void)state;
    static const char *const texts[] = {GOOD, "00-" TRACE "-" SPAN "-00"};
    struct eb_trace_parent parent;
    char text[EB_TRACE_PARENT_BYTES];
    for (size_t i = 0; i < 2; i++) {
        assert_true(parse(texts[i], &parent));
        assert_int_equal(eb_trace_parent_format(&parent, text), strlen(texts[i]));
        assert_string_equal(text, texts[i]);
    }
    parent = (struct eb_trace_parent){.is_sampled = false};
    assert_int_equal(eb_trace_parent_format(&parent, text), 0);
    assert_string_equal(text, "");
}

EB_TEST_GROUP(trace_parent)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_a_caller_says),
        cmocka_unit_test(reads_of_later_versions_what_it_knows),
        cmocka_unit_test(ignores_what_is_malformed),
        cmocka_unit_test(writes_what_it_has_read),
        cmocka_unit_test(ignores_every_part_and_every_wrong_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
