/* A configuration read from flags, variables and a file that a test gives, and what was said of it.
 * Thread: the test's. Memory: `trial` is freed by config_fixture_remove_file. */
#pragma once

#include "server/config.h"

#include <stddef.h>

/* Of the test that runs. */
struct config_fixture {
    struct eb_config config;
    char file_path[32];
    char said_stderr[8192];
    char said_stdout[32768];
};

extern struct config_fixture fixture;

/* Set-up and tear-down of a test: an empty file, and an empty config. */
int config_fixture_make_file(void **state);
int config_fixture_remove_file(void **state);

void config_fixture_write_bytes(const char *bytes, size_t byte_count);
void config_fixture_write_yaml(const char *yaml);
/* The flags with --config for the file; overwritten by the next call. */
const char *config_fixture_with_file(const char *flags);

/* Reads a configuration from flags and variables that '|' separates; "": none. */
enum eb_config_outcome config_fixture_read(const char *flags, const char *variables);
/* The same: it can be used, and nothing is said. */
void config_fixture_expect_run(const char *flags, const char *variables);
/* The same: one line is said, an error, with `text` in it. */
void config_fixture_expect_failure(const char *flags, const char *variables, const char *text);
