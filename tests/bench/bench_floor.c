#include "tests/bench/bench_floor.h"

#include "tests/bench/bench_ours.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

struct floor {
    struct eb_bench_ours ours;
    uint64_t position;
    uint64_t head_bytes; /* bytes of an answer before its results */
};

static void make_answer(void *self, uint8_t *answer)
{
    struct floor *floor = self;
    eb_bench_ours_call(&floor->ours, floor->position++, answer + floor->head_bytes);
}

static void listen_and_serve(const struct eb_bench_echo *echo)
{
    int listener = eb_bench_echo_listen();
    if (listener >= 0) {
        eb_bench_echo_serve(echo, listener);
        (void)close(listener);
    }
}

void eb_bench_floor_serve(
    const struct eb_bench_case *bench, const struct eb_bench_echo_sizes *sizes)
{
    uint64_t results_bytes = eb_bench_case_result_offset(bench, bench->feed_count);
    if (results_bytes > sizes->answer_bytes) {
        fprintf(stderr,
            "embag-bench: --serve: an answer of %" PRIu64 " bytes is too small for the results of "
            "a call: expected at least %" PRIu64 "\n",
            sizes->answer_bytes, results_bytes);
        return;
    }
    struct floor floor = {.head_bytes = sizes->answer_bytes - results_bytes};
    struct eb_bench_echo echo;
    eb_bench_ours_init(&floor.ours, bench, 0, 1);
    if (eb_bench_echo_init(&echo, sizes)) {
        echo.make = make_answer;
        echo.self = &floor;
        listen_and_serve(&echo);
    }
    eb_bench_echo_deinit(&echo);
    eb_bench_ours_deinit(&floor.ours);
}
