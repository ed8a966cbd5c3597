/* The settings of embagd: a struct with their values, a table that describes each of them, and the
 * one function that sets them, whatever their source.
 * Threads: main. Memory: the struct owns its texts (eb_config_deinit). */
#pragma once

#include "proto/net/address.h"
#include "proto/net/file_watch.h"
#include "server/base/failure.h"
#include "server/base/limits.h"
#include "server/base/log.h"
#include "server/base/page_size.h"
#include "server/part_choice.h"
#include "server/publish/manager.h"
#include "server/stats/access_log.h"
#include "server/tables/numa_policy.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_LISTEN_MAX 16 /* most addresses of listen */
#define EB_CONFIG_LOOPS_MAX 256
#define EB_CONFIG_THREADS_MAX 1024

/* Longest list of part servers, with its NUL: as long as a path, since files of settings and
 * --print-config have room for that. */
#define EB_CONFIG_ROUTE_BYTES PATH_MAX

/* The value of http_listen if there is no such port. */
#define EB_CONFIG_NONE "none"

/* Number of settings that are not limits, and of all settings. */
#define EB_CONFIG_GENERAL_COUNT 34
#define EB_CONFIG_SETTING_COUNT (EB_CONFIG_GENERAL_COUNT EB_LIMIT_LIST(EB_CONFIG_COUNT_ONE))
#define EB_CONFIG_COUNT_ONE(name, effect, fallback, min, max, what) +1

/* Where a value came from; a later one overrides an earlier one. */
enum eb_config_source {
    EB_CONFIG_DEFAULT,
    EB_CONFIG_FILE,
    EB_CONFIG_ENVIRONMENT,
    EB_CONFIG_FLAG,
};

/* The members of each enum are in the order of its setting's choices. */
enum eb_tls_client { EB_TLS_CLIENT_REQUIRED, EB_TLS_CLIENT_OPTIONAL };
enum eb_tls_version { EB_TLS_1_2, EB_TLS_1_3 };
enum eb_config_truth { EB_CONFIG_FALSE, EB_CONFIG_TRUE };
enum eb_resident_readers { EB_RESIDENT_READERS_USER, EB_RESIDENT_READERS_GROUP };
enum eb_resident_verify { EB_RESIDENT_VERIFY_SAMPLE, EB_RESIDENT_VERIFY_FULL };
enum eb_resident_small_pages { EB_RESIDENT_SMALL_PAGES_REFUSE, EB_RESIDENT_SMALL_PAGES_ALLOW };

/* The sources of settings besides the file, whose path they may give; borrowed. */
struct eb_config_input {
    int argument_count;
    char *const *arguments;   /* flags, from the second one on */
    char *const *environment; /* ended by NULL */
};

/* Values of all settings. "Resolved": set by eb_config_read, even if no source sets it. */
struct eb_config {
    char *config_file;                   /* the YAML file that was read; NULL if none was */
    struct eb_watched_stamp file_stamp;  /* of that file, taken before it was read */
    enum eb_config_truth watch_settings; /* the file is read again when it changes */
    char *model_repository;
    size_t listen_count;         /* resolved: at least 1 */
    char *listen[EB_LISTEN_MAX]; /* HOST:PORT, [V6]:PORT or unix:PATH; form checked */
    char *state_dir;             /* NULL if the server keeps no state */
    char *part;                  /* K/P or hostname/P; NULL if the server is no part server */
    char *route;                 /* addresses of part servers; NULL if the server is no router */
    char *route_tls_ca;          /* path of the file; NULL if not set */
    char *route_tls_cert;        /* path of the file; NULL if not set */
    char *route_tls_key;         /* path of the file; set if and only if route_tls_cert is */
    char *route_token_file;      /* path of the file; NULL if not set */
    char *admin_listen;          /* unix:PATH, form checked; NULL if not set */
    char *http_listen;           /* resolved: HOST:PORT or [V6]:PORT, form checked, or "none" */
    enum eb_config_truth admin_on_data_port; /* ModelAdmin is answered wherever lookups are */
    char *tls_cert;      /* path of the file; NULL if TCP connections carry plain bytes */
    char *tls_key;       /* path of the file; set if and only if tls_cert is */
    char *tls_client_ca; /* path of the file; NULL if clients are not asked for certificates */
    enum eb_tls_client tls_client_verify;
    enum eb_tls_version tls_min_version;
    char *auth_file;  /* path of the file; NULL if callers are not authenticated */
    uint32_t loops;   /* resolved: at least 1 */
    uint32_t threads; /* threads of the executor; resolved: at least 1 */
    char *isa;        /* forced instruction set; NULL means the best */
    char *prefetch;   /* a text that eb_kernel_choice_check_prefetch accepts; NULL means auto */
    enum eb_log_level log_level;
    enum eb_log_format log_format;
    enum eb_access_log_mode access_log;
    enum eb_page_size huge_pages;
    enum eb_numa numa;
    enum eb_manager_watch watch;
    char *resident_dir; /* directory; NULL if tables are not kept in resident files */
    enum eb_resident_readers resident_readers;
    enum eb_resident_verify resident_verify;
    enum eb_resident_small_pages resident_small_pages;
    struct eb_limits limits;
    struct eb_config_input input; /* kept so that the settings can be read again */
    /* Source of each setting (enum eb_config_source), by its index in eb_config_settings. */
    uint8_t sources[EB_CONFIG_SETTING_COUNT];
};

/* Accepts a zeroed config. */
void eb_config_deinit(struct eb_config *config);

enum eb_config_kind {
    EB_CONFIG_TEXT,     /* char * */
    EB_CONFIG_SOCKET,   /* char *, unix:PATH */
    EB_CONFIG_PORT,     /* char *, HOST:PORT, [V6]:PORT or none */
    EB_CONFIG_PREFETCH, /* char *, a text that eb_kernel_choice_check_prefetch accepts */
    EB_CONFIG_PART,     /* char *, a text that eb_part_choice_read accepts */
    EB_CONFIG_ROUTE,    /* char *, a text that eb_targets_parse accepts */
    EB_CONFIG_LISTEN,   /* listen[] and listen_count */
    EB_CONFIG_LEVEL,    /* enum eb_log_level */
    EB_CONFIG_CHOICE,   /* an enum whose values are indices of `choices`; the default is 0 */
    EB_CONFIG_COUNT,    /* uint32_t; 0 means that it is chosen from the number of CPUs */
    EB_CONFIG_LIMIT,    /* uint64_t */
};

/* When a changed value takes effect. */
enum eb_config_effect {
    EB_CONFIG_START, /* at the next start */
    EB_CONFIG_LIVE   /* when the settings are read again; not for settings whose value is a text */
};

struct eb_config_setting {
    const char *name; /* as in the file: loops; --loops and EMBAG_LOOPS follow from it */
    enum eb_config_kind kind;
    enum eb_config_effect effect;
    size_t offset;              /* offset of its member in struct eb_config */
    uint64_t fallback;          /* default of a limit */
    uint64_t min, max;          /* bounds of a number, or of the bytes of a text or address */
    const char *value;          /* placeholder of the value in --help */
    const char *what;           /* description; after a semicolon, what happens at the limit */
    const char *const *choices; /* values that a choice allows, with NULL at the end */
};

extern const struct eb_config_setting eb_config_settings[EB_CONFIG_SETTING_COUNT];

/* Longest name of a setting as a flag or as a variable, its NUL included. */
#define EB_CONFIG_NAME_BYTES 64

/* Checks `text` and sets it, unless a higher source has set the setting. The first address of a
 * list replaces the addresses of a lower source, and the others are appended. Returns false if the
 * value is not valid: *failure names the value, its source, and what would be right. */
bool eb_config_setting_apply(struct eb_config *config, const struct eb_config_setting *setting,
    enum eb_config_source source, const char *text, struct eb_failure *failure);
/* Sets the default of every limit and of the log's level. `config` is zeroed. */
void eb_config_setting_apply_defaults(struct eb_config *config);

/* Returns the setting that `source` calls by the first name_bytes bytes of `name`: "--loops" as a
 * flag, "EMBAG_LOOPS" in the environment, "loops" in the file. Returns NULL if there is none. */
const struct eb_config_setting *eb_config_setting_find(
    enum eb_config_source source, const char *name, size_t name_bytes);
/* Writes the setting's name in `source`. */
void eb_config_setting_name(const struct eb_config_setting *setting, enum eb_config_source source,
    char out[EB_CONFIG_NAME_BYTES]);
/* Returns the unit of a number: "bytes", "ms", "us" or "". */
const char *eb_config_setting_unit(const struct eb_config_setting *setting);
/* Returns "default", "file", "environment" or "flag". */
const char *eb_config_source_name(enum eb_config_source source);
/* Room for the longest value as a text: a path, or all addresses of listen. */
#define EB_CONFIG_VALUE_BYTES (PATH_MAX + EB_LISTEN_MAX * EB_ADDRESS_GIVEN_BYTES)
/* Writes the setting's value as a text, or "" if it is not set. The addresses of listen are
 * separated by commas. */
void eb_config_setting_format(const struct eb_config *config,
    const struct eb_config_setting *setting, char out[EB_CONFIG_VALUE_BYTES]);
/* Returns whether the setting has the same value in both. Two numbers that no source has set, so
 * that they were chosen for the machine, count as equal. */
bool eb_config_setting_equals(const struct eb_config *one, const struct eb_config *other,
    const struct eb_config_setting *setting);
/* Copies the value of a setting that takes effect at once. */
void eb_config_setting_copy(
    struct eb_config *to, const struct eb_config *from, const struct eb_config_setting *setting);
/* Returns the setting's name and value, which borrow from the config. The name is NULL if the value
 * is a text that is not set, and for listen, which has no single value. */
struct eb_log_field eb_config_setting_field(
    const struct eb_config *config, const struct eb_config_setting *setting);
