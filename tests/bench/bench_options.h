/* The options of the benchmark's command line. If flags take lists, every combination of their
 * values is measured.
 * Thread: main. Memory: texts are borrowed from the arguments. */
#pragma once

#include "client/cli/arguments.h"
#include "client/cli/workload.h"
#include "kernels/bag_schedule.h"
#include "server/base/page_size.h"
#include "tests/bench/bench_case.h"
#include "tests/bench/bench_echo.h"

#define EB_BENCH_LIST_MAX 16
/* Limit on the rows of a table. */
#define EB_BENCH_ROWS_MAX UINT32_MAX

/* Values of a flag: numbers, or values of an enum. */
struct eb_bench_list {
    uint64_t values[EB_BENCH_LIST_MAX];
    unsigned count;
};

struct eb_bench_options {
    struct eb_bench_list storages;
    struct eb_bench_list dims;
    struct eb_bench_list bags;
    struct eb_bench_list indices_per_bag;
    struct eb_bench_list states; /* enum eb_bench_state */
    struct eb_bench_list thread_counts;
    struct eb_sampler_distribution distributions[EB_BENCH_LIST_MAX];
    unsigned distribution_count;
    uint64_t rows;                      /* 0: as many as fit into table_bytes */
    uint64_t table_bytes;               /* bytes of elements, scales and biases */
    const struct eb_workload *workload; /* NULL: one table */
    uint64_t scale;                     /* divisor of the workload's rows */
    uint64_t samples;                   /* bags for each of the workload's tables */
    enum eb_reduction reduction;
    enum eb_type output_type; /* unspecified: the table's own type */
    enum eb_page_size pages;
    enum eb_page_size peer_pages;
    const struct eb_bag_ops *ops;
    /* If neither is true, the default schedules are used. */
    bool is_prefetch_measured; /* whether schedules are measured on each table */
    bool is_prefetch_set;      /* whether `schedule` is used for all rows */
    struct eb_bag_schedule schedule;
    uint64_t seed;
    uint64_t pairs;
    uint64_t reading_us;               /* 0: depends on the number of threads */
    struct eb_bench_echo_sizes served; /* zero unless the case is served instead of measured */
    bool has_scales_apart;
    bool is_weighted;
    bool is_keyed; /* whether the check pass by key is measured too; not with a workload */
    bool is_ahead;
    bool is_json;
    bool has_no_peer;
    bool has_no_roofline;
};

/* Reads the command line. Reports errors on stderr. */
enum eb_arguments_outcome eb_bench_options_read(
    struct eb_bench_options *out, int argument_count, char **arguments);

/* Returns the spec of a table as the options define it. The caller sets row_count and seed. */
struct eb_bench_table_spec eb_bench_options_table(
    const struct eb_bench_options *options, enum eb_storage storage, uint32_t dim);

/* Returns the name of a state. */
const char *eb_bench_options_state_name(enum eb_bench_state state);
/* Returns "2m", "1g" or "4k". */
const char *eb_bench_options_page_name(enum eb_page_size pages);
