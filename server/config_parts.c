#include "server/config_parts.h"

#include "server/base/log.h"
#include "server/net/time_slice.h"
#include "server/net/watchers.h"

#include <sys/resource.h>

/* Streams that one connection may reset, in addition to as many as it lets end and to a thousand a
 * second. */
#define RESET_BUDGET 4000
/* Longest time between two checks of the time limits. It is shorter if a time limit is short. */
#define TICK_MS_MAX 1000

static uint64_t tick_ms(const struct eb_limits *limits)
{
    const uint64_t times_ms[] = {limits->header_timeout_ms, limits->message_timeout_ms,
        limits->write_timeout_ms, limits->keepalive_ms, limits->keepalive_timeout_ms,
        limits->connection_idle_max_ms, limits->connection_age_max_ms, limits->connection_grace_ms,
        limits->drain_timeout_ms, limits->auth_timeout_ms};
    uint64_t tick = TICK_MS_MAX;
    for (size_t i = 0; i < sizeof times_ms / sizeof times_ms[0]; i++) {
        if (times_ms[i] > 0 && times_ms[i] / 4 + 1 < tick) {
            tick = times_ms[i] / 4 + 1;
        }
    }
    return tick;
}

struct eb_loop_limits eb_config_loop_limits(const struct eb_config *config)
{
    const struct eb_limits *limits = &config->limits;
    return (struct eb_loop_limits){
        .conn = {.session = {.request_bytes_max = (uint32_t)limits->request_bytes_max,
                     .streams_max = (uint32_t)limits->streams_max,
                     .header_fields_max = (uint32_t)limits->header_fields_max,
                     .header_bytes_max = (uint32_t)limits->header_bytes_max,
                     .outbound_bytes_max = (uint32_t)limits->outbound_bytes_max,
                     .message_stall_ms_max = (uint32_t)limits->message_timeout_ms,
                     .answer_stall_ms_max = (uint32_t)limits->write_timeout_ms,
                     .reset_budget = RESET_BUDGET,
                     .ping_interval_min_ms = (uint32_t)limits->ping_interval_min_ms,
                     .ping_idle_interval_min_ms = (uint32_t)limits->ping_idle_interval_min_ms},
            .header_timeout_ms = limits->header_timeout_ms,
            .write_timeout_ms = limits->write_timeout_ms,
            .slice_ns = EB_TIME_SLICE_NS,
            .age = {.unknown_max_ms = config->auth_file ? limits->auth_timeout_ms : 0,
                .idle_max_ms = limits->connection_idle_max_ms,
                .age_max_ms = limits->connection_age_max_ms,
                .grace_ms = limits->connection_grace_ms,
                .end_ms = limits->drain_timeout_ms,
                .silence_ms = limits->keepalive_ms,
                .silence_more_ms = limits->keepalive_timeout_ms}},
        .connections_max = limits->connections_max,
        .handshakes_per_s_max = limits->handshakes_per_s_max,
        .drain_timeout_ms = limits->drain_timeout_ms,
        .tick_ms = tick_ms(limits),
    };
}

struct eb_service_settings eb_config_service_settings(const struct eb_config *config)
{
    return (struct eb_service_settings){config->limits, config->access_log};
}

struct eb_metrics_limits eb_config_metrics_limits(const struct eb_config *config)
{
    return (struct eb_metrics_limits){
#define X(member) .member = config->limits.member,
        EB_METRICS_LIMIT_LIST(X)
#undef X
    };
}

void eb_config_set_manager_options(
    const struct eb_config *config, struct eb_manager_options *options)
{
    const struct eb_limits *limits = &config->limits;
    options->watch = config->watch;
    options->poll_ms = limits->watch_poll_ms;
    options->load_bytes_per_s = limits->load_bytes_per_s;
    options->load_threads = limits->load_threads;
    options->load_jitter_ms = limits->load_jitter_s * 1000;
    options->limits = (struct eb_registry_limits){
        .kept_versions_max = limits->kept_versions_max,
        .kept_bytes_max = limits->kept_bytes_max,
        .claim_grace_ms = limits->claim_grace_s * 1000,
        .pin_ttl_ms = limits->pin_ttl_s * 1000,
        .next_wait_ms = limits->next_wait_s * 1000,
    };
    options->serve_wait_ms = limits->next_wait_s * 1000;
    options->tables.row_bytes_max = limits->row_bytes_max;
    options->tables.group_features_max = (uint32_t)limits->queries_max;
}

void eb_config_raise_file_limit(const struct eb_config *config)
{
    struct rlimit limit;
    rlim_t wanted = config->limits.connections_max + EB_WATCHERS_FILES_RESERVED;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted) {
        eb_log(EB_LOG_WARN, "few_open_files", eb_log_number("limit", (int64_t)limit.rlim_cur),
            eb_log_number("wanted", (int64_t)wanted),
            eb_log_text("remedy", "raise ulimit -n, or lower connections_max"));
    }
}
