/* The configuration of embagd: flags override the environment (EMBAG_...), which overrides the YAML
 * file, which overrides the defaults. Every value is checked, also one that a higher source
 * overrides; errors name the setting, its source, and what would be right.
 * Threads: main. Memory: see config_setting.h. */
#pragma once

#include "server/config_setting.h"

#include <stdio.h>

/* A file of settings has some 30 lines; a larger one is another file. */
#define EB_CONFIG_FILE_BYTES_MAX 65536

enum eb_config_outcome {
    EB_CONFIG_RUN,   /* start the server */
    EB_CONFIG_EXIT,  /* what --help, --version or --print-config asks is on stdout: exit 0 */
    EB_CONFIG_ERROR, /* one line of the log has said what is wrong: exit 2 */
};

/* Reads flags (from arguments[1] on), the environment (ended by NULL) and the file that they name.
 * The caller deinits *out, whatever the outcome. Does not set the log's level.
 *
 * The file is YAML, `loops: 4` or `listen: ["127.0.0.1:8600", "unix:/run/embag.sock"]`. It may be
 * without settings; unknown keys, keys that stand twice, aliases and a second document are errors,
 * which name the file and the line. */
enum eb_config_outcome eb_config_read(
    int argument_count, char *const *arguments, char *const *environment, struct eb_config *out);

/* Logs every setting: one line event=config for each source that any came from. */
void eb_config_log(const struct eb_config *config);

/* Returns the default of loops: one for four CPUs, 1 to 16, because most of the work is the
 * executor's; fewer if the memory limits would not give each loop its share (eb_config_read refuses
 * so many if they were asked for). The default of threads is one for each CPU: they block when
 * idle, and an idle loop leaves them its CPU. */
uint32_t eb_config_loops_default(uint32_t cpus, const struct eb_limits *limits);

/* ---- config_print.c: what is written for people ---- */

/* Prints every setting with its value and source, as a YAML file that --config takes; settings
 * without a value stand there as comments. Returns false if `out` cannot be written, or if a path
 * cannot stand in a YAML file (not UTF-8, or with control characters): *failure names it. */
bool eb_config_print(const struct eb_config *config, FILE *out, struct eb_failure *failure);
/* Print the texts of --help and --version. Return false if `out` cannot be written. */
bool eb_config_print_help(FILE *out);
bool eb_config_print_version(FILE *out);
/* Returns how this program was built, for people: "optimised, gcc 12.2.0". */
const char *eb_config_build(void);
