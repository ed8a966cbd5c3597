#include "tests/bench/bench_session.h"

#include "kernels/bag_tune.h"
#include "tests/bench/bench_floor.h"
#include "tests/bench/bench_memory.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/bench_theirs.h"
#include "tests/bench/bench_verify.h"

#include <stdio.h>
#include <stdlib.h>

/* Length of a reading. With several threads it is much longer than they need to synchronise. */
#define READING_US 200
#define READING_US_TEAM 1000
#define READINGS_PER_TURN 6

void eb_bench_session_adopt(
    struct eb_bench_session *session, const struct eb_bench_table *tables, unsigned count)
{
    const struct eb_bench_options *options = session->options;
    eb_bag_tune_find_defaults(&session->schedules);
    if (options->is_prefetch_set) {
        eb_bag_schedule_spread(&options->schedule, &session->schedules);
    }
    if (!options->is_prefetch_measured) {
        return;
    }
    struct eb_bag_tune_report report;
    struct eb_bag_tune_ground ground = {0};
    for (unsigned i = 0; i < count; i++) {
        eb_bag_tune_add(&ground, &tables[i].table);
    }
    struct eb_bag_tune_task task = {
        .ops = options->ops,
        .ground = &ground,
        .scratch = eb_bench_memory_take(sizeof(struct eb_bag_tune_scratch)),
    };
    eb_bag_tune(&task, &session->schedules, &report);
    free(task.scratch);
}

void eb_bench_session_init(struct eb_bench_session *session, const struct eb_bench_options *options)
{
    *session = (struct eb_bench_session){
        .options = options,
        .plan = {.pair_count = (unsigned)options->pairs, .reading_count = READINGS_PER_TURN},
    };
}

struct eb_bench_case eb_bench_session_model(
    const struct eb_bench_session *session, enum eb_storage storage)
{
    const struct eb_bench_options *options = session->options;
    return (struct eb_bench_case){
        .reduction = options->reduction,
        .output_type = options->output_type ? options->output_type : eb_storage_type(storage),
        .ops = options->ops,
        .schedules = &session->schedules,
        .is_ahead = options->is_ahead,
    };
}

bool eb_bench_session_vary(struct eb_bench_session *session, struct eb_bench_case *bench,
    bool (*measure)(
        struct eb_bench_session *session, const struct eb_bench_case *bench, const void *context),
    const void *context)
{
    const struct eb_bench_options *options = session->options;
    for (unsigned i = 0; i < options->thread_counts.count; i++) {
        for (unsigned j = 0; j < options->states.count; j++) {
            bench->thread_count = (unsigned)options->thread_counts.values[i];
            bench->state = (enum eb_bench_state)options->states.values[j];
            session->roofline_ns_per_row = 0;
            if (!measure(session, bench, context)) {
                return false;
            }
        }
    }
    return true;
}

/* Returns FBGEMM's kernel for the case, or NULL if it has none or the options exclude it. */
static struct eb_fbgemm_kernel *make_kernel_peer(
    const struct eb_bench_session *session, const struct eb_bench_case *bench, bool *is_tuned)
{
    struct eb_fbgemm_shape shape;
    if (session->options->has_no_peer || !eb_bench_theirs_shape(bench, &shape)) {
        return NULL;
    }
    *is_tuned = eb_fbgemm_is_tuned(&shape);
    return eb_fbgemm_create(&shape);
}

static bool verify(const struct eb_bench_case *bench, const struct eb_fbgemm_kernel *peer)
{
    double ours = eb_bench_verify_ours(bench);
    double theirs = peer ? eb_bench_verify_theirs(bench, peer) : 0;
    if (ours > 1 || theirs > 1) {
        fprintf(stderr,
            "embag-bench: wrong results: errors are %g (ours) and %g (FBGEMM) times the allowed "
            "ones\n",
            ours, theirs);
    }
    return ours <= 1 && theirs <= 1;
}

static void choose_reading(struct eb_bench_session *session, const struct eb_bench_case *bench)
{
    session->plan.reading_us = bench->thread_count > 1 ? READING_US_TEAM : READING_US;
    if (session->options->reading_us > 0) {
        session->plan.reading_us = (double)session->options->reading_us;
    }
}

static void measure_verified(struct eb_bench_session *session, const struct eb_bench_case *bench,
    struct eb_fbgemm_kernel *peer, bool is_peer_tuned)
{
    const struct eb_bench_options *options = session->options;
    choose_reading(session, bench);
    if (!options->has_no_roofline &&
        (session->roofline_ns_per_row <= 0 || bench->state == EB_BENCH_HOT)) {
        session->roofline_ns_per_row =
            eb_bench_measure_roofline(bench, &session->plan, &session->roofline_way);
    }
    struct eb_bench_report report = {.options = options,
        .bench = bench,
        .distribution = session->distribution,
        .figures = eb_bench_measure_case(bench, &session->plan, peer),
        .roofline_ns_per_row = session->roofline_ns_per_row,
        .roofline_way = session->roofline_way,
        .pages = session->pages,
        .peer_pages = session->peer_pages,
        .is_peer_tuned = is_peer_tuned};
    eb_bench_report_print(stdout, &report);
}

bool eb_bench_session_measure(struct eb_bench_session *session, const struct eb_bench_case *bench)
{
    const struct eb_bench_echo_sizes *served = &session->options->served;
    bool is_tuned = false;
    struct eb_fbgemm_kernel *peer = make_kernel_peer(session, bench, &is_tuned);
    bool good = verify(bench, peer);
    if (good && served->answer_count > 0) {
        eb_bench_floor_serve(bench, served);
        good = false;
    } else if (good) {
        measure_verified(session, bench, peer, is_tuned);
    }
    eb_fbgemm_destroy(peer);
    return good;
}
