/* Stats in Prometheus' text format, version 0.0.4.
 * Thread: any. Memory: the text is the caller's. */
#pragma once

#include "server/stats/process_usage.h"
#include "server/stats/stats.h"

#define EB_METRICS_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* What labels may name, so that no repository makes a scrape that nobody can keep: tables and
 * models are told of in the stats' order, versions with the highest of each model first. How many
 * are left out is a metric, embag_left_out; what they have counted is in one row without names,
 * with what loops have counted without them. */
#define EB_METRICS_TABLES_MAX 1000
#define EB_METRICS_MODELS_MAX 200
#define EB_METRICS_VERSIONS_MAX 500 /* of all models */

/* X(setting): limits that metrics come near to. */
#define EB_METRICS_LIMIT_LIST(X)                                                                   \
    X(queue_bytes_max)                                                                             \
    X(receive_memory_bytes)                                                                        \
    X(answer_memory_bytes)                                                                         \
    X(connections_max)

struct eb_metrics_limits {
#define X(member) uint64_t member;
    EB_METRICS_LIMIT_LIST(X)
#undef X
};

struct eb_metrics_source {
    const struct eb_stats *stats;
    const struct eb_process_usage *usage;
    const char *version; /* of embagd */
    const char *isa;
    const struct eb_metrics_limits *limits;
};

/* The text, *size bytes and a NUL, for free(). NULL: no memory. */
char *eb_metrics_text_write(const struct eb_metrics_source *source, size_t *size);
