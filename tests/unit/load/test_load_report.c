#include "client/cli/load_report.h"
#include "client/cli/load_report_keys.h"

#include "tests/lib/test_group.h"
#include "tests/unit/load/load_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct told {
    struct eb_load_options options;
    struct eb_load_target target;
    struct eb_load_pool pool;
    struct eb_load_subject subject;
    struct eb_load_result result;
};

/* Makes a result of ten answers, of 1 to 10 ms, in two seconds, and an error. */
static struct told *make_told(const char *words)
{
    struct told *told = calloc(1, sizeof *told);
    assert_non_null(told);
    load_fixture_make(&told->options, &told->target, &told->pool, words);
    told->subject = (struct eb_load_subject){&told->options, &told->target, &told->pool};
    told->result.seconds = 2;
    told->result.rate = told->options.rate;
    struct eb_load_stats *stats = &told->result.stats;
    for (uint64_t ms = 1; ms <= 10; ms++) {
        eb_load_histogram_add(&stats->latency, ms * 1000000);
    }
    stats->by_status[0] = 10;
    stats->by_status[EMBAG_UNAVAILABLE] = 1;
    eb_load_histogram_add(&stats->unanswered, 1000000000);
    stats->answer_bytes = 480;
    stats->queue_us = 1250;
    stats->compute_us = 30;
    stats->window_answers = 8;
    stats->window_good = 4;
    stats->first_error = (struct embag_error){.status = EMBAG_UNAVAILABLE, .text = "gone \033[m"};
    return told;
}

static void free_told(struct told *told)
{
    eb_load_pool_deinit(&told->pool);
    eb_load_target_deinit(&told->target);
    free(told);
}

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) {
        fail_msg("%s is not there", key);
    }
    return json_number_value(value);
}

static void gives_figures_and_settings_as_json(void **state)
{
    (void)state;
    struct told *told = make_told("--tables a,b --rate 100 --deadline-us 5000");
    json_t *object = eb_load_report_json(&told->subject, &told->result);
    assert_non_null(object);
    assert_true(number_at(object, "requests_per_s") == 4);
    assert_true(number_at(object, "goodput_per_s") == 2);
    assert_true(number_at(object, "errors") == 1);
    assert_true(number_at(object, "requests") == 11);
    assert_true(number_at(object, "answers") == 10);
    assert_in_range((unsigned)number_at(object, "p50_us"), 6000, 6060);
    assert_true(number_at(object, "p99_us") == 1000000);
    assert_true(number_at(object, "max_us") == 1000000);
    assert_true(number_at(object, "mean_us") == 5500);
    assert_true(number_at(object, "answered_p99_us") == 10000);
    assert_true(number_at(object, "answer_bytes") == 48);
    assert_true(number_at(object, "queue_us") == 125);
    assert_true(number_at(object, "compute_us") == 3);
    assert_true(number_at(object, "rate") == 100);
    assert_true(number_at(object, "deadline_us") == 5000);
    assert_true(number_at(json_object_get(object, "errors_by_code"), "UNAVAILABLE") == 1);
    assert_string_equal(json_string_value(json_object_get(object, "arrival")), "open");
    assert_string_equal(json_string_value(json_object_get(object, "mode")), "stream");
    assert_true(json_is_null(json_object_get(object, "workload")));
    json_decref(object);
    free_told(told);
}

static const char *fact_of(const json_t *facts, const char *name)
{
    return json_string_value(json_object_get(facts, name));
}

static bool has_type(const json_t *value, const char *types)
{
    switch (json_typeof(value)) {
    case JSON_STRING: return strncmp(types, "string", 6) == 0;
    case JSON_NULL: return strcmp(types, "string or null") == 0;
    case JSON_INTEGER: return strcmp(types, "integer") == 0;
    case JSON_REAL: return strcmp(types, "number") == 0;
    case JSON_TRUE:
    case JSON_FALSE: return strcmp(types, "boolean") == 0;
    case JSON_OBJECT: return strcmp(types, "object") == 0;
    case JSON_ARRAY: return strcmp(types, "array") == 0;
    }
    return false;
}

/* Every key of a report is described. A run's report has all of them except those of a sweep. */
static void describes_the_keys_of_a_report(void **state)
{
    (void)state;
    struct told *told = make_told("--tables a,b --rate 100");
    json_t *object = eb_load_report_json(&told->subject, &told->result);
    json_t *keys = eb_load_report_keys_json();
    assert_non_null(object);
    assert_non_null(keys);
    const char *key;
    json_t *facts;
    json_object_foreach(keys, key, facts)
    {
        const json_t *value = json_object_get(object, key);
        assert_true(strlen(fact_of(facts, "description")) > 0);
        if (strcmp(fact_of(facts, "kind"), "sweep") == 0) {
            assert_null(value);
        } else if (!value || !has_type(value, fact_of(facts, "type"))) {
            fail_msg("%s is not there, or not of type %s", key, fact_of(facts, "type"));
        }
    }
    const json_t *value;
    json_object_foreach(object, key, value)
    {
        if (!json_object_get(keys, key)) {
            fail_msg("%s is not described", key);
        }
    }
    json_decref(keys);
    json_decref(object);
    free_told(told);
}

static char *print_told(const struct told *told)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    eb_load_report_subject(out, &told->subject);
    eb_load_report_result(out, &told->subject, &told->result);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void assert_contains(const char *text, const char *what)
{
    if (!strstr(text, what)) {
        fail_msg("no \"%s\" in:\n%s", what, text);
    }
}

static void tells_people_what_was_measured(void **state)
{
    (void)state;
    struct told *told = make_told("--tables a,b --in-flight 3");
    char *text = print_told(told);
    assert_contains(text, "model m, version 9: 2 tables, 1 bag of each");
    assert_contains(text, "closed load, 3 in flight");
    assert_contains(text, "4.0 answers/s in 2.00 s; 11 requests, 1 error");
    assert_contains(text, "UNAVAILABLE: 1");
    assert_contains(text, "latency of all requests due: p50 60");
    assert_contains(text, "p99 1000000, p99.9 1000000, max 1000000 us");
    assert_contains(text, "requests without an answer: 1; each counts with 1000000 us or more");
    assert_contains(text, "of answers only: mean 5500 us, p99 10000");
    assert_contains(text, "the first: gone \\x1b[m");
    assert_contains(text, "48 bytes of values per answer");
    assert_contains(text, "at the server, mean: 125 us before pooling, 3 us pooling");
    assert_null(strstr(text, "WRONG"));
    assert_null(strstr(text, "interrupted"));
    free(text);
    free_told(told);
}

static void tells_how_tables_were_asked_for(void **state)
{
    (void)state;
    static const char *const words[] = {
        "--tables a,b", "--tables a,b --groups --priority batch --unpaced"};
    for (unsigned i = 0; i < 2; i++) {
        struct told *told = make_told(words[i]);
        json_t *object = eb_load_report_json(&told->subject, &told->result);
        assert_non_null(object);
        assert_int_equal(json_is_true(json_object_get(object, "groups")), i);
        assert_int_equal(json_is_true(json_object_get(object, "unpaced")), i);
        assert_string_equal(json_string_value(json_object_get(object, "priority")),
            i == 0 ? "interactive" : "batch");
        json_decref(object);
        char *text = print_told(told);
        assert_contains(text, i == 0 ? "2 tables, 1 bag" : "2 tables as one group, 1 bag");
        assert_contains(
            text, i == 0 ? "stream, 1 conn" : "stream, batch priority, unpaced, 1 conn");
        free(text);
        free_told(told);
    }
}

/* Adds a second server, which is not connected, and gives both a share. */
static void add_servers(struct told *told)
{
    told->result.servers = (struct eb_load_servers){.resends = 3,
        .hedges = 10,
        .hedges_won = 4,
        .count = 2,
        .items = {{.address = "127.0.0.1:8600", .sent = 30, .is_connected = true},
            {.address = "unix:/a\033", .sent = 10, .failed = 7, .left_out = 1}}};
}

static void tells_what_each_server_was_sent(void **state)
{
    (void)state;
    struct told *told = make_told("--tables a,b --retries 2 --hedge 5");
    add_servers(told);
    char *text = print_told(told);
    assert_contains(text, "stream, 1 connection, 2 retries, hedges for 5 %, closed load");
    assert_contains(text, "server 127.0.0.1:8600: 75.0 % of all requests sent, 0 failed, "
                          "left out 0 times, connected\n");
    assert_contains(text, "server unix:/a\\x1b: 25.0 % of all requests sent, 7 failed, "
                          "left out 1 time, not connected\n"
                          "resends 3, hedges 10 (4 won)\n");
    free(text);
    json_t *object = eb_load_report_json(&told->subject, &told->result);
    const json_t *servers = json_object_get(object, "servers");
    assert_int_equal(json_array_size(servers), 2);
    const json_t *second = json_array_get(servers, 1);
    assert_string_equal(json_string_value(json_object_get(second, "address")), "unix:/a\033");
    assert_true(number_at(second, "sent") == 10);
    assert_true(number_at(second, "share") == 25);
    assert_true(number_at(second, "failed") == 7);
    assert_true(number_at(second, "left_out") == 1);
    assert_true(json_is_false(json_object_get(second, "connected")));
    assert_int_equal(json_object_size(second), 6);
    assert_true(number_at(object, "resends") == 3);
    assert_true(number_at(object, "hedges") == 10);
    assert_true(number_at(object, "hedges_won") == 4);
    assert_true(number_at(object, "retries") == 2);
    assert_true(number_at(object, "hedge") == 5);
    json_decref(object);
    free_told(told);
}

static void says_nothing_about_a_single_server_but_resends(void **state)
{
    (void)state;
    struct told *told = make_told("--tables a,b");
    add_servers(told);
    told->result.servers.count = 1;
    char *text = print_told(told);
    assert_null(strstr(text, "server 127"));
    assert_contains(text, "resends 3");
    free(text);
    told->result.servers.resends = 0;
    text = print_told(told);
    assert_null(strstr(text, "resends"));
    assert_null(strstr(text, "retries"));
    free(text);
    free_told(told);
}

static void tells_people_what_went_wrong(void **state)
{
    (void)state;
    struct told *told = make_told("--tables a,b --verify --rate 10 --deadline-us 7");
    told->result.stats.wrong_count = 3;
    told->result.stats.unsent_count = 6;
    told->result.was_interrupted = true;
    char *text = print_told(told);
    assert_contains(text, "WRONG answers: 3");
    assert_contains(text, "requests that were due and never sent: 6; ");
    assert_contains(text, "withheld");
    assert_contains(text, "interrupted");
    assert_contains(text, "within 7 us: 2.0 answers/s");
    free(text);
    free_told(told);
}

static void tells_people_when_requests_were_sent_late(void **state)
{
    (void)state;
    struct told *told = make_told("--tables a,b --rate 10");
    eb_load_histogram_add(&told->result.stats.late, 900000);
    char *text = print_told(told);
    assert_null(strstr(text, "the client is too slow"));
    free(text);
    eb_load_histogram_add(&told->result.stats.late, 5000000);
    eb_load_histogram_add(&told->result.stats.late, 5000000);
    text = print_told(told);
    assert_contains(text, "the client is too slow");
    free(text);
    free_told(told);
}

EB_TEST_GROUP(load_report)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_figures_and_settings_as_json),
        cmocka_unit_test(describes_the_keys_of_a_report),
        cmocka_unit_test(tells_people_what_was_measured),
        cmocka_unit_test(tells_how_tables_were_asked_for),
        cmocka_unit_test(tells_what_each_server_was_sent),
        cmocka_unit_test(says_nothing_about_a_single_server_but_resends),
        cmocka_unit_test(tells_people_what_went_wrong),
        cmocka_unit_test(tells_people_when_requests_were_sent_late),
    };
    return cmocka_run_group_tests_name("load_report", tests, NULL, NULL);
}
