#include "server/stats/access_log.h"

#include "server/base/log.h"
#include "server/work/queue.h"

#include <assert.h>

/* Most fields of a line, with the field that ends them. */
#define FIELDS_MAX 27

const char *const eb_access_log_mode_names[] = {"errors", "off", "sampled", "all", NULL};

/* The fields of a line, with a field without a key at the end. */
struct fields {
    size_t count;
    struct eb_log_field list[FIELDS_MAX];
};

void eb_access_log_set(
    struct eb_access_log *log, enum eb_access_log_mode mode, uint32_t sample, uint32_t per_s_max)
{
    assert(sample > 0 && per_s_max > 0);
    log->mode = mode;
    log->sample = sample;
    log->passed = log->passed < sample ? log->passed : 0;
    log->failures.lines_max = per_s_max;
    log->successes.lines_max = per_s_max;
}

bool eb_access_log_admits(struct eb_access_log *log, bool is_good, uint64_t now_ms)
{
    (void)eb_access_log_report(log, now_ms);
    return eb_log_rate_limit_allows(is_good ? &log->successes : &log->failures, now_ms);
}

static void add(struct fields *fields, struct eb_log_field field)
{
    assert(fields->count < FIELDS_MAX - 1);
    fields->list[fields->count++] = field;
}

static void add_lookup(struct fields *fields, const struct eb_access_record *record)
{
    add(fields, eb_log_count("queue_us", record->queue_ns / 1000));
    add(fields, eb_log_count("compute_us", record->compute_ns / 1000));
    add(fields, eb_log_count("queries", record->queries));
    add(fields, eb_log_count("bags", record->bags));
    add(fields, eb_log_count("rows", record->rows));
    add(fields, eb_log_count("missing", record->missing));
    add(fields, eb_log_count("in_bytes", record->in_bytes));
    add(fields, eb_log_count("out_bytes", record->out_bytes));
    add(fields, eb_log_count("request_id", record->request_id));
    add(fields, eb_log_text("priority",
                    eb_work_priority_name(record->is_batch ? EB_WORK_BATCH : EB_WORK_INTERACTIVE)));
    add(fields, eb_log_count("version", record->version));
    if (record->model[0] != '\0') {
        add(fields, eb_log_text("model", record->model));
    }
}

static void add_trace(struct fields *fields, const struct eb_trace_parent *trace)
{
    if (trace->trace_id[0] != '\0') {
        add(fields, eb_log_text("trace_id", trace->trace_id));
        /* The server makes no span of its own, so the line belongs to the caller's. */
        add(fields, eb_log_text("span_id", trace->parent_id));
        add(fields, eb_log_text("parent_id", trace->parent_id));
        add(fields, eb_log_truth("sampled", trace->is_sampled));
    }
}

/* Writes the line of a request. Fields that can be long come last, so that they hide no other if
 * they fill the line. */
void eb_access_log_write(const struct eb_access_record *record)
{
    struct fields fields = {0};
    add(&fields, eb_log_text("code", eb_status_name((int)record->status)));
    add(&fields, eb_log_text("method", record->method));
    add(&fields, eb_log_truth("stream", record->is_stream));
    add(&fields, eb_log_text("peer", record->peer));
    add_trace(&fields, record->trace);
    if (record->is_timed) {
        add(&fields, eb_log_count("total_us", record->total_ns / 1000));
    }
    if (record->is_lookup) {
        add_lookup(&fields, record);
    }
    if (record->is_unsent) {
        add(&fields, eb_log_count("request_id", record->request_id));
    }
    if (record->principal) {
        add(&fields, eb_log_text("principal", record->principal));
    }
    if (record->error) {
        add(&fields, eb_log_text("error", record->error));
    }
    eb_log_write(EB_LOG_INFO, record->is_unsent ? "answer_unsent" : "request", fields.list);
}

bool eb_access_log_report(struct eb_access_log *log, uint64_t now_ms)
{
    uint64_t failures = eb_log_rate_limit_take_left_out(&log->failures, now_ms);
    uint64_t successes = eb_log_rate_limit_take_left_out(&log->successes, now_ms);
    if (failures + successes > 0) {
        eb_log(EB_LOG_WARN, "requests_not_logged", eb_log_count("failed", failures),
            eb_log_count("good", successes),
            eb_log_text(
                "remedy", "raise access_log_per_s_max, or log fewer requests (access_log)"));
    }
    return log->failures.left_out + log->successes.left_out > 0;
}
