#include "server/models/key_crew.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Rows that are assigned between two looks at whether the attempt is over. */
#define SLICE_ROWS (UINT64_C(1) << 20)

/* All who work on one attempt. */
struct shift {
    const struct eb_key_crew *crew;
    struct eb_key_build build;
    struct eb_file_fault *fault;
    atomic_bool is_over; /* someone has failed */
    bool is_given_up;
    atomic_uint placed_count;
    uint64_t reported_bytes; /* in this attempt and those before it, by the thread of the call */
};

struct worker {
    struct shift *shift;
    struct eb_key_range partitions;
    void *scratch;
    enum eb_key_outcome outcome;
    struct eb_key_pair pair;
    bool reports; /* it runs on the thread of the call */
    bool has_thread;
    pthread_t thread;
};

/* Tells how far all are, which is not less than was told before. */
static void report(struct shift *shift, uint64_t bytes)
{
    uint64_t more = bytes > shift->reported_bytes ? bytes - shift->reported_bytes : 0;
    shift->reported_bytes += more;
    if (!shift->crew->go_on(shift->crew->context, more)) {
        shift->is_given_up = true;
        shift->is_over = true;
    }
}

/* Every thread looks at all rows: how far one is, the others are. Assigning is told as half of the
 * work. */
static void report_assigned(struct shift *shift, uint64_t row_count)
{
    double part = (double)row_count / (double)shift->build.plan.row_count;
    report(shift, (uint64_t)(part * (double)shift->build.plan.index_bytes / 2));
}

static void report_placed(struct shift *shift)
{
    uint64_t placed = atomic_load_explicit(&shift->placed_count, memory_order_relaxed);
    double part = (double)placed / shift->build.plan.partition_count;
    report(shift, (uint64_t)((1 + part) * (double)shift->build.plan.index_bytes / 2));
}

static enum eb_key_outcome assign(struct worker *worker)
{
    struct shift *shift = worker->shift;
    uint64_t row_count = shift->build.plan.row_count;
    enum eb_key_outcome outcome = EB_KEY_OK;
    for (uint64_t row = 0; row < row_count && outcome == EB_KEY_OK && !shift->is_over;
         row += SLICE_ROWS) {
        uint64_t left = row_count - row;
        const struct eb_key_range rows = {row, row + (left < SLICE_ROWS ? left : SLICE_ROWS)};
        outcome = eb_key_build_assign(&shift->build, rows, worker->partitions, &worker->pair);
        if (worker->reports) {
            report_assigned(shift, rows.end);
        }
    }
    return outcome;
}

static enum eb_key_outcome place(struct worker *worker)
{
    struct shift *shift = worker->shift;
    enum eb_key_outcome outcome = EB_KEY_OK;
    for (uint64_t i = worker->partitions.first;
         i < worker->partitions.end && outcome == EB_KEY_OK && !shift->is_over; i++) {
        outcome = eb_key_build_place(&shift->build, (uint32_t)i, worker->scratch, &worker->pair);
        shift->placed_count++;
        if (worker->reports) {
            report_placed(shift);
        }
    }
    return outcome;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    worker->outcome = assign(worker);
    if (worker->outcome == EB_KEY_OK) {
        worker->outcome = place(worker);
    }
    if (worker->outcome != EB_KEY_OK) {
        worker->shift->is_over = true;
    }
    return NULL;
}

/* As many as may run at once, each with a partition at least. */
static uint32_t count_workers(uint32_t partition_count)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    uint32_t workers = count < EB_KEY_CREW_THREADS_MAX ? (uint32_t)count : EB_KEY_CREW_THREADS_MAX;
    return workers < partition_count ? workers : partition_count;
}

/* Each has its part of the partitions; the first works on this thread. */
static void run_workers(struct worker *workers, uint32_t worker_count)
{
    for (uint32_t i = 1; i < worker_count; i++) {
        workers[i].has_thread = pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    }
    work(&workers[0]);
    for (uint32_t i = 1; i < worker_count; i++) {
        if (workers[i].has_thread) {
            pthread_join(workers[i].thread, NULL);
        } else {
            work(&workers[i]);
        }
    }
}

/* Who has the worst news. */
static const struct worker *find_outcome(const struct worker *workers, uint32_t worker_count)
{
    const struct worker *worst = workers;
    for (uint32_t i = 1; i < worker_count; i++) {
        worst = workers[i].outcome > worst->outcome ? &workers[i] : worst;
    }
    return worst;
}

/* Always false. */
static bool refuse_memory(struct eb_file_fault *fault)
{
    eb_file_fault_set(fault, "out of memory for the index of its keys");
    return eb_file_fault_blame(fault, ENOMEM);
}

static bool prepare_workers(struct worker *workers, uint32_t worker_count, struct shift *shift)
{
    uint64_t partitions = shift->build.plan.partition_count;
    for (uint32_t i = 0; i < worker_count; i++) {
        workers[i] = (struct worker){
            .shift = shift,
            .partitions = {partitions * i / worker_count, partitions * (i + 1) / worker_count},
            .scratch = malloc(shift->build.plan.scratch_bytes),
            .reports = i == 0,
        };
        if (!workers[i].scratch) {
            return refuse_memory(shift->fault);
        }
    }
    return true;
}

/* Always false. */
static bool refuse_pair(const struct eb_key_pair *pair, struct eb_file_fault *fault)
{
    return eb_file_fault_set(fault,
        "rows %" PRIu32 " and %" PRIu32 " have the same key %" PRId64 "; every row needs its own",
        pair->first_row, pair->second_row, pair->key);
}

/* Always false. */
static bool refuse_keys(const struct shift *shift)
{
    return eb_file_fault_set(shift->fault,
        "no index of its %" PRIu64 " keys could be made: in each of %d attempts, every one with a "
        "hash of its own, some keys found no room; hashes are made of the keys in their order, so "
        "put the rows, with their keys, into another order and try again",
        shift->build.plan.row_count, EB_KEY_ATTEMPTS_MAX);
}

static bool run_attempts(
    struct shift *shift, struct worker *workers, uint32_t worker_count, uint32_t *row)
{
    for (uint32_t attempt = 0; attempt < EB_KEY_ATTEMPTS_MAX; attempt++) {
        shift->is_over = false;
        shift->placed_count = 0;
        eb_key_build_begin(&shift->build, attempt);
        run_workers(workers, worker_count);
        const struct worker *worst = find_outcome(workers, worker_count);
        if (worst->outcome == EB_KEY_DUPLICATE) {
            *row = worst->pair.second_row;
            return refuse_pair(&worst->pair, shift->fault);
        }
        if (worst->outcome == EB_KEY_OK) {
            report(shift, shift->build.plan.index_bytes);
        }
        if (shift->is_given_up) {
            return eb_file_fault_set(shift->fault, "the load was given up");
        }
        if (worst->outcome == EB_KEY_OK) {
            return true;
        }
    }
    return refuse_keys(shift);
}

static bool run(struct shift *shift, uint32_t *row)
{
    struct worker workers[EB_KEY_CREW_THREADS_MAX] = {{0}};
    uint32_t worker_count = count_workers(shift->build.plan.partition_count);
    bool is_good = prepare_workers(workers, worker_count, shift) &&
                   run_attempts(shift, workers, worker_count, row);
    for (uint32_t i = 0; i < worker_count; i++) {
        free(workers[i].scratch);
    }
    return is_good;
}

bool eb_key_crew_build(const struct eb_key_crew *crew, uint32_t *row, struct eb_file_fault *fault)
{
    struct shift shift = {
        .crew = crew,
        .build = {.plan = crew->plan, .keys = crew->keys, .index = crew->index},
        .fault = fault,
    };
    assert(crew->go_on);
    *row = 0;
    shift.build.counts = calloc(crew->plan.partition_count, sizeof *shift.build.counts);
    bool is_good = shift.build.counts ? run(&shift, row) : refuse_memory(fault);
    free(shift.build.counts);
    return is_good;
}
