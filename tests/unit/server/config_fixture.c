#include "tests/unit/server/config_fixture.h"

#include "tests/lib/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ARGUMENTS_MAX 48

struct config_fixture fixture;

/* Splits `text` at each '|' into a vector that ends with NULL. Returns the number of pieces. */
static size_t split(const char *text, char *copy, char **vector)
{
    size_t count = 0;
    strcpy(copy, text);
    for (char *rest = copy; rest;) {
        assert_true(count < ARGUMENTS_MAX - 1);
        vector[count++] = strsep(&rest, "|");
    }
    vector[count] = NULL;
    return count;
}

enum eb_config_outcome config_fixture_read(const char *flags, const char *variables)
{
    static char flag_texts[8192];
    static char variable_texts[8192];
    /* The configuration keeps them. */
    static char *arguments[ARGUMENTS_MAX];
    static char *environment[ARGUMENTS_MAX];
    size_t argument_count = 1;
    arguments[0] = "embagd";
    arguments[1] = NULL;
    environment[0] = "PATH=/bin";
    environment[1] = "EMBAGX=1";
    environment[2] = NULL;
    if (*flags) {
        argument_count += split(flags, flag_texts, arguments + 1);
    }
    if (*variables) {
        split(variables, variable_texts, environment + 2);
    }
    struct eb_capture out;
    struct eb_capture error;
    eb_capture_start(&out, STDOUT_FILENO);
    eb_capture_start(&error, STDERR_FILENO);
    enum eb_config_outcome outcome =
        eb_config_read((int)argument_count, arguments, environment, &fixture.config);
    eb_capture_stop(&error, fixture.said_stderr, sizeof fixture.said_stderr);
    eb_capture_stop(&out, fixture.said_stdout, sizeof fixture.said_stdout);
    return outcome;
}

void config_fixture_write_bytes(const char *bytes, size_t byte_count)
{
    FILE *file = fopen(fixture.file_path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, byte_count, file), byte_count);
    assert_int_equal(fclose(file), 0);
}

void config_fixture_write_yaml(const char *yaml)
{
    config_fixture_write_bytes(yaml, strlen(yaml));
}

const char *config_fixture_with_file(const char *flags)
{
    static char all[8192];
    snprintf(all, sizeof all, "--config|%s%s%s", fixture.file_path, *flags ? "|" : "", flags);
    return all;
}

void config_fixture_expect_run(const char *flags, const char *variables)
{
    if (config_fixture_read(flags, variables) != EB_CONFIG_RUN) {
        fail_msg("%s %s: %s", flags, variables, fixture.said_stderr);
    }
    assert_string_equal(fixture.said_stderr, "");
}

void config_fixture_expect_failure(const char *flags, const char *variables, const char *text)
{
    assert_int_equal(config_fixture_read(flags, variables), EB_CONFIG_ERROR);
    if (!strstr(fixture.said_stderr, text)) {
        fail_msg("wanted '%s' in: %s", text, fixture.said_stderr);
    }
    assert_non_null(strstr(fixture.said_stderr, " level=error event=bad_configuration reason="));
    assert_ptr_equal(
        strchr(fixture.said_stderr, '\n'), fixture.said_stderr + strlen(fixture.said_stderr) - 1);
    eb_config_deinit(&fixture.config);
}

int config_fixture_make_file(void **state)
{
    (void)state;
    strcpy(fixture.file_path, "/tmp/embag-test-config-XXXXXX");
    int file = mkstemp(fixture.file_path);
    return file < 0 ? -1 : close(file);
}

int config_fixture_remove_file(void **state)
{
    (void)state;
    eb_config_deinit(&fixture.config);
    return unlink(fixture.file_path);
}
