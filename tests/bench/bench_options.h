/* What is asked of the benchmark on its command line. Where a flag takes a list, every combination
 * of all lists is measured.
 * Thread: main. Memory: texts are borrowed from the arguments. */
#pragma once

#include "client/cli/arguments.h"
#include "client/cli/workload.h"
#include "kernels/bag_schedule.h"
#include "server/base/page_size.h"
#include "tests/bench/bench_case.h"
#include "tests/bench/bench_echo.h"

#define EB_BENCH_LIST_MAX 16
/* Most rows of a table. */
#define EB_BENCH_ROWS_MAX UINT32_MAX

/* Values of a flag: numbers, or of an enum. */
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
    uint64_t rows;                      /* 0: as many as table_bytes hold */
    uint64_t table_bytes;               /* of elements, scales and biases */
    const struct eb_workload *workload; /* NULL: one table */
    uint64_t scale;                     /* of the workload's rows */
    uint64_t samples;                   /* bags of each of its tables */
    enum eb_reduction reduction;
    enum eb_type output_type; /* unspecified: the table's */
    enum eb_page_size pages;
    enum eb_page_size peer_pages;
    const struct eb_bag_ops *ops;
    bool is_prefetch_measured; /* on each table */
    bool is_prefetch_set;      /* `schedule` for all rows; neither: what is built in */
    struct eb_bag_schedule schedule;
    uint64_t seed;
    uint64_t pairs;
    uint64_t reading_us;               /* 0: as suits the number of threads */
    struct eb_bench_echo_sizes served; /* zero unless the case is served instead of measured */
    bool has_scales_apart;
    bool is_weighted;
    bool is_keyed; /* the check pass by key too; not with a workload */
    bool is_ahead;
    bool is_json;
    bool has_no_peer;
    bool has_no_roofline;
};

/* Reads the command line; what is wrong is said on stderr. */
enum eb_arguments_outcome eb_bench_options_read(
    struct eb_bench_options *out, int argument_count, char **arguments);

/* A table as the options want it, but for its rows and seed. */
struct eb_bench_table_spec eb_bench_options_table(
    const struct eb_bench_options *options, enum eb_storage storage, uint32_t dim);

/* The names of states, by number. */
const char *eb_bench_options_state_name(enum eb_bench_state state);
/* "2m", "1g", "4k". */
const char *eb_bench_options_page_name(enum eb_page_size pages);
