#include "client/cli/load_report.h"
#include "client/cli/load_run.h"
#include "tests/bench/redis_link.h"
#include "tests/bench/redis_options.h"
#include "tests/bench/redis_run.h"

#include <stdio.h>
#include <stdlib.h>

static int fill(const struct eb_redis_options *options)
{
    const struct eb_workload *workload = options->load.workload;
    char name[EB_WORKLOAD_TABLE_NAME_BYTES];
    eb_workload_table_name(0, name);
    struct redisContext *link = eb_redis_link_open(options->load.server);
    bool is_good = link && eb_redis_link_fill(link, name,
                               eb_workload_rows(workload, 0, options->scale), workload->dim);
    eb_redis_link_close(link);
    return is_good ? 0 : 1;
}

/* Describes the only table, which has as many rows as the store. */
static struct eb_load_table describe(
    const struct eb_load_options *options, char *name, uint64_t row_count)
{
    eb_workload_table_name(0, name);
    return (struct eb_load_table){
        .name = name,
        .row_count = row_count,
        .column_count = options->workload->dim,
        .indices_per_bag = eb_workload_indices_per_bag(options->workload, 0),
        .is_f32 = true,
    };
}

static int tell(const struct eb_redis_run *run, const struct eb_load_result *result, double cpu_us)
{
    struct eb_load_subject subject = {run->options, run->pool->target, run->pool};
    json_t *object = eb_load_report_json(&subject, result);
    double answers = (double)result->stats.by_status[0];
    double rows = answers * (double)run->pool->request_indices;
    if (!object || json_object_set_new(object, "mode", json_string("mget")) != 0 ||
        json_object_set_new(object, "rows_per_s", json_real(rows / result->seconds)) != 0 ||
        json_object_set_new(object, "server_cpu_us", json_real(cpu_us / answers)) != 0) {
        json_decref(object);
        fprintf(stderr, "embag-peer-redis: not enough memory for the figures\n");
        return 1;
    }
    int rc = json_dumpf(object, stdout, JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(object);
    return rc == 0 && result->stats.wrong_count == 0 ? 0 : 1;
}

/* Warms up in a separate run, so that the server's CPU time covers only the measured run. */
static int run_redis(struct eb_redis_run *wanted, struct redisContext *control)
{
    struct eb_load_result *result = calloc(1, sizeof *result);
    int status = 1;
    wanted->duration_s = wanted->options->warmup_s;
    bool is_good = result && eb_redis_run(wanted, result);
    wanted->duration_s = wanted->options->duration_s;
    double before_us = eb_redis_link_cpu_us(control);
    if (is_good && eb_redis_run(wanted, result)) {
        double after_us = eb_redis_link_cpu_us(control);
        if (result->stats.first_error.status != EMBAG_OK) {
            fprintf(
                stderr, "embag-peer-redis: requests failed: %s\n", result->stats.first_error.text);
        }
        if (eb_load_stats_has_answers(&result->stats)) {
            status = tell(wanted, result, after_us - before_us);
        }
    }
    free(result);
    return status;
}

static int ask_redis(const struct eb_load_options *options)
{
    char name[EB_WORKLOAD_TABLE_NAME_BYTES];
    struct redisContext *control = eb_redis_link_open(options->server);
    uint64_t row_count = control ? eb_redis_link_count(control) : 0;
    struct eb_load_table table = describe(options, name, row_count);
    struct eb_load_target target = {
        .model = (char *)(uintptr_t)options->workload->name, .table_count = 1, .tables = &table};
    struct eb_load_pool pool = {0};
    struct redisContext *link = NULL;
    int status = 1;
    if (control && row_count == 0) {
        fprintf(stderr, "embag-peer-redis: the server has no rows: fill it with --fill\n");
    } else if (control && eb_load_pool_init(&pool, options, &target)) {
        link = eb_redis_link_open_nonblocking(options->server);
        struct eb_redis_run wanted = {.options = options, .pool = &pool, .link = link};
        eb_load_interrupt_init();
        status = link ? run_redis(&wanted, control) : 1;
    }
    eb_redis_link_close(link);
    eb_redis_link_close(control);
    eb_load_pool_deinit(&pool);
    return status;
}

int main(int argument_count, char **arguments)
{
    struct eb_redis_options options;
    switch (eb_redis_options_read(&options, argument_count, arguments)) {
    case EB_ARGUMENTS_READ: return options.is_fill ? fill(&options) : ask_redis(&options.load);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}
