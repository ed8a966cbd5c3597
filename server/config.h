/* Settings of embagd: flags override environment (EMBAG_...) overrides YAML file overrides default.
 * Every value is range-checked, also where a higher layer overrides it; errors name the setting,
 * where it came from, and the hint.
 * Thread: main only; afterwards immutable. Memory: owns its strings. */
#pragma once

#include "server/base/limits.h"

#include <stddef.h>
#include <stdint.h>

#define EB_LISTEN_MAX 16 /* addresses */
#define EB_CONFIG_LOOPS_MAX 256
#define EB_CONFIG_THREADS_MAX 1024

/* What http_listen says where there is to be no port. */
#define EB_CONFIG_NONE "none"

/* Settings that are no limits (see config_setting.c), and all of them. */
#define EB_CONFIG_GENERAL_COUNT 21
#define EB_CONFIG_SETTING_COUNT (EB_CONFIG_GENERAL_COUNT EB_LIMIT_LIST(EB_CONFIG_COUNT_ONE))
#define EB_CONFIG_COUNT_ONE(name, fallback, min, max, what) +1

/* Where a value came from; a later one overrides an earlier one. */
enum eb_config_source {
    EB_CONFIG_DEFAULT,
    EB_CONFIG_FILE,
    EB_CONFIG_ENVIRONMENT,
    EB_CONFIG_FLAG,
};

/* Numbers of tls_client_verify's and tls_min_version's choices. */
enum eb_tls_client { EB_TLS_CLIENT_REQUIRED, EB_TLS_CLIENT_OPTIONAL };
enum eb_tls_version { EB_TLS_1_2, EB_TLS_1_3 };

struct eb_config {
    char *config_file; /* the YAML file that was read; NULL: none */
    char *model_repository;
    size_t listen_count;         /* resolved: at least 1 */
    char *listen[EB_LISTEN_MAX]; /* HOST:PORT, [V6]:PORT or unix:PATH; form checked */
    char *admin_listen;          /* unix:PATH, form checked; NULL: none */
    char *http_listen;           /* resolved: HOST:PORT or [V6]:PORT, form checked, or "none" */
    uint32_t admin_on_data_port; /* 1: ModelAdmin is answered wherever lookups are */
    char *tls_cert;              /* files; NULL: TCP carries plain bytes */
    char *tls_key;               /* there where tls_cert is */
    char *tls_client_ca;         /* NULL: clients are not asked for certificates */
    uint32_t tls_client_verify;  /* one of eb_tls_client */
    uint32_t tls_min_version;    /* one of eb_tls_version */
    char *auth_file;             /* NULL: callers are not asked who they are */
    uint32_t loops;              /* resolved: at least 1 */
    uint32_t threads;            /* executor threads, resolved: at least 1 */
    char *isa;                   /* forced instruction set; NULL: the best */
    char *prefetch;              /* as eb_prefetch_check wants it; NULL: auto */
    int log_level;               /* one of eb_log_level */
    uint32_t access_log;         /* one of eb_access_log_mode */
    uint32_t huge_pages;         /* one of eb_page_size */
    uint32_t numa;               /* one of eb_numa */
    uint32_t watch;              /* one of eb_manager_watch */
    struct eb_limits limits;
    /* By a setting's number in config_setting.c: one of eb_config_source. */
    uint8_t sources[EB_CONFIG_SETTING_COUNT];
};

enum eb_config_outcome {
    EB_CONFIG_RUN,   /* start the server */
    EB_CONFIG_EXIT,  /* what --help, --version or --print-config asks is on stdout: exit 0 */
    EB_CONFIG_ERROR, /* one line of the log has said what is wrong: exit 2 */
};

/* Reads flags (from arguments[1] on), environment (ended by NULL) and file. *out: see
 * eb_config_deinit, whatever the outcome. Does not set the log's level. */
enum eb_config_outcome eb_config_read(
    int argument_count, char *const *arguments, char *const *environment, struct eb_config *out);
/* Accepts a zeroed config. */
void eb_config_deinit(struct eb_config *config);

/* Logs every setting: one line event=config for each source that any came from. */
void eb_config_log(const struct eb_config *config);

/* The default of loops: one for four CPUs, 1 to 16, because most of the work is the executor's;
 * fewer where the memory limits would not give each loop its part (eb_config_read refuses that of
 * loops that were asked for). The default of threads is one for each CPU: they block when idle, and
 * an idle loop leaves them its CPU. */
uint32_t eb_config_loops_default(uint32_t cpus, const struct eb_limits *limits);
