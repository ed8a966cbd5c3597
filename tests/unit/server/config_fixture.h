/* A configuration that is read from a test's flags, variables and file, and the output of reading
 * it.
 * Thread: the test's. Memory: `fixture` is freed by config_fixture_remove_file. */
#pragma once

#include "server/config.h"

#include <stddef.h>

/* The fixture of the running test. */
struct config_fixture {
    struct eb_config config;
    char file_path[32];
    char said_stderr[8192];
    char said_stdout[32768];
};

extern struct config_fixture fixture;

/* Set-up and tear-down of a test: an empty file and an empty config. */
int config_fixture_make_file(void **state);
int config_fixture_remove_file(void **state);

void config_fixture_write_bytes(const char *bytes, size_t byte_count);
void config_fixture_write_yaml(const char *yaml);
/* Returns the flags with --config for the file added. The next call overwrites them. */
const char *config_fixture_with_file(const char *flags);

/* Reads a configuration from flags and from variables, both separated by '|'. "" means none. The
 * configuration can be read again until the next call. */
enum eb_config_outcome config_fixture_read(const char *flags, const char *variables);
/* Reads the same way, and expects a usable configuration and no output. */
void config_fixture_expect_run(const char *flags, const char *variables);
/* Reads the same way, and expects one line of output, an error that contains `text`. */
void config_fixture_expect_failure(const char *flags, const char *variables, const char *text);
