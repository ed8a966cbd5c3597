/* The table of all settings and the one function that sets them, whichever layer a value is from.
 * Thread: main only. Memory: texts are copied into the config. */
#pragma once

#include "server/base/log.h"
#include "server/config.h"

#include <stdbool.h>

enum eb_config_kind {
    EB_CONFIG_TEXT,     /* char * */
    EB_CONFIG_SOCKET,   /* char *, unix:PATH */
    EB_CONFIG_PORT,     /* char *, HOST:PORT, [V6]:PORT or none */
    EB_CONFIG_PREFETCH, /* char *, as eb_prefetch_check wants it */
    EB_CONFIG_LISTEN,   /* listen[] and listen_count */
    EB_CONFIG_LEVEL,    /* int, one of eb_log_level */
    EB_CONFIG_CHOICE,   /* uint32_t, a number in choices; default: the first */
    EB_CONFIG_COUNT,    /* uint32_t; 0: not set, chosen from the CPUs */
    EB_CONFIG_LIMIT,    /* uint64_t */
};

struct eb_config_setting {
    const char *name; /* as in the file: loops; --loops and EMBAG_LOOPS follow from it */
    enum eb_config_kind kind;
    size_t offset;              /* in struct eb_config */
    uint64_t fallback;          /* of a limit */
    uint64_t min, max;          /* of a number; of a text or one address: least and most bytes */
    const char *value;          /* what stands for the value in --help */
    const char *what;           /* what it is; after a semicolon what happens at it */
    const char *const *choices; /* of a choice, ended by NULL */
};

extern const struct eb_config_setting eb_config_settings[EB_CONFIG_SETTING_COUNT];

/* Why the configuration cannot be used, in one line: what, from where, and the hint. */
struct eb_config_error {
    char text[1024];
};

/* Longest name of a setting as a flag or as a variable, its NUL included. */
#define EB_CONFIG_NAME_BYTES 64

/* The setting that `source` calls by the first name_bytes bytes of `name`: "--loops" of a flag,
 * "EMBAG_LOOPS" in the environment, "loops" in the file. NULL: there is none. */
const struct eb_config_setting *eb_config_setting_find(
    enum eb_config_source source, const char *name, size_t name_bytes);
/* What `source` calls the setting. */
void eb_config_setting_name(const struct eb_config_setting *setting, enum eb_config_source source,
    char out[EB_CONFIG_NAME_BYTES]);
/* "bytes", "ms", "us" or "": what a number counts. */
const char *eb_config_setting_unit(const struct eb_config_setting *setting);

/* Checks `text` and, unless a higher source has set it, sets it: a list's first value replaces
 * what a lower source has set, the following ones are added. false: *error. */
bool eb_config_setting_apply(struct eb_config *config, const struct eb_config_setting *setting,
    enum eb_config_source source, const char *text, struct eb_config_error *error);
/* Sets every number's default and the log level's. `config` is zeroed. */
void eb_config_setting_apply_defaults(struct eb_config *config);

/* Its name and value, which borrow from the config. Without key: a text that is not set, or the
 * addresses of listen, which are no single value. */
struct eb_log_field eb_config_setting_field(
    const struct eb_config *config, const struct eb_config_setting *setting);
