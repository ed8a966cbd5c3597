/* The configuration of embagd: flags override the environment (EMBAG_...), which overrides the YAML
 * file, which overrides the defaults. Every value is checked, even one that a higher source
 * overrides. Errors name the setting, its source, and what would be right.
 * Threads: main. Memory: see config_setting.h. */
#pragma once

#include "server/config_setting.h"

#include <stdio.h>

/* Largest file of settings. Such a file has some 30 lines. */
#define EB_CONFIG_FILE_BYTES_MAX 65536

enum eb_config_outcome {
    EB_CONFIG_RUN,   /* start the server */
    EB_CONFIG_EXIT,  /* the output of --help, --version or --print-config is on stdout: exit 0 */
    EB_CONFIG_ERROR, /* one log line has said what is wrong: exit 2 */
};

/* Reads flags (from arguments[1] on), the environment (ended by NULL) and the file that they name.
 * The caller deinits *out, whatever the outcome. Sets the log's format, not its level. *out keeps
 * the pointers to the flags and the environment, which must stay valid.
 *
 * The file is YAML, `loops: 4` or `listen: ["127.0.0.1:8600", "unix:/run/embag.sock"]`. It may have
 * no settings. Unknown keys, duplicate keys, aliases and a second document are errors, which name
 * the file and the line. */
enum eb_config_outcome eb_config_read(
    int argument_count, char *const *arguments, char *const *environment, struct eb_config *out);

/* Reads the sources of *config again, including its file, and checks them all. This affects nothing
 * else. Returns true with all settings in *out, or false with *failure set. The caller deinits
 * *out, whatever the outcome. */
bool eb_config_read_again(
    const struct eb_config *config, struct eb_config *out, struct eb_failure *failure);

/* Checks the rules that involve several settings. Returns false with *failure set if one is
 * broken. */
bool eb_config_check(const struct eb_config *config, struct eb_failure *failure);

/* Returns the log_format of the flags, or of the environment if no flag sets it; logfmt if neither
 * does, or if the value is wrong. It may be called before eb_config_read, so that whatever fails at
 * start is logged in that format. The file's log_format takes effect once the file is read. */
enum eb_log_format eb_config_find_log_format(
    int argument_count, char *const *arguments, char *const *environment);

/* Logs every setting: one line event=config for each source that supplied any. */
void eb_config_log(const struct eb_config *config);

/* Returns the default of loops: one for every four CPUs, from 1 to 16, because the executor does
 * most of the work. Returns fewer if the memory limits are too low for each loop to get its share;
 * eb_config_read refuses a setting of loops that is too high for that. The default of threads is
 * one for each CPU: threads block when idle, and an idle loop leaves its CPU to them. */
uint32_t eb_config_loops_default(uint32_t cpus, const struct eb_limits *limits);

/* ---- config_print.c: output for people ---- */

/* Prints every setting with its value and source, as a YAML file that --config accepts. Settings
 * without a value are printed as comments. Returns false if `out` cannot be written, or if a path
 * cannot be written in YAML (not UTF-8, or with control characters): *failure says which. */
bool eb_config_print(const struct eb_config *config, FILE *out, struct eb_failure *failure);
/* Print the texts of --help and --version. Return false if `out` cannot be written. */
bool eb_config_print_help(FILE *out);
bool eb_config_print_version(FILE *out);
/* Returns how this program was built, for people: "optimised, gcc 12.2.0". */
const char *eb_config_build(void);
