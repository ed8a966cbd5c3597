/* Reads from a server's metrics how much was looked up in each table, so that a version is divided
 * by that too.
 * Thread: any; reading a URL blocks. Memory: nothing is kept. */
#pragma once

#include "client/cli/split_plan.h"

/* Most bytes of metrics, so that a source that does not end cannot take all memory. A server lists
 * at most 1000 tables, so there is room for the metrics of many servers, one after another. */
#define EB_SPLIT_METRICS_BYTES_MAX (64 << 20)

/* Sets the tables' rows_touched, bags and is_counted from the metrics of a running server in
 * Prometheus' text format: the sums of embag_table_rows_touched_total and embag_table_bags_total of
 * `model`. `source` is an http:// URL, the path of a file, or "-" for standard input. Tables that
 * the metrics do not name are left as they are. Returns false with *failure set, including the
 * source, if it cannot be read, a sample is malformed, or nothing was looked up in the plan's
 * tables. */
bool eb_split_metrics_read(
    struct eb_split_plan *plan, const char *source, const char *model, struct eb_failure *failure);

/* Does the same with metrics that have been read: `bytes` bytes and a NUL, which are changed.
 * *failure does not name the source. Needs eb_split_plan_index. */
bool eb_split_metrics_parse(struct eb_split_plan *plan, char *text, size_t bytes, const char *model,
    struct eb_failure *failure);
