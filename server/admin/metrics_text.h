/* Stats in Prometheus' text format, version 0.0.4.
 * Thread: any. Memory: the text is the caller's. */
#pragma once

#include "server/stats/process_usage.h"
#include "server/stats/stats.h"

#define EB_METRICS_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Limits on the numbers of tables, models and versions that labels name, so that no repository
 * makes a scrape too large to keep. Tables and models are listed in the order of the stats,
 * versions with the highest of each model first. The metric embag_left_out gives the numbers of
 * those left out. The counts of the tables left out are in one row without names, together with
 * those that loops count without names. */
#define EB_METRICS_TABLES_MAX 1000
#define EB_METRICS_MODELS_MAX 200
#define EB_METRICS_VERSIONS_MAX 500 /* of all models */
/* Limit on the numbers of replicas that a router tells, of all models' versions and parts. */
#define EB_METRICS_REPLICAS_MAX 5000

struct eb_metrics_source {
    const struct eb_stats *stats;
    const struct eb_process_usage *usage;
    const char *version; /* of embagd */
    const char *isa;
};

/* Returns the text, *size bytes and a NUL, to be freed by free(). Returns NULL if out of memory. */
char *eb_metrics_text_write(const struct eb_metrics_source *source, size_t *size);
