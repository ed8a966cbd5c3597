#include "server/admin/web_answer.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct eb_web_facts facts = {.version = "1.2.3", .build = "optimised", .isa = "avx2"};
static const struct eb_stats stats = {.phase = EB_STATS_SERVING};

static struct eb_web_answer answer_at(const char *path, enum eb_stats_phase phase)
{
    enum eb_web_path found = eb_web_path_find(path);
    assert_int_not_equal(found, EB_WEB_PATH_COUNT);
    return eb_web_answer_make(found, &facts, phase, NULL,
        eb_web_path_need(found) != EB_WEB_NEEDS_NOTHING ? &stats : NULL);
}

static void expect_answer(const char *path, unsigned code, const char *type, const char *text)
{
    struct eb_web_answer answer = answer_at(path, EB_STATS_SERVING);
    assert_int_equal(answer.code, code);
    assert_string_equal(answer.type, type);
    assert_true(answer.size >= strlen(text));
    assert_memory_equal(answer.text, text, strlen(text));
    eb_web_answer_deinit(&answer);
    eb_web_answer_deinit(&answer);
}

static void answers_every_path(void **state)
{
    (void)state;
    expect_answer("/", 200, "text/html; charset=utf-8", "<!DOCTYPE html>");
    expect_answer("/healthz", 200, "text/plain; charset=utf-8", "ok\n");
    expect_answer("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "# HELP embag_");
    expect_answer("/readyz", 200, "text/plain; charset=utf-8", "ready\n");
    expect_answer("/status.json", 200, "application/json", "{");
    expect_answer("/version", 200, "application/json",
        "{\"version\": \"1.2.3\", \"build\": \"optimised\", \"isa\": \"avx2\"}\n");
}

static void knows_no_other_path(void **state)
{
    (void)state;
    static const char *const others[] = {
        "", "//", "/metrics/", "/Metrics", "/metric", "/metricss", "/../metrics", "*"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(eb_web_path_find(others[i]), EB_WEB_PATH_COUNT);
    }
    struct eb_web_answer answer = eb_web_answer_no_path();
    assert_int_equal(answer.code, 404);
    assert_non_null(strstr(answer.text, "\n/\n/healthz\n/metrics\n/readyz\n/status.json\n"));
    eb_web_answer_deinit(&answer);
}

static void is_ready_while_it_serves(void **state)
{
    (void)state;
    struct eb_web_answer answer = answer_at("/readyz", EB_STATS_LOADING);
    assert_int_equal(answer.code, 503);
    assert_string_equal(answer.text, "loading\n");
    answer = answer_at("/readyz", EB_STATS_DRAINING);
    assert_int_equal(answer.code, 503);
    assert_string_equal(answer.text, "draining\n");
}

static void says_why_a_part_server_is_not_ready(void **state)
{
    (void)state;
    static const enum eb_stats_phase phases[] = {EB_STATS_LOADING, EB_STATS_SERVING};
    for (size_t i = 0; i < 2; i++) {
        struct eb_web_answer answer =
            eb_web_answer_make(EB_WEB_READYZ, &facts, phases[i], "version 7 is absent", NULL);
        assert_int_equal(answer.code, 503);
        assert_string_equal(answer.text, "version 7 is absent\n");
        assert_int_equal(answer.size, strlen(answer.text));
        eb_web_answer_deinit(&answer);
    }
    struct eb_web_answer answer =
        eb_web_answer_make(EB_WEB_READYZ, &facts, EB_STATS_DRAINING, "version 7 is absent", NULL);
    assert_string_equal(answer.text, "draining\n");
}

/* The page must work under its content security policy, which forbids everything from elsewhere. */
static void holds_a_page_that_needs_nothing_else(void **state)
{
    (void)state;
    char *page = strndup((const char *)eb_status_page, eb_status_page_bytes);
    assert_non_null(page);
    assert_int_equal(strlen(page), eb_status_page_bytes);
    assert_null(strstr(page, " src=\"http"));
    assert_null(strstr(page, " href=\"http"));
    assert_null(strstr(page, "@import"));
    free(page);
}

static void suspects_names_that_strangers_may_own(void **state)
{
    (void)state;
    static const char *const own[] = {NULL, "", "127.0.0.1", "127.0.0.1:8601", "10.1.2.3:80",
        "[::1]", "[::1]:8601", "[fe80::1]:1", "localhost", "localhost:8601", "LOCALHOST.",
        "embag.localhost:8601", "embag.LocalHost", "embag", "embag:8601", "host-1:8601"};
    static const char *const strange[] = {"evil.example", "evil.example:8601", "evil.example.",
        "127.0.0.1.evil.example", "localhost.evil.example:8601", "1.2.3.4a", "a.b:1",
        "notlocalhost.example", ".localhost.x", "xn--e1awd7f.com"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        assert_false(eb_web_answer_suspects_host(own[i]));
    }
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        assert_true(eb_web_answer_suspects_host(strange[i]));
    }
}

EB_TEST_GROUP(web_answer)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_every_path),
        cmocka_unit_test(knows_no_other_path),
        cmocka_unit_test(is_ready_while_it_serves),
        cmocka_unit_test(says_why_a_part_server_is_not_ready),
        cmocka_unit_test(holds_a_page_that_needs_nothing_else),
        cmocka_unit_test(suspects_names_that_strangers_may_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
