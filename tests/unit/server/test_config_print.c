#include "server/config.h"

#include "tests/lib/test_group.h"
#include "tests/unit/server/config_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* One setting of every kind, and one from every source. */
#define FLAGS                                                                                      \
    "--print-config|--model-repository|/a \"b\" \\ # c|--numa=local|--request-bytes-max|1MiB"
#define VARIABLES "EMBAG_LOOPS=2|EMBAG_LOG_LEVEL=warn|EMBAG_LISTEN=a:1,unix:/x y"
#define YAML "streams_max: 7\nadmin_listen: unix:/admin\nadmin_on_data_port: true\n"

/* Reads the settings. Returns the printed configuration, which the caller frees. */
static char *print(const char *flags, const char *variables)
{
    if (config_fixture_read(flags, variables) != EB_CONFIG_EXIT) {
        fail_msg("%s %s: %s", flags, variables, fixture.said_stderr);
    }
    assert_string_equal(fixture.said_stderr, "");
    eb_config_deinit(&fixture.config);
    char *copy = strdup(fixture.said_stdout);
    assert_non_null(copy);
    return copy;
}

/* Removes the comments after the values, and the line that names the file. */
static void keep_values(char *printed)
{
    char *out = printed;
    for (char *rest = printed, *line; (line = strsep(&rest, "\n"));) {
        char *comment = strstr(line, " # default: ");
        comment = comment ? comment : strstr(line, " # file: ");
        comment = comment ? comment : strstr(line, " # environment ");
        comment = comment ? comment : strstr(line, " # flag ");
        if (!comment || strncmp(line, "# config: ", strlen("# config: ")) == 0) {
            continue;
        }
        *comment = '\n';
        size_t bytes = (size_t)(comment + 1 - line);
        memmove(out, line, bytes);
        out += bytes;
    }
    *out = '\0';
}

static void prints_a_file_that_says_the_same(void **state)
{
    (void)state;
    config_fixture_write_yaml(YAML);
    char *first = print(config_fixture_with_file(FLAGS), VARIABLES);
    config_fixture_write_yaml(first);
    char *second = print(config_fixture_with_file("--print-config"), "");
    keep_values(first);
    keep_values(second);
    assert_string_equal(second, first);
    size_t lines = 0;
    for (const char *at = first; (at = strchr(at, '\n')); at++) {
        lines++;
    }
    assert_int_equal(lines, EB_CONFIG_SETTING_COUNT - 1);
    free(first);
    free(second);
}

static void says_where_each_value_came_from(void **state)
{
    (void)state;
    config_fixture_write_yaml(YAML);
    char *printed = print(config_fixture_with_file(FLAGS), VARIABLES);
    static const char *const wanted[] = {
        "\nmodel_repository: \"/a \\\"b\\\" \\\\ # c\" # flag --model-repository: directory of",
        "\nlisten: [\"a:1\", \"unix:/x y\"] # environment EMBAG_LISTEN: address to serve gRPC on: ",
        "\nadmin_listen: \"unix:/admin\" # file: unix socket that serves embag.v1.ModelAdmin in "
        "addition to everything else (unix:PATH)\n",
        "\nadmin_on_data_port: \"true\" # file: whether ",
        "\n# tls_cert: # default: this server's certificate",
        "\nloops: 2 # environment EMBAG_LOOPS: event loops, one thread each (1..256)\n",
        "\n# isa: # default: instruction set to compute with",
        "\nprefetch: \"auto\" # default: how many rows ahead table rows are prefetched into the "
        "CPU "
        "caches (auto|off|FAR:NEAR:l1|l2)\n",
        "\nlog_level: \"warn\" # environment EMBAG_LOG_LEVEL: lowest level that is logged "
        "(debug|info|warn|error) [live]\n",
        "\nnuma: \"local\" # flag --numa: memory nodes that hold tables",
        "\nrequest_bytes_max: 1048576 # flag --request-bytes-max: bytes of one request message "
        "(1024..268435456 bytes)\n",
        "\nstreams_max: 7 # file: calls open at the same time on one connection (1..65536)\n",
        "\nqueries_max: 4096 # default: queries of one request (1..1048576) [live]\n",
        "\nwatch: \"auto\" # default: how new versions and models, and changes of certificates and "
        "auth_file, are noticed (auto|poll|off) [live]\n",
        "\nconnection_idle_max_ms: 0 # default: time without calls (0..86400000 ms; 0: never) "
        "[live]\n",
        "that stay for versions.keep_s after they are no longer needed (0..65536; 0: no limit) "
        "[live]\n",
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (!strstr(printed, wanted[i])) {
            fail_msg("no '%s' in:\n%s", wanted[i], printed);
        }
    }
    char file[64];
    snprintf(file, sizeof file, "\n# config: \"%s\" # flag --config: ", fixture.file_path);
    assert_non_null(strstr(printed, file));
    free(printed);
}

static void says_what_is_wrong_instead(void **state)
{
    (void)state;
    config_fixture_expect_failure("--print-config", "", "--model-repository is missing");
    assert_string_equal(fixture.said_stdout, "");
    config_fixture_expect_failure(
        "--print-config|--model-repository|/m|--loops|0", "", "--loops 0");
    config_fixture_expect_failure(
        "--model-repository|/m|--print-config=yes", "", "--print-config=yes: no such flag");
}

static void refuses_what_no_file_can_say(void **state)
{
    (void)state;
    static const char *const paths[] = {"/a\nloops: 3", "/\xff", "/\x7f"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char flags[64];
        snprintf(flags, sizeof flags, "--model-repository|%s", paths[i]);
        config_fixture_expect_run(flags, "");
        eb_config_deinit(&fixture.config);
        snprintf(flags, sizeof flags, "--print-config|--model-repository|%s", paths[i]);
        config_fixture_expect_failure(
            flags, "", "model_repository is not UTF-8 or holds a control character");
        assert_string_equal(fixture.said_stdout, "");
    }
}

static void fails_where_it_cannot_write(void **state)
{
    (void)state;
    config_fixture_expect_run("--model-repository|/m", "");
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    struct eb_failure failure;
    assert_false(eb_config_print(&fixture.config, full, &failure));
    fclose(full);
    assert_string_equal(failure.text, "cannot write standard output");
}

EB_TEST_GROUP(config_print)
{
#define WITH_FILE(name)                                                                            \
    cmocka_unit_test_setup_teardown(name, config_fixture_make_file, config_fixture_remove_file)
    const struct CMUnitTest tests[] = {
        WITH_FILE(prints_a_file_that_says_the_same),
        WITH_FILE(says_where_each_value_came_from),
        WITH_FILE(says_what_is_wrong_instead),
        WITH_FILE(refuses_what_no_file_can_say),
        WITH_FILE(fails_where_it_cannot_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
