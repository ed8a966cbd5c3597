#include "server/admin/metrics_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The buckets of the metrics end at powers of two, from 8.192 us to 34.4 s. Each bucket's end is
 * also the end of a range of struct eb_histogram, so the counts are exact. */
#define BUCKET_FIRST_NS (UINT64_C(1) << 13)
#define BUCKET_LAST_NS (UINT64_C(1) << 35)

/* Writes the lines that introduce a metric: its help, and its type, "counter", "gauge" or
 * "histogram". */
static void begin(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_count(FILE *out, const char *name, const char *help, uint64_t value)
{
    begin(out, name, "counter", help);
    fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void write_gauge(FILE *out, const char *name, const char *help, uint64_t value)
{
    begin(out, name, "gauge", help);
    fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void write_seconds(FILE *out, double seconds)
{
    fprintf(out, " %.12g\n", seconds);
}

/* Writes a label's value, without its quotes. */
static void write_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '\\': fputs("\\\\", out); break;
        case '"': fputs("\\\"", out); break;
        case '\n': fputs("\\n", out); break;
        default: fputc(*text, out); break;
        }
    }
}

/* Writes `NAME{model="..."`. The caller adds further labels, and the closing brace. */
static void open_model(FILE *out, const char *name, const char *model)
{
    fprintf(out, "%s{model=\"", name);
    write_escaped(out, model);
    fputc('"', out);
}

/* ---- requests ---- */

/* Returns whether a code is written even if its count is 0, because alerts use it. If the series
 * only began with the first such request, a rate would miss that request. */
static bool is_told_always(int code)
{
    static const bool always[EB_COUNTERS_STATUSES] = {[EB_STATUS_OK] = true,
        [EB_STATUS_UNKNOWN] = true,
        [EB_STATUS_INVALID_ARGUMENT] = true,
        [EB_STATUS_NOT_FOUND] = true,
        [EB_STATUS_OUT_OF_RANGE] = true,
        [EB_STATUS_UNIMPLEMENTED] = true,
        [EB_STATUS_INTERNAL] = true,
        [EB_STATUS_DATA_LOSS] = true};
    return always[code];
}

static void write_request_metrics(FILE *out, const struct eb_stats *stats)
{
    static const char name[] = "embag_requests_total";
    begin(out, name, "counter",
        "Finished requests by gRPC code; each message of a stream is one request. Service and "
        "method are empty for unknown methods.");
    for (size_t i = 0; i < stats->method_count; i++) {
        for (int code = 0; code < EB_COUNTERS_STATUSES; code++) {
            uint64_t count = stats->total.requests[i][code];
            if (count > 0 || is_told_always(code)) {
                fprintf(out, "%s{service=\"", name);
                write_escaped(out, stats->methods[i].service);
                fputs("\",method=\"", out);
                write_escaped(out, stats->methods[i].method);
                fprintf(out, "\",code=\"%s\"} %" PRIu64 "\n", eb_status_name(code), count);
            }
        }
    }
}

static void write_refusals(FILE *out, const struct eb_counters *total)
{
    static const char name[] = "embag_refused_total";
    begin(out, name, "counter", "Valid requests and connections that were refused, by reason.");
    for (int i = 0; i < EB_REFUSAL_COUNT; i++) {
        fprintf(out, "%s{reason=\"%s\"} %" PRIu64 "\n", name, eb_refusal_name((enum eb_refusal)i),
            total->refusals[i]);
    }
}

/* Writes a histogram's buckets. `label` is empty or ends with a comma. */
static void write_buckets(
    FILE *out, const char *name, const char *label, const struct eb_histogram *histogram)
{
    uint64_t count = eb_histogram_count(histogram);
    for (uint64_t end_ns = BUCKET_FIRST_NS; end_ns <= BUCKET_LAST_NS; end_ns *= 2) {
        fprintf(out, "%s_bucket{%sle=\"%.12g\"} %" PRIu64 "\n", name, label, (double)end_ns * 1e-9,
            eb_histogram_count_below(histogram, end_ns));
    }
    fprintf(out, "%s_bucket{%sle=\"+Inf\"} %" PRIu64 "\n", name, label, count);
}

static void write_stages(FILE *out, const struct eb_counters *total)
{
    static const char name[] = "embag_stage_seconds";
    begin(out, name, "histogram",
        "Time that answered lookups spent, by stage"
#define X(id, text, what) "; " text ": " what
        EB_STAGE_LIST(X) "."
#undef X
    );
    for (int i = 0; i < EB_STAGE_COUNT; i++) {
        const char *stage = eb_stage_name((enum eb_stage)i);
        const struct eb_histogram *histogram = &total->stages[i];
        char label[64];
        snprintf(label, sizeof label, "stage=\"%s\",", stage);
        write_buckets(out, name, label, histogram);
        fprintf(out, "%s_sum{stage=\"%s\"}", name, stage);
        write_seconds(out, (double)histogram->sum_ns * 1e-9);
        fprintf(out, "%s_count{stage=\"%s\"} %" PRIu64 "\n", name, stage,
            eb_histogram_count(histogram));
    }
}

static void write_lag(FILE *out, const struct eb_histogram *lag)
{
    static const char name[] = "embag_loop_lag_seconds";
    begin(
        out, name, "histogram", "Time that an event loop was busy between two reads of new input.");
    write_buckets(out, name, "", lag);
    fprintf(out, "%s_sum", name);
    write_seconds(out, (double)lag->sum_ns * 1e-9);
    fprintf(out, "%s_count %" PRIu64 "\n", name, eb_histogram_count(lag));
}

static void write_handshakes(FILE *out, const struct eb_counters *total)
{
    static const char name[] = "embag_tls_handshake_seconds";
    static const char busy[] = "embag_tls_handshake_busy_seconds_total";
    const struct eb_histogram *handshakes = &total->handshakes;
    begin(out, name, "histogram",
        "Time of completed TLS handshakes, from the client's first bytes to its last.");
    write_buckets(out, name, "", handshakes);
    fprintf(out, "%s_sum", name);
    write_seconds(out, (double)handshakes->sum_ns * 1e-9);
    fprintf(out, "%s_count %" PRIu64 "\n", name, eb_histogram_count(handshakes));
    begin(out, busy, "counter", "CPU time of TLS handshakes.");
    fputs(busy, out);
    write_seconds(out, (double)total->handshake_ns * 1e-9);
}

static void write_counter_metrics(FILE *out, const struct eb_stats *stats)
{
    const struct eb_counters *total = &stats->total;
    write_request_metrics(out, stats);
#define X(member, text, help) write_count(out, "embag_" text "_total", help, total->member);
    EB_COUNTERS_COUNT_LIST(X)
#undef X
    write_refusals(out, total);
    write_stages(out, total);
    write_handshakes(out, total);
    write_lag(out, &total->lag);
}

/* ---- loops and executor ---- */

static void write_loop_metrics(FILE *out, const struct eb_stats *stats)
{
    struct eb_stats_loop sum = {0};
    for (size_t i = 0; i < stats->loop_count; i++) {
        sum.connections += stats->loops[i].connections;
        sum.handshakes += stats->loops[i].handshakes;
        sum.receive_bytes += stats->loops[i].receive_bytes;
        sum.answer_bytes += stats->loops[i].answer_bytes;
    }
    write_gauge(out, "embag_loops", "Event loops.", stats->loop_count);
    write_gauge(out, "embag_connections", "Open connections.", sum.connections);
    write_gauge(out, "embag_tls_handshakes_waiting",
        "Connections that wait for a step of their TLS handshake.", sum.handshakes);
    begin(out, "embag_pool_bytes", "gauge",
        "Bytes in use out of receive_memory_bytes and answer_memory_bytes.");
    fprintf(out, "embag_pool_bytes{pool=\"receive\"} %" PRIu64 "\n", sum.receive_bytes);
    fprintf(out, "embag_pool_bytes{pool=\"answer\"} %" PRIu64 "\n", sum.answer_bytes);
}

static void write_by_priority(
    FILE *out, const char *name, const char *help, const uint64_t values[EB_WORK_PRIORITIES])
{
    begin(out, name, "gauge", help);
    for (int i = 0; i < EB_WORK_PRIORITIES; i++) {
        fprintf(out, "%s{priority=\"%s\"} %" PRIu64 "\n", name,
            eb_work_priority_name((enum eb_work_priority)i), values[i]);
    }
}

static void write_executor_metrics(FILE *out, const struct eb_executor_stats *executor)
{
    static const char busy[] = "embag_executor_busy_seconds_total";
    write_by_priority(
        out, "embag_queue_requests", "Requests waiting for the executor.", executor->queued_works);
    write_by_priority(out, "embag_queue_bytes",
        "Bytes of rows that requests waiting for the executor will read, out of queue_bytes_max.",
        executor->queued_bytes);
    write_gauge(out, "embag_executor_threads", "Threads of the executor.", executor->threads);
    write_gauge(out, "embag_executor_idle_threads", "Idle threads of the executor.",
        executor->idle_threads);
    write_count(out, "embag_executor_tiles_total", "Tiles of requests computed by the executor.",
        executor->tiles);
    begin(out, busy, "counter", "Busy time of all executor threads together.");
    fputs(busy, out);
    write_seconds(out, (double)executor->busy_ns * 1e-9);
    write_gauge(out, "embag_executor_thread_bytes_per_second",
        "Recent rate at which one executor thread gathers row bytes.",
        executor->bytes_per_us * 1000000);
}

/* ---- tables ---- */

static size_t at_most(size_t count, size_t max)
{
    return count < max ? count : max;
}

/* The metrics of every table: X("name", help, count of `table`). */
#define TABLE_LIST(X)                                                                              \
    X("embag_table_bags_total", "Bags requested from a table.", table->bags)                       \
    X("embag_table_rows_touched_total",                                                            \
        "Rows requested from a table, counting repetitions and missing rows.", table->indices)     \
    X("embag_missing_total", "Requested rows that the table does not have.", table->missing)

/* The tables that have rows of their own. */
struct named_tables {
    size_t first;
    size_t count;
};

/* Skips the first table if it has no names: it holds the loops' counts of tables for which they
 * have no slot (rpc/table_counters.h). */
static struct named_tables find_named(const struct eb_stats *stats)
{
    size_t first = stats->table_count > 0 && stats->tables[0].model[0] == '\0';
    return (struct named_tables){first, at_most(stats->table_count - first, EB_METRICS_TABLES_MAX)};
}

/* Adds up the counts of all other tables. */
static struct eb_stats_table add_up_rest(
    const struct eb_stats *stats, const struct named_tables *named)
{
    struct eb_stats_table rest = {.model = "", .table = ""};
    for (size_t i = 0; i < stats->table_count; i++) {
        if (i < named->first || i >= named->first + named->count) {
            rest.bags += stats->tables[i].bags;
            rest.indices += stats->tables[i].indices;
            rest.missing += stats->tables[i].missing;
        }
    }
    return rest;
}

static void write_table_metrics(FILE *out, const struct eb_stats *stats)
{
    struct named_tables named = find_named(stats);
    struct eb_stats_table rest = add_up_rest(stats, &named);
    size_t row_count = named.count + (named.count < stats->table_count);
#define X(metric, help, value)                                                                     \
    begin(out, metric, "counter", help);                                                           \
    for (size_t i = 0; i < row_count; i++) {                                                       \
        const struct eb_stats_table *table =                                                       \
            i < named.count ? &stats->tables[named.first + i] : &rest;                             \
        open_model(out, metric, table->model);                                                     \
        fputs(",table=\"", out);                                                                   \
        write_escaped(out, table->table);                                                          \
        fprintf(out, "\"} %" PRIu64 "\n", value);                                                  \
    }
    TABLE_LIST(X)
#undef X
}

/* ---- models ---- */

/* A position in the list of the versions of all models, and the number of versions found before
 * it. */
struct version_at {
    const struct eb_stats *stats;
    size_t model;
    size_t version;
    size_t passed;
};

/* Finds the next version and its model. Returns false if none is left, or if as many as allowed
 * have been written. */
static bool find_next(struct version_at *at, const struct eb_stats_model **model,
    const struct eb_stats_version **version)
{
    size_t model_count = at_most(at->stats->model_count, EB_METRICS_MODELS_MAX);
    while (at->model < model_count && at->version == at->stats->models[at->model].version_count) {
        at->model++;
        at->version = 0;
    }
    if (at->model == model_count || at->passed == EB_METRICS_VERSIONS_MAX) {
        return false;
    }
    *model = &at->stats->models[at->model];
    *version = &(*model)->versions[at->version];
    at->version++;
    at->passed++;
    return true;
}

/* The metrics of every version in memory: X("name", help, format and value of `version`). */
#define VERSION_LIST(X)                                                                            \
    X("embag_model_version_bytes", "Memory of a version's tables in bytes.", "%" PRIu64,           \
        version->bytes)                                                                            \
    X("embag_model_version_rows", "Rows of a version's tables.", "%" PRIu64, version->rows)        \
    X("embag_model_version_load_seconds", "Time that loading a version took in seconds.", "%.3f",  \
        (double)version->load_ms * 1e-3)                                                           \
    X("embag_model_version_loaded_timestamp_seconds",                                              \
        "Time at which a version was loaded, since unix epoch in seconds.", "%.3f",                \
        (double)version->loaded_unix_ms * 1e-3)

static void write_versions(FILE *out, const struct eb_stats *stats)
{
    const struct eb_stats_model *model;
    const struct eb_stats_version *version;
#define X(metric, help, format, value)                                                             \
    begin(out, metric, "gauge", help);                                                             \
    for (struct version_at at = {.stats = stats}; find_next(&at, &model, &version);) {             \
        if (version->loaded_unix_ms > 0) {                                                         \
            open_model(out, metric, model->name);                                                  \
            fprintf(out, ",version=\"%" PRIu64 "\"} " format "\n", version->number, value);        \
        }                                                                                          \
    }
    VERSION_LIST(X)
#undef X
}

static void write_states(FILE *out, const struct eb_stats *stats)
{
    static const char name[] = "embag_model_versions";
    begin(out, name, "gauge", "Versions of a model by state.");
    for (size_t i = 0; i < at_most(stats->model_count, EB_METRICS_MODELS_MAX); i++) {
        const struct eb_stats_model *model = &stats->models[i];
        uint64_t counts[EB_VERSION_STATES] = {0};
        for (size_t n = 0; n < model->version_count; n++) {
            counts[model->versions[n].state]++;
        }
#define X(id, number, text)                                                                        \
    open_model(out, name, model->name);                                                            \
    fprintf(out, ",state=\"%s\"} %" PRIu64 "\n", text, counts[number]);
        EB_VERSION_STATE_LIST(X)
#undef X
    }
}

static void write_served(FILE *out, const struct eb_stats *stats)
{
    size_t count = at_most(stats->model_count, EB_METRICS_MODELS_MAX);
    static const char served[] = "embag_model_serving_version";
    static const char bad[] = "embag_model_faulty";
    begin(out, served, "gauge",
        "Version served to requests that do not name one; 0: none is served.");
    for (size_t i = 0; i < count; i++) {
        open_model(out, served, stats->models[i].name);
        fprintf(out, "} %" PRIu64 "\n", stats->models[i].served);
    }
    begin(out, bad, "gauge",
        "1 if a model's directory or model.yaml cannot be used; the model is then served as "
        "before.");
    for (size_t i = 0; i < count; i++) {
        open_model(out, bad, stats->models[i].name);
        fprintf(out, "} %d\n", stats->models[i].failure ? 1 : 0);
    }
}

static void write_claims(FILE *out, const struct eb_stats *stats)
{
    static const char name[] = "embag_claims";
    begin(out, name, "gauge",
        "Claims of routers on versions of a model: served = versions that they answer requests "
        "with, next = all other claimed versions.");
    for (size_t i = 0; i < at_most(stats->model_count, EB_METRICS_MODELS_MAX); i++) {
        const struct eb_stats_model *model = &stats->models[i];
        open_model(out, name, model->name);
        fprintf(out, ",slot=\"served\"} %zu\n", model->claims.served);
        open_model(out, name, model->name);
        fprintf(out, ",slot=\"next\"} %zu\n", model->claims.next);
    }
}

static void add_page_bytes(struct eb_stats_page_bytes *sum, const struct eb_stats_page_bytes *more)
{
    sum->small += more->small;
    sum->huge_2m += more->huge_2m;
    sum->huge_1g += more->huge_1g;
}

static void write_page_bytes(
    FILE *out, const char *name, const char *backing, const struct eb_stats_page_bytes *bytes)
{
    const struct {
        const char *page_size;
        uint64_t bytes;
    } rows[] = {{"small", bytes->small}, {"2m", bytes->huge_2m}, {"1g", bytes->huge_1g}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fprintf(out, "%s{backing=\"%s\",page_size=\"%s\"} %" PRIu64 "\n", name, backing,
            rows[i].page_size, rows[i].bytes);
    }
}

static void write_table_memory(FILE *out, const struct eb_stats *stats)
{
    static const char name[] = "embag_table_memory_bytes";
    struct eb_stats_page_bytes all = {0};
    struct eb_stats_page_bytes tmpfs = {0};
    struct eb_stats_page_bytes hugetlbfs = {0};
    for (size_t i = 0; i < stats->model_count; i++) {
        for (size_t n = 0; n < stats->models[i].version_count; n++) {
            const struct eb_stats_version *version = &stats->models[i].versions[n];
            add_page_bytes(&all, &version->pages);
            add_page_bytes(&tmpfs, &version->tmpfs_pages);
            add_page_bytes(&hugetlbfs, &version->hugetlbfs_pages);
        }
    }
    struct eb_stats_page_bytes anonymous = {
        .small = all.small - tmpfs.small - hugetlbfs.small,
        .huge_2m = all.huge_2m - tmpfs.huge_2m - hugetlbfs.huge_2m,
        .huge_1g = all.huge_1g - tmpfs.huge_1g - hugetlbfs.huge_1g,
    };
    begin(out, name, "gauge",
        "Memory of all tables in bytes, by page size and backing: anonymous memory, or resident "
        "files in a tmpfs or hugetlbfs.");
    write_page_bytes(out, name, "anonymous", &anonymous);
    write_page_bytes(out, name, "tmpfs", &tmpfs);
    write_page_bytes(out, name, "hugetlbfs", &hugetlbfs);
}

static void write_model_metrics(FILE *out, const struct eb_stats *stats)
{
    static const char loads[] = "embag_model_loads_total";
    write_served(out, stats);
    write_states(out, stats);
    write_claims(out, stats);
    write_versions(out, stats);
    begin(out, loads, "counter", "Finished loads of versions, by outcome.");
    fprintf(out, "%s{result=\"done\"} %" PRIu64 "\n", loads, stats->loads.done);
    fprintf(out, "%s{result=\"failed\"} %" PRIu64 "\n", loads, stats->loads.failed);
    write_count(out, "embag_model_versions_freed_total", "Versions unloaded from memory.",
        stats->loads.freed);
    write_gauge(out, "embag_model_versions_kept",
        "Versions no longer needed but kept in memory, for versions.keep_s or as spares.",
        stats->loads.kept);
    write_gauge(out, "embag_model_versions_kept_bytes",
        "Memory used only by kept versions, in bytes.", stats->loads.kept_bytes);
    write_count(out, "embag_model_versions_evicted_total",
        "Versions evicted before versions.keep_s was over because of kept_versions_max or "
        "kept_bytes_max.",
        stats->loads.evicted);
    write_table_memory(out, stats);
}

/* ---- the process ---- */

static void write_left_out(FILE *out, const struct eb_stats *stats)
{
    static const char name[] = "embag_left_out";
    size_t versions = 0;
    size_t models = at_most(stats->model_count, EB_METRICS_MODELS_MAX);
    struct named_tables tables = find_named(stats);
    struct version_at at = {.stats = stats};
    const struct eb_stats_model *model;
    const struct eb_stats_version *version;
    for (size_t i = 0; i < stats->model_count; i++) {
        versions += stats->models[i].version_count;
    }
    while (find_next(&at, &model, &version)) {
    }
    begin(out, name, "gauge",
        "Models, versions and tables without metrics of their own because there are too many.");
    fprintf(out, "%s{what=\"models\"} %zu\n", name, stats->model_count - models);
    fprintf(out, "%s{what=\"versions\"} %zu\n", name, versions - at.passed);
    fprintf(
        out, "%s{what=\"tables\"} %zu\n", name, stats->table_count - tables.first - tables.count);
}

static void write_server(FILE *out, const struct eb_metrics_source *source)
{
    static const char phase[] = "embag_phase";
    begin(out, phase, "gauge", "1 for the current phase of the server, 0 for the others.");
#define X(id, text)                                                                                \
    fprintf(out, "%s{phase=\"%s\"} %d\n", phase, text, source->stats->phase == EB_STATS_##id);
    EB_STATS_PHASE_LIST(X)
#undef X
    begin(out, "embag_build_info", "gauge",
        "Always 1; the labels hold embagd's version and instruction set.");
    fputs("embag_build_info{version=\"", out);
    write_escaped(out, source->version);
    fputs("\",isa=\"", out);
    write_escaped(out, source->isa);
    fputs("\"} 1\n", out);
}

/* Writes nothing but the description until the start is over. */
static void write_start(FILE *out, const struct eb_process_facts *facts)
{
    static const char name[] = "embag_start_seconds";
    begin(out, name, "gauge",
        "Time that each phase of the start took: scan (of the repository), adopt (resident files), "
        "load (other tables), tune (prefetching); absent until the server is ready.");
    if (!facts->is_started) {
        return;
    }
#define X(id, text)                                                                                \
    fprintf(out, "%s{phase=\"%s\"}", name, text);                                                  \
    write_seconds(out, (double)facts->start_ns[EB_STATS_START_##id] * 1e-9);
    EB_STATS_START_LIST(X)
#undef X
}

/* Writes the facts about the process. If there is no certificate, writes no expiry. If the
 * repository is scanned on command only, and could be read at start, does not write whether it can
 * be read, since that may have changed since the last scan. */
static void write_fact_metrics(FILE *out, const struct eb_process_facts *facts)
{
    static const char expiry[] = "embag_certificate_expiry_timestamp_seconds";
    static const char reloads[] = "embag_reloads_total";
    static const char readable[] = "embag_repository_readable";
    static const char read_bytes[] = "embag_load_read_bytes_total";
    begin(out, expiry, "gauge",
        "Time at which the server's certificate expires, since unix epoch in seconds; absent "
        "without one.");
    if (facts->certificate_expiry_unix_s != 0) {
        fprintf(out, "%s %" PRId64 "\n", expiry, facts->certificate_expiry_unix_s);
    }
    begin(out, reloads, "counter",
        "Reloads of the settings, the certificate and the auth_file, by outcome.");
    fprintf(out, "%s{result=\"done\"} %" PRIu64 "\n", reloads, facts->reloads_done);
    fprintf(out, "%s{result=\"failed\"} %" PRIu64 "\n", reloads, facts->reloads_failed);
    write_gauge(out, "embag_settings_pending_restart",
        "Settings that were read with another value, which takes effect at the next start.",
        facts->settings_pending);
    begin(out, readable, "gauge",
        "0 if the watched model repository cannot be read; the models then stay as they are.");
    if (facts->is_repository_watched) {
        fprintf(out, "%s %d\n", readable, !facts->is_repository_unreadable);
    }
    write_gauge(out, "embag_load_done_bytes",
        "Bytes loaded so far of the versions being loaded; 0: none is being loaded.",
        facts->load_done_bytes);
    write_gauge(out, "embag_load_total_bytes",
        "Total bytes of the versions being loaded; 0: none is being loaded.",
        facts->load_total_bytes);
    begin(out, read_bytes, "counter",
        "Bytes read from table files: cached in memory already, direct from the disk past the page "
        "cache, or plain through it.");
    fprintf(out, "%s{how=\"cached\"} %" PRIu64 "\n", read_bytes, facts->load_cached_bytes);
    fprintf(out, "%s{how=\"direct\"} %" PRIu64 "\n", read_bytes, facts->load_direct_bytes);
    fprintf(out, "%s{how=\"plain\"} %" PRIu64 "\n", read_bytes, facts->load_plain_bytes);
    write_gauge(out, "embag_load_threads",
        "Threads that load tables now, for all versions being loaded; 0: none is at work.",
        facts->load_threads);
    write_gauge(out, "embag_load_stalled",
        "Loads, and comparisons of resident tables with their files, that have waited long for a "
        "read; the log names the file (event=load_stalled).",
        facts->loads_stalled);
}

static void write_resident_gauge(FILE *out, const struct eb_resident_facts *facts, const char *name,
    const char *help, uint64_t value)
{
    begin(out, name, "gauge", help);
    if (facts->is_used) {
        fprintf(out, "%s %" PRIu64 "\n", name, value);
    }
}

/* Writes nothing but the descriptions if there is no resident directory. */
static void write_resident(FILE *out, const struct eb_resident_facts *facts)
{
    static const char bytes[] = "embag_resident_bytes";
    static const char tables[] = "embag_resident_tables_total";
    static const char *const outcomes[EB_STATS_RESIDENT_OUTCOMES] = {
        "adopted", "written", "rejected", "full", "small_pages", "failed"};
    begin(out, bytes, "gauge",
        "Bytes of resident files: mapped by this process, unused by it, or mapped but charged to "
        "another control group.");
    if (facts->is_used) {
        fprintf(out, "%s{state=\"mapped\"} %" PRIu64 "\n", bytes, facts->mapped_bytes);
        fprintf(out, "%s{state=\"unused\"} %" PRIu64 "\n", bytes, facts->unused_bytes);
        fprintf(
            out, "%s{state=\"charged_elsewhere\"} %" PRIu64 "\n", bytes, facts->uncharged_bytes);
    }
    begin(out, tables, "counter",
        "Tables that were to be resident, by what became of them. Those that are full, small_pages "
        "or failed are in ordinary memory.");
    for (size_t i = 0; facts->is_used && i < EB_STATS_RESIDENT_OUTCOMES; i++) {
        fprintf(out, "%s{outcome=\"%s\"} %" PRIu64 "\n", tables, outcomes[i], facts->tables[i]);
    }
    write_resident_gauge(out, facts, "embag_resident_free_bytes",
        "Bytes that the file system of the resident files can still take.", facts->free_bytes);
    write_resident_gauge(out, facts, "embag_resident_owner",
        "1 if this process may write resident files; 0 if another one does.", facts->is_owner);
    write_resident_gauge(out, facts, "embag_resident_served_complete",
        "1 if all that is served could be served again without the repository.",
        facts->is_complete);
}

/* ---- parts, of a router ---- */

/* Writes the value of the label `part`. */
static void write_part(FILE *out, uint32_t row)
{
    if (row < EB_ROUTE_PARTS_SHOWN) {
        fprintf(out, "part=\"%" PRIu32 "\"", row);
    } else {
        fputs("part=\"rest\"", out);
    }
}

/* Returns how many rows there are: for all parts of any version, and for those that had legs. */
static uint32_t count_rows(const struct eb_route_facts *facts, const struct eb_route_counts *counts)
{
    uint32_t count = 0;
    for (size_t i = 0; i < facts->model_count; i++) {
        for (int k = 0; k < EB_ROUTE_SLOTS; k++) {
            uint32_t rows = eb_route_stats_row_count(facts->models[i].slots[k].parts);
            count = rows > count ? rows : count;
        }
    }
    for (uint32_t row = count; row < EB_ROUTE_ROWS; row++) {
        for (int k = 0; k < EB_LEG_OUTCOMES; k++) {
            count = counts->rows[row].outcomes[k] > 0 ? row + 1 : count;
        }
    }
    return count;
}

static void write_legs(FILE *out, const struct eb_route_counts *counts, uint32_t row_count)
{
    static const char legs[] = "embag_route_legs_total";
    static const char seconds[] = "embag_route_leg_seconds";
    begin(out, legs, "counter",
        "Legs, the requests of a router to part servers, by part and outcome: unreached: no server "
        "of the part answered in time; failed: another error; cancelled: no longer needed. Part "
        "rest: parts from 64 on, here and in the next metrics.");
    for (uint32_t row = 0; row < row_count; row++) {
        for (int k = 0; k < EB_LEG_OUTCOMES; k++) {
            fprintf(out, "%s{", legs);
            write_part(out, row);
            fprintf(out, ",outcome=\"%s\"} %" PRIu64 "\n",
                eb_leg_outcome_name((enum eb_leg_outcome)k), counts->rows[row].outcomes[k]);
        }
    }
    begin(out, seconds, "histogram",
        "Time of legs that were answered, from the first attempt to the answer, by part.");
    for (uint32_t row = 0; row < row_count; row++) {
        const struct eb_histogram *answers = &counts->rows[row].answers;
        char label[32] = "part=\"rest\",";
        if (row < EB_ROUTE_PARTS_SHOWN) {
            snprintf(label, sizeof label, "part=\"%" PRIu32 "\",", row);
        }
        write_buckets(out, seconds, label, answers);
        fprintf(out, "%s_sum{", seconds);
        write_part(out, row);
        fputc('}', out);
        write_seconds(out, (double)answers->sum_ns * 1e-9);
        fprintf(out, "%s_count{", seconds);
        write_part(out, row);
        fprintf(out, "} %" PRIu64 "\n", eb_histogram_count(answers));
    }
}

/* Writes what is not told by part. */
static void write_leg_sums(FILE *out, const struct eb_route_counts *counts)
{
    static const char bytes[] = "embag_route_leg_bytes_total";
    static const char resends[] = "embag_route_resends_total";
    static const char hedges[] = "embag_route_hedges_total";
    struct eb_leg_counters sum = {0};
    for (uint32_t row = 0; row < EB_ROUTE_ROWS; row++) {
        eb_leg_counters_merge(&sum, &counts->rows[row]);
    }
    begin(out, bytes, "counter",
        "Bytes of messages sent to part servers, all attempts included, and received from them.");
    fprintf(out, "%s{direction=\"sent\"} %" PRIu64 "\n", bytes, sum.sent_bytes);
    fprintf(out, "%s{direction=\"received\"} %" PRIu64 "\n", bytes, counts->totals.received_bytes);
    begin(out, resends, "counter",
        "Legs sent again, by reason: the connection was lost, the server refused, it did not have "
        "the version, it was silent, or an error ended its stream.");
    for (int i = 0; i < EB_LEG_RESENDS; i++) {
        fprintf(out, "%s{reason=\"%s\"} %" PRIu64 "\n", resends,
            eb_leg_resend_name((enum eb_leg_resend)i), sum.resends[i]);
    }
    begin(out, hedges, "counter",
        "Hedges of legs that are over, by whether they were answered first.");
    fprintf(out, "%s{won=\"true\"} %" PRIu64 "\n", hedges, sum.hedges_won);
    fprintf(out, "%s{won=\"false\"} %" PRIu64 "\n", hedges, sum.hedges_lost);
    write_count(out, "embag_route_unreached_total",
        "Indices that lookups with allow_incomplete left out because their part was not reached.",
        counts->totals.unreached);
    write_count(out, "embag_route_slab_waits_total",
        "Lookups of which not all legs could be sent at once, because their answers would have "
        "taken more memory than route_slab_bytes allows.",
        counts->totals.slab_waits);
}

static void write_by_row(FILE *out, const char *name, const char *type, const char *help,
    const uint64_t *values, uint32_t row_count)
{
    begin(out, name, type, help);
    for (uint32_t row = 0; row < row_count; row++) {
        fprintf(out, "%s{", name);
        write_part(out, row);
        fprintf(out, "} %" PRIu64 "\n", values[row]);
    }
}

static void write_leg_refusals(FILE *out, const struct eb_route_counts *counts, uint32_t row_count)
{
    uint64_t refusals[EB_ROUTE_ROWS];
    for (uint32_t row = 0; row < EB_ROUTE_ROWS; row++) {
        refusals[row] = counts->rows[row].refusals;
    }
    write_by_row(out, "embag_route_bulkhead_refusals_total", "counter",
        "Legs that were not sent, so that their lookups ended with RESOURCE_EXHAUSTED: those that "
        "wait for the part held a quarter of a loop's answer memory.",
        refusals, row_count);
}

static void write_excluded(FILE *out, const struct eb_stats *stats,
    const struct eb_route_counts *counts, uint32_t row_count)
{
    uint64_t suspects[EB_ROUTE_ROWS] = {0};
    uint64_t ejected[EB_ROUTE_ROWS] = {0};
    for (size_t i = 0; i < counts->peer_count; i++) {
        const struct eb_leg_peer *peer = &counts->peers[i];
        uint32_t part = eb_route_facts_part(stats->route_facts, peer->instance);
        if (part != EB_ROUTE_NO_PART) {
            suspects[eb_route_row(part)] += peer->is_suspect;
            ejected[eb_route_row(part)] += peer->is_ejected;
        }
    }
    write_by_row(out, "embag_route_suspects", "gauge",
        "Servers of a part that do not answer at all, according to any loop of the router: legs go "
        "to others.",
        suspects, row_count);
    write_by_row(out, "embag_route_ejected", "gauge",
        "Servers of a part that get no legs for a while because most of their legs failed, "
        "according to any loop of the router.",
        ejected, row_count);
}

static void open_slot(FILE *out, const char *name, const struct eb_route_model *model, int slot)
{
    open_model(out, name, model->name);
    fprintf(out, ",slot=\"%s\"", eb_route_slot_name((enum eb_route_slot_name)slot));
}

/* Writes the replicas of each part. Returns how many slots are left out. */
static uint32_t write_replicas(FILE *out, const struct eb_route_facts *facts)
{
    static const char name[] = "embag_route_replicas";
    uint32_t left_out = 0;
    uint32_t written = 0;
    begin(out, name, "gauge",
        "Servers that have a part of a version READY; part rest: the fewest of any of these.");
    for (size_t i = 0; i < facts->model_count; i++) {
        const struct eb_route_model *model = &facts->models[i];
        for (int k = 0; k < EB_ROUTE_SLOTS; k++) {
            uint32_t rows = eb_route_stats_row_count(model->slots[k].parts);
            if (written + rows > EB_METRICS_REPLICAS_MAX) {
                left_out++;
                continue;
            }
            for (uint32_t row = 0; row < rows; row++) {
                open_slot(out, name, model, k);
                fputc(',', out);
                write_part(out, row);
                fprintf(out, "} %u\n", model->slots[k].replicas[row]);
            }
            written += rows;
        }
    }
    return left_out;
}

static void write_route_versions(FILE *out, const struct eb_route_facts *facts)
{
    static const char complete[] = "embag_route_complete";
    static const char version[] = "embag_route_version";
    static const char behind[] = "embag_route_version_behind";
    size_t count = at_most(facts->model_count, EB_METRICS_MODELS_MAX);
    begin(out, version, "gauge",
        "Versions that a router serves, waits for (next) and served before (previous); 0: none.");
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < EB_ROUTE_SLOTS; k++) {
            open_slot(out, version, &facts->models[i], k);
            fprintf(out, "} %" PRIu64 "\n", facts->models[i].slots[k].version);
        }
    }
    begin(out, complete, "gauge",
        "1 if every part of a version is READY at some server, and its tables placed everywhere "
        "are loaded here.");
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < EB_ROUTE_SLOTS; k++) {
            if (facts->models[i].slots[k].version != 0) {
                open_slot(out, complete, &facts->models[i], k);
                fprintf(out, "} %d\n", facts->models[i].slots[k].is_complete);
            }
        }
    }
    begin(out, behind, "gauge",
        "1 if a higher version than the served one is published, or if a command or model.yaml "
        "serves another version than the one that is served.");
    for (size_t i = 0; i < count; i++) {
        open_model(out, behind, facts->models[i].name);
        fprintf(out, "} %d\n", facts->models[i].is_behind);
    }
}

static void write_route_facts(FILE *out, const struct eb_route_facts *facts)
{
    static const char flips[] = "embag_route_flips_total";
    begin(out, flips, "counter",
        "Changes of the version that a router serves: to the next one (forward), or from one that "
        "is no longer complete to a lower one (back).");
    fprintf(out, "%s{direction=\"forward\"} %" PRIu64 "\n", flips, facts->flips);
    fprintf(out, "%s{direction=\"back\"} %" PRIu64 "\n", flips, facts->back_outs);
    write_gauge(out, "embag_route_digest_conflict",
        "1 if a part server has other files than the router under the number of some version.",
        facts->has_conflict);
    write_gauge(out, "embag_route_connected",
        "Part servers that are connected and have said what they have.", facts->connected);
    write_gauge(out, "embag_route_replicas_wanted",
        "Replicas that each part of a version should have (flip_replicas).", facts->replicas);
    uint32_t left_out = write_replicas(out, facts);
    write_gauge(out, "embag_route_replicas_left_out",
        "Version slots (served, next, previous) left out of embag_route_replicas because of its "
        "limit of 5000 values.",
        left_out);
    write_route_versions(out, facts);
}

/* Writes what a router counts and knows; nothing if this is no router. */
static void write_route(FILE *out, const struct eb_stats *stats)
{
    static const struct eb_route_counts none;
    const struct eb_route_counts *counts = stats->route ? stats->route : &none;
    if (!stats->route_facts) {
        return;
    }
    uint32_t row_count = count_rows(stats->route_facts, counts);
    write_legs(out, counts, row_count);
    write_leg_sums(out, counts);
    write_leg_refusals(out, counts, row_count);
    write_excluded(out, stats, counts, row_count);
    write_route_facts(out, stats->route_facts);
}

static void write_limits(FILE *out, const struct eb_metrics_limits *limits)
{
    static const char name[] = "embag_limit";
    begin(out, name, "gauge", "Limits that are set, for comparison with other metrics.");
#define X(member) fprintf(out, "%s{name=\"" #member "\"} %" PRIu64 "\n", name, limits->member);
    EB_METRICS_LIMIT_LIST(X)
#undef X
}

static void write_process(FILE *out, const struct eb_metrics_source *source)
{
    const struct eb_process_usage *usage = source->usage;
    begin(out, "process_cpu_seconds_total", "counter",
        "Total user and system CPU time spent in seconds.");
    fputs("process_cpu_seconds_total", out);
    write_seconds(out, usage->cpu_seconds);
    begin(out, "process_start_time_seconds", "gauge",
        "Start time of the process since unix epoch in seconds.");
    fprintf(
        out, "process_start_time_seconds %.3f\n", (double)source->stats->started_unix_ms * 1e-3);
    write_gauge(out, "process_resident_memory_bytes", "Resident memory size in bytes.",
        usage->resident_bytes);
    write_gauge(
        out, "process_virtual_memory_bytes", "Virtual memory size in bytes.", usage->virtual_bytes);
    write_gauge(out, "process_open_fds", "Number of open file descriptors.", usage->open_files);
    write_gauge(
        out, "process_max_fds", "Maximum number of open file descriptors.", usage->open_files_max);
    write_gauge(out, "process_threads", "Number of OS threads in the process.", usage->threads);
}

char *eb_metrics_text_write(const struct eb_metrics_source *source, size_t *size)
{
    const struct eb_stats *stats = source->stats;
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    if (!out) {
        return NULL;
    }
    write_counter_metrics(out, stats);
    write_loop_metrics(out, stats);
    write_executor_metrics(out, &stats->executor);
    write_table_metrics(out, stats);
    write_model_metrics(out, stats);
    write_left_out(out, stats);
    write_server(out, source);
    write_start(out, &stats->facts);
    write_fact_metrics(out, &stats->facts);
    write_resident(out, &stats->facts.resident);
    write_route(out, stats);
    write_limits(out, &stats->facts.limits);
    write_process(out, source);
    bool is_whole = !ferror(out);
    if (fclose(out) != 0 || !is_whole) {
        free(text);
        return NULL;
    }
    return text;
}
