#include "client/cli/commands.h"

#include "tests/lib/capture.h"
#include "tests/lib/test_group.h"
#include "tests/unit/client/fake_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define WORDS_MAX 16
#define TEXT_BYTES 4096

static struct fake_server server;

static int start_server(void **state)
{
    (void)state;
    return fake_server_start(&server, FAKE_SERVER_SPEAKS_GRPC, NULL) ? 0 : -1;
}

static int stop_server(void **state)
{
    (void)state;
    return fake_server_stop(&server) ? 0 : -1;
}

/* Runs a command on words separated by "|", with --server in front. Returns its exit status, and in
 * `out` what it wrote to `descriptor`. */
static int run_at(
    char *address, int (*command)(int, char **), const char *line, int descriptor, char *out)
{
    char copy[TEXT_BYTES];
    char *words[WORDS_MAX] = {"command", "--server", address};
    int count = 3;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *rest = copy, *word; (word = strsep(&rest, "|"));) {
        words[count++] = word;
    }
    struct eb_capture capture;
    fflush(stdout);
    eb_capture_start(&capture, descriptor);
    int status = command(count, words);
    fflush(stdout);
    eb_capture_stop(&capture, out, TEXT_BYTES);
    return status;
}

static int run(int (*command)(int, char **), const char *line, int descriptor, char *out)
{
    return run_at(server.address, command, line, descriptor, out);
}

static void prints_an_answer_as_json(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    assert_int_equal(
        run(eb_lookup_command_main, "--model|echo|--table|t|--indices|-5,6|--num-bags=1|--json",
            STDOUT_FILENO, text),
        0);
    static const char expected[] =
        "{\"model\": \"echo\", \"version\": 7, \"results\": [{\"query\": 0, \"type\": \"i64\", "
        "\"shape\": [2], \"missing\": 0, \"values\": [-5, 6]}], \"latency_us\": ";
    assert_memory_equal(text, expected, sizeof expected - 1);
}

static void prints_an_answer_bag_by_bag(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    assert_int_equal(run(eb_lookup_command_main,
                         "--model|echo|--table|t|--indices|-5,6|--num-bags=1", STDOUT_FILENO, text),
        0);
    assert_non_null(strstr(text, "model echo, version 7, "));
    assert_non_null(strstr(text, "t: i64 [2], 0 missing\n     0: -5\n     1: 6\n"));
}

static void asks_for_the_type_of_weights(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    unsigned calls = atomic_load(&server.call_count);
    assert_int_equal(
        run(eb_lookup_command_main,
            "--model|echo|--table|t00|--indices|1|--num-bags=1|--weights=0.5", STDOUT_FILENO, text),
        0);
    assert_int_equal(atomic_load(&server.call_count), calls + 2);
    assert_int_equal(
        run(eb_lookup_command_main,
            "--model|echo|--table|t00|--indices|1|--num-bags=1|--weights=0.5|--weights-type=i8",
            STDERR_FILENO, text),
        2);
    assert_string_equal(text, "embag: --weights 0.5: \"0.5\" is not a number of type i8\n");
}

static void says_what_the_server_refuses(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    char nowhere[] = "127.0.0.1:1";
    assert_int_equal(run(eb_lookup_command_main,
                         "--model|refuse|--table|t|--indices|1|--num-bags=1", STDERR_FILENO, text),
        1);
    assert_string_equal(text, "NOT_FOUND: no such thing\n");
    assert_int_equal(
        run_at(nowhere, eb_lookup_command_main, "--table|t|--indices|1", STDERR_FILENO, text), 1);
    assert_memory_equal(text, "UNAVAILABLE: ", 13);
}

struct server_command {
    int (*command)(int, char **);
    const char *words[4]; /* without --server */
    const char *name;
};

/* Runs a command with --server, unless `address` is NULL. Returns its exit status, and in `out`
 * what it wrote to stderr. */
static int run_about(const struct server_command *command, const char *address, char *out)
{
    char copies[WORDS_MAX][64];
    char *words[WORDS_MAX] = {NULL};
    int count = 0;
    for (; count < 4 && command->words[count]; count++) {
        snprintf(copies[count], sizeof copies[count], "%s", command->words[count]);
        words[count] = copies[count];
    }
    if (address) {
        snprintf(copies[count], sizeof copies[count], "--server=%s", address);
        words[count] = copies[count];
        count++;
    }
    struct eb_capture capture;
    eb_capture_start(&capture, STDERR_FILENO);
    int status = command->command(count, words);
    eb_capture_stop(&capture, out, TEXT_BYTES);
    return status;
}

/* A command about one server must not go to any of several. A wrong address is embag_open's. */
static void wants_one_server_for_what_is_about_a_server(void **state)
{
    (void)state;
    static const struct server_command commands[] = {
        {eb_models_command_main, {"models"}, "models"},
        {eb_models_command_main, {"models", "status"}, "models status"},
        {eb_models_command_main, {"models", "load", "m", "1"}, "models load"},
        {eb_models_command_main, {"models", "serve", "m", "1"}, "models serve"},
        {eb_models_command_main, {"models", "unload", "m", "1"}, "models unload"},
        {eb_settings_command_main, {"settings"}, "settings"},
        {eb_settings_command_main, {"settings", "reload"}, "settings reload"},
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char text[TEXT_BYTES];
        char expected[TEXT_BYTES];
        assert_int_equal(run_about(&commands[i], NULL, text), 2);
        snprintf(expected, sizeof expected, "embag: %s: --server is missing\n", commands[i].name);
        assert_string_equal(text, expected);
        assert_int_equal(run_about(&commands[i], "a:1,b:2", text), 2);
        snprintf(expected, sizeof expected,
            "embag: %s: --server a:1,b:2: expected one server: run the command for each of them\n",
            commands[i].name);
        assert_string_equal(text, expected);
        assert_int_equal(run_about(&commands[i], "a:1,b", text), 1);
        assert_non_null(strstr(text, "invalid address \"b\""));
        /* A path may contain commas. */
        assert_int_equal(run_about(&commands[i], "unix:/nonexistent/a,b", text), 1);
        assert_memory_equal(text, "UNAVAILABLE: ", 13);
    }
}

static void looks_up_at_one_of_several_servers(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    char list[2 * sizeof server.address];
    snprintf(list, sizeof list, "127.0.0.1:1,%s", server.address);
    assert_int_equal(run_at(list, eb_lookup_command_main,
                         "--model|echo|--table|t|--indices|-5,6|--num-bags=1", STDOUT_FILENO, text),
        0);
    assert_non_null(strstr(text, "model echo, version 7, "));
}

static void takes_a_flag_once(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    assert_int_equal(run(eb_lookup_command_main, "--table|t|--indices|1|--offsets|0|--offsets|0",
                         STDERR_FILENO, text),
        2);
    assert_string_equal(text, "embag: --offsets 0: the flag is given twice\n");
}

static void wants_a_traceparent_that_a_server_takes(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    assert_int_equal(run(eb_lookup_command_main, "--table|t|--indices|1|--traceparent|00-4B\n",
                         STDERR_FILENO, text),
        2);
    assert_string_equal(text, "embag: lookup: invalid --traceparent \"00-4B\\x0a\": expected "
                              "00-TRACE-SPAN-FLAGS with 32, "
                              "16 and 2 hexadecimal digits in lower case\n");
    assert_int_equal(run(eb_lookup_command_main,
                         "--model|echo|--table|t00|--indices|1|--num-bags=1|--traceparent|"
                         "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                         STDERR_FILENO, text),
        0);
}

static void wants_a_part_that_a_version_may_have(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    static const struct {
        const char *part;
        const char *error;
    } cases[] = {{"-1", "embag: lookup: invalid --part -1: expected a number from 0 to 4095\n"},
        {"4096", "embag: lookup: invalid --part 4096: expected a number from 0 to 4095\n"},
        {"4294967296",
            "embag: lookup: invalid --part 4294967296: expected a number from 0 to 4095\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "--table|t|--indices|1|--part|%s", cases[i].part);
        assert_int_equal(run(eb_lookup_command_main, line, STDERR_FILENO, text), 2);
        assert_string_equal(text, cases[i].error);
    }
    assert_int_equal(
        run(eb_lookup_command_main, "--model|echo|--table|t00|--indices|1|--num-bags=1|--part|4095",
            STDERR_FILENO, text),
        0);
}

static void wants_a_table_and_indices(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    assert_int_equal(run(eb_lookup_command_main, "--table|t", STDERR_FILENO, text), 2);
    assert_string_equal(text, "embag: lookup: --indices is missing\n");
    assert_int_equal(run(eb_lookup_command_main, "--indices|1", STDERR_FILENO, text), 2);
    assert_string_equal(text, "embag: lookup: --table is missing\n");
}

static void lists_models_in_columns(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    assert_int_equal(run(eb_models_command_main, "--", STDOUT_FILENO, text), 0);
    assert_string_equal(text, "MODEL  VERSION  STATE    TABLE  TYPE  SHAPE      SIZE\n"
                              "echo   2        failed   bro\\x09ken\n"
                              "echo   1        serving  t00    f32   [5, 2, 3]  120 B\n");
}

static void lists_models_as_json(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    assert_int_equal(run(eb_models_command_main, "--json", STDOUT_FILENO, text), 0);
    assert_string_equal(text,
        "{\"models\": [{\"name\": \"echo\", \"served_version\": 1, \"versions\": [{\"version\": 2, "
        "\"serving\": false, \"error\": \"bro\\u0009ken\", \"state\": \"failed\", \"labels\": [], "
        "\"bytes\": 0, \"tables\": [], \"features\": [], \"groups\": []}, {\"version\": 1, "
        "\"serving\": true, \"error\": \"\", "
        "\"state\": \"serving\", \"labels\": [], \"bytes\": 120, \"tables\": [{\"name\": \"t00\", "
        "\"rows\": 5, \"shape\": [2, 3], "
        "\"type\": \"f32\", \"storage\": \"f32\", \"keyed\": false, \"resident_bytes\": 120, "
        "\"digest\": \"0000000000000000\"}], "
        "\"features\": [], \"groups\": []}]}]}\n");
}

EB_TEST_GROUP(lookup_command)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_an_answer_as_json),
        cmocka_unit_test(prints_an_answer_bag_by_bag),
        cmocka_unit_test(asks_for_the_type_of_weights),
        cmocka_unit_test(says_what_the_server_refuses),
        cmocka_unit_test(wants_one_server_for_what_is_about_a_server),
        cmocka_unit_test(looks_up_at_one_of_several_servers),
        cmocka_unit_test(takes_a_flag_once),
        cmocka_unit_test(wants_a_traceparent_that_a_server_takes),
        cmocka_unit_test(wants_a_part_that_a_version_may_have),
        cmocka_unit_test(wants_a_table_and_indices),
        cmocka_unit_test(lists_models_in_columns),
        cmocka_unit_test(lists_models_as_json),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
