#include "tests/unit/server/config_trial.h"

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

struct config_trial trial;

/* The pieces of `text` between '|' as a vector that NULL ends. */
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

enum eb_config_outcome config_trial_read(const char *flags, const char *variables)
{
    static char flag_texts[8192];
    static char variable_texts[8192];
    char *arguments[ARGUMENTS_MAX] = {"embagd"};
    char *environment[ARGUMENTS_MAX] = {"PATH=/bin", "EMBAGX=1"};
    size_t argument_count = 1;
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
        eb_config_read((int)argument_count, arguments, environment, &trial.config);
    eb_capture_stop(&error, trial.said_stderr, sizeof trial.said_stderr);
    eb_capture_stop(&out, trial.said_stdout, sizeof trial.said_stdout);
    return outcome;
}

void config_trial_write_bytes(const char *bytes, size_t byte_count)
{
    FILE *file = fopen(trial.file_path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, byte_count, file), byte_count);
    assert_int_equal(fclose(file), 0);
}

void config_trial_write_yaml(const char *yaml)
{
    config_trial_write_bytes(yaml, strlen(yaml));
}

const char *config_trial_with_file(const char *flags)
{
    static char all[8192];
    snprintf(all, sizeof all, "--config|%s%s%s", trial.file_path, *flags ? "|" : "", flags);
    return all;
}

void config_trial_expect_run(const char *flags, const char *variables)
{
    if (config_trial_read(flags, variables) != EB_CONFIG_RUN) {
        fail_msg("%s %s: %s", flags, variables, trial.said_stderr);
    }
    assert_string_equal(trial.said_stderr, "");
}

void config_trial_expect_fault(const char *flags, const char *variables, const char *text)
{
    assert_int_equal(config_trial_read(flags, variables), EB_CONFIG_FAULT);
    if (!strstr(trial.said_stderr, text)) {
        fail_msg("wanted '%s' in: %s", text, trial.said_stderr);
    }
    assert_non_null(strstr(trial.said_stderr, " level=error event=bad_configuration reason="));
    assert_ptr_equal(
        strchr(trial.said_stderr, '\n'), trial.said_stderr + strlen(trial.said_stderr) - 1);
    eb_config_deinit(&trial.config);
}

int config_trial_make_file(void **state)
{
    (void)state;
    strcpy(trial.file_path, "/tmp/embag-test-config-XXXXXX");
    int file = mkstemp(trial.file_path);
    return file < 0 ? -1 : close(file);
}

int config_trial_remove_file(void **state)
{
    (void)state;
    eb_config_deinit(&trial.config);
    return unlink(trial.file_path);
}
