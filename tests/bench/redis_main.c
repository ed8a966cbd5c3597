#include "client/cli/load_report.h"
#include "client/cli/load_run.h"
#include "tests/bench/redis_link.h"
#include "tests/bench/redis_options.h"
#include "tests/bench/redis_run.h"

#include <stdio.h>
#include <stdlib.h>

static int fill(const struct eb_redis_options *options)
{
    struct eb_redis_link link;
    bool is_good = eb_redis_link_open(&link, options->load.server, true) &&
                   eb_redis_link_fill(&link, options->load.workload, options->scale);
    eb_redis_link_close(&link);
    return is_good ? 0 : 1;
}

/* The tables of a workload, as a load describes them. */
struct described {
    char names[EB_REDIS_TABLES_MAX][EB_WORKLOAD_TABLE_NAME_BYTES];
    struct eb_load_table tables[EB_REDIS_TABLES_MAX];
    uint64_t row_count; /* of all tables */
};

static void describe(struct described *out, const struct eb_redis_options *options)
{
    const struct eb_workload *workload = options->load.workload;
    for (uint32_t i = 0; i < workload->table_count; i++) {
        eb_workload_table_name(i, out->names[i]);
        out->tables[i] = (struct eb_load_table){
            .name = out->names[i],
            .row_count = eb_workload_rows(workload, i, options->scale),
            .column_count = workload->dim,
            .indices_per_bag = eb_workload_indices_per_bag(workload, i),
            .is_f32 = true,
        };
        out->row_count += out->tables[i].row_count;
    }
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

/* Returns whether no answer is left that would come in the next run. */
static bool check_answered(const struct eb_load_result *result)
{
    if (result->lost_count > 0) {
        fprintf(stderr,
            "embag-peer-redis: %llu requests of the warm-up were not answered in time: give a "
            "lower --in-flight or --rate\n",
            (unsigned long long)result->lost_count);
    }
    return result->lost_count == 0;
}

/* Warms up in a separate run, so that the server's CPU time covers only the measured run. */
static int run_redis(struct eb_redis_run *wanted, struct eb_redis_link *control)
{
    struct eb_load_result *result = calloc(1, sizeof *result);
    int status = 1;
    wanted->duration_s = wanted->options->warmup_s;
    bool is_good = result && eb_redis_run(wanted, result) && check_answered(result);
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

/* Returns whether the servers have as many rows as the tables. */
static bool check_rows(struct eb_redis_link *control, uint64_t expected)
{
    uint64_t count = eb_redis_link_count(control);
    if (count != expected) {
        fprintf(stderr,
            "embag-peer-redis: the servers have %llu rows, expected %llu: fill them with --fill "
            "and the same --workload and --scale\n",
            (unsigned long long)count, (unsigned long long)expected);
    }
    return count == expected;
}

static int ask_redis(const struct eb_redis_options *options)
{
    struct described *described = calloc(1, sizeof *described);
    struct eb_redis_link control = {0};
    struct eb_redis_link link = {0};
    struct eb_load_pool pool = {0};
    int status = 1;
    if (!described) {
        fprintf(stderr, "embag-peer-redis: not enough memory for the tables\n");
        return 1;
    }
    describe(described, options);
    struct eb_load_target target = {.model = (char *)(uintptr_t)options->load.workload->name,
        .table_count = options->load.workload->table_count,
        .tables = described->tables};
    if (eb_redis_link_open(&control, options->load.server, true) &&
        check_rows(&control, described->row_count) &&
        eb_load_pool_init(&pool, &options->load, &target) &&
        eb_redis_link_open(&link, options->load.server, false)) {
        struct eb_redis_run wanted = {.options = &options->load, .pool = &pool, .link = &link};
        eb_load_interrupt_init();
        status = run_redis(&wanted, &control);
    }
    eb_redis_link_close(&link);
    eb_redis_link_close(&control);
    eb_load_pool_deinit(&pool);
    free(described);
    return status;
}

int main(int argument_count, char **arguments)
{
    struct eb_redis_options options;
    switch (eb_redis_options_read(&options, argument_count, arguments)) {
    case EB_ARGUMENTS_READ: return options.is_fill ? fill(&options) : ask_redis(&options);
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: return 2;
    }
    return 2;
}
