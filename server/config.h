/* Settings of embagd: flags override environment (EMBAG_...) overrides YAML file overrides default.
 * Every value is range-checked; errors name the setting, where it came from, and the remedy.
 * Thread: main only; afterwards immutable. Memory: owns its strings. */
#pragma once

#include "server/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_LISTEN_MAX 16 /* addresses */

struct eb_limits {
#define X(name, fallback, min, max, what) uint64_t name;
    EB_LIMIT_LIST(X)
#undef X
};

struct eb_config {
    char *model_repository;
    size_t listen_count;
    char *listen[EB_LISTEN_MAX]; /* HOST:PORT, [V6]:PORT or unix:PATH */
    uint32_t loops;              /* resolved: at least 1 */
    uint32_t threads;            /* executor threads, resolved: at least 1 */
    char *isa;                   /* forced instruction set; NULL: the best */
    int log_level;               /* one of eb_log_level */
    struct eb_limits limits;
};

enum eb_config_outcome {
    EB_CONFIG_RUN,   /* start the server */
    EB_CONFIG_EXIT,  /* --help or --version was answered on stdout: exit 0 */
    EB_CONFIG_FAULT, /* one line on stderr has said what is wrong: exit 2 */
};

/* Reads flags, environment and file. Defaults: loops and threads from the CPUs this process may
 * use (affinity and cgroup quota). */
enum eb_config_outcome eb_config_read(
    int argument_count, char *const *arguments, char *const *environment, struct eb_config *out);
/* Accepts a zeroed config. */
void eb_config_deinit(struct eb_config *config);
