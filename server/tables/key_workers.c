#include "server/tables/key_workers.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Phases of a build. All workers finish one before the next begins. */
enum phase { DIGEST, COUNT, ASSIGN, PLACE, PHASE_COUNT };

/* The fraction of the work that is done when each phase begins. */
static const double begins[PHASE_COUNT + 1] = {0, 0.1, 0.2, 0.5, 1};

/* The state that all workers of one build share. */
struct shift {
    const struct eb_key_workers *workers;
    struct eb_key_build build;
    uint64_t *digests; /* [plan.slice_count] */
    struct eb_failure *failure;
    enum phase phase;
    atomic_bool is_over; /* a worker has failed, or the build was given up, so all workers stop */
    bool is_given_up;
    atomic_uint placed_count;
    uint64_t reported_bytes; /* sum over all attempts so far; written by the calling thread */
};

struct worker {
    struct shift *shift;
    uint32_t number; /* also the number of its share; 0 runs on the calling thread */
    struct eb_key_range slices;
    struct eb_key_range rows;
    struct eb_key_range partitions;
    void *scratch;
    enum eb_key_outcome outcome;
    struct eb_key_pair pair;
    bool has_thread;
    pthread_t thread;
};

/* Reports the progress of the build. It never goes back, even if a new attempt begins. */
static void report_keys(struct shift *shift, uint64_t bytes)
{
    uint64_t more = bytes > shift->reported_bytes ? bytes - shift->reported_bytes : 0;
    shift->reported_bytes += more;
    if (!shift->workers->go_on(shift->workers->context, more)) {
        shift->is_given_up = true;
        shift->is_over = true;
    }
}

/* Reports progress in a phase if this is the calling thread's worker. The other workers have made
 * about the same progress. */
static void report_range(const struct worker *worker, double part)
{
    struct shift *shift = worker->shift;
    double begin = begins[shift->phase];
    double done = begin + part * (begins[shift->phase + 1] - begin);
    if (worker->number == 0) {
        report_keys(shift, (uint64_t)(done * (double)shift->build.plan.index_bytes));
    }
}

static void digest_keys(struct worker *worker)
{
    struct shift *shift = worker->shift;
    struct eb_key_range slices = worker->slices;
    for (uint64_t i = slices.first; i < slices.end && !shift->is_over; i++) {
        shift->digests[i] = eb_key_build_digest(&shift->build, i);
        report_range(worker, (double)(i + 1 - slices.first) / (double)(slices.end - slices.first));
    }
}

/* Counts or assigns the keys of the worker's rows. */
static void sort(struct worker *worker)
{
    struct shift *shift = worker->shift;
    struct eb_key_range rows = worker->rows;
    for (uint64_t row = rows.first; row < rows.end && !shift->is_over; row += EB_KEY_SLICE_ROWS) {
        uint64_t left = rows.end - row;
        struct eb_key_range some = {
            row, row + (left < EB_KEY_SLICE_ROWS ? left : EB_KEY_SLICE_ROWS)};
        if (shift->phase == COUNT) {
            eb_key_build_count(&shift->build, worker->number, some);
        } else {
            eb_key_build_assign(&shift->build, worker->number, some);
        }
        report_range(worker, (double)(some.end - rows.first) / (double)(rows.end - rows.first));
    }
}

static void place(struct worker *worker)
{
    struct shift *shift = worker->shift;
    for (uint64_t i = worker->partitions.first;
         i < worker->partitions.end && worker->outcome == EB_KEY_OK && !shift->is_over; i++) {
        worker->outcome =
            eb_key_build_place(&shift->build, (uint32_t)i, worker->scratch, &worker->pair);
        shift->placed_count++;
        report_range(worker, (double)shift->placed_count / shift->build.plan.partition_count);
    }
    if (worker->outcome != EB_KEY_OK) {
        shift->is_over = true;
    }
}

static void *work_on_keys(void *argument)
{
    struct worker *worker = argument;
    switch (worker->shift->phase) {
    case DIGEST: digest_keys(worker); break;
    case COUNT:
    case ASSIGN: sort(worker); break;
    case PLACE: place(worker); break;
    case PHASE_COUNT: break;
    }
    return NULL;
}

/* Returns the number of workers: as many as may run at once, but no more than there are
 * partitions. */
static uint32_t count_workers(uint32_t partition_count)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    uint32_t workers =
        count < EB_KEY_WORKERS_THREADS_MAX ? (uint32_t)count : EB_KEY_WORKERS_THREADS_MAX;
    return workers < partition_count ? workers : partition_count;
}

/* The workers of a build. */
struct team {
    uint32_t count;
    struct worker workers[EB_KEY_WORKERS_THREADS_MAX];
};

/* Runs a phase: each worker does its share, the first one on this thread. Returns false if a worker
 * has failed or the build was given up. */
static bool run_phase(struct shift *shift, struct team *team, enum phase phase)
{
    struct worker *workers = team->workers;
    shift->phase = phase;
    for (uint32_t i = 1; i < team->count; i++) {
        workers[i].has_thread =
            pthread_create(&workers[i].thread, NULL, work_on_keys, &workers[i]) == 0;
    }
    work_on_keys(&workers[0]);
    for (uint32_t i = 1; i < team->count; i++) {
        if (workers[i].has_thread) {
            pthread_join(workers[i].thread, NULL);
        } else {
            work_on_keys(&workers[i]);
        }
    }
    return !shift->is_over;
}

/* Returns the worker with the worst outcome. */
static const struct worker *find_outcome(const struct team *team)
{
    const struct worker *worst = team->workers;
    for (uint32_t i = 1; i < team->count; i++) {
        worst = team->workers[i].outcome > worst->outcome ? &team->workers[i] : worst;
    }
    return worst;
}

/* Sets *failure. Always returns false. */
static bool refuse_memory(struct eb_failure *failure)
{
    eb_failure_set(failure, "out of memory for the index of its keys");
    return eb_failure_blame(failure, ENOMEM);
}

/* Returns the range of `all` items that worker `number` of `count` workers handles. */
static struct eb_key_range share_of(uint64_t all, uint32_t number, uint32_t count)
{
    return (struct eb_key_range){all * number / count, all * (number + 1) / count};
}

static bool prepare_team(struct team *team, struct shift *shift)
{
    const struct eb_key_plan *plan = &shift->build.plan;
    team->count = count_workers(plan->partition_count);
    for (uint32_t i = 0; i < team->count; i++) {
        team->workers[i] = (struct worker){
            .shift = shift,
            .number = i,
            .slices = share_of(plan->slice_count, i, team->count),
            .rows = share_of(plan->row_count, i, team->count),
            .partitions = share_of(plan->partition_count, i, team->count),
            .scratch = malloc(plan->scratch_bytes),
        };
        if (!team->workers[i].scratch) {
            return refuse_memory(shift->failure);
        }
    }
    uint64_t counts = (uint64_t)team->count * plan->partition_count;
    shift->build.share_count = team->count;
    shift->build.counts = calloc(counts, sizeof *shift->build.counts);
    shift->digests = calloc(plan->slice_count + 1, sizeof *shift->digests);
    return (shift->build.counts && shift->digests) || refuse_memory(shift->failure);
}

/* Sets *failure. Always returns false. */
static bool refuse_pair(const struct eb_key_pair *pair, struct eb_failure *failure)
{
    return eb_failure_set(failure,
        "rows %" PRIu32 " and %" PRIu32 " have the same key %" PRId64
        "; every row needs a key of its own",
        pair->first_row, pair->second_row, pair->key);
}

/* Sets *failure. Always returns false. */
static bool refuse_keys(const struct shift *shift)
{
    return eb_failure_set(shift->failure,
        "no index of its %" PRIu64
        " keys could be built: in each of %d attempts, each with another hash function, some keys "
        "found no slot; the hash functions depend on the order of the keys, so reorder the rows "
        "together with their keys and try again",
        shift->build.plan.row_count, EB_KEY_ATTEMPTS_MAX);
}

static void run_keys_attempt(struct shift *shift, struct team *team, uint32_t attempt)
{
    for (uint32_t i = 0; i < team->count; i++) {
        team->workers[i].outcome = EB_KEY_OK;
    }
    shift->is_over = false;
    shift->placed_count = 0;
    eb_key_build_begin(&shift->build, attempt);
    if (run_phase(shift, team, COUNT)) {
        eb_key_build_allot(&shift->build);
        (void)(run_phase(shift, team, ASSIGN) && run_phase(shift, team, PLACE));
    }
}

static bool run_attempts(struct shift *shift, struct team *team, uint32_t *row)
{
    if (run_phase(shift, team, DIGEST)) {
        eb_key_build_join(&shift->build, shift->digests);
    }
    for (uint32_t attempt = 0; attempt < EB_KEY_ATTEMPTS_MAX && !shift->is_given_up; attempt++) {
        run_keys_attempt(shift, team, attempt);
        const struct worker *worst = find_outcome(team);
        if (worst->outcome == EB_KEY_DUPLICATE) {
            *row = worst->pair.second_row;
            return refuse_pair(&worst->pair, shift->failure);
        }
        if (worst->outcome == EB_KEY_OK) {
            report_keys(shift, shift->build.plan.index_bytes);
        }
        if (worst->outcome == EB_KEY_OK && !shift->is_given_up) {
            return true;
        }
    }
    return shift->is_given_up ? eb_failure_set(shift->failure, "the load was cancelled")
                              : refuse_keys(shift);
}

bool eb_key_workers_build(
    const struct eb_key_workers *workers, uint32_t *row, struct eb_failure *failure)
{
    struct shift shift = {
        .workers = workers,
        .build = {.plan = workers->plan, .keys = workers->keys, .index = workers->index},
        .failure = failure,
    };
    struct team team = {0};
    assert(workers->go_on);
    *row = 0;
    bool is_good = prepare_team(&team, &shift) && run_attempts(&shift, &team, row);
    for (uint32_t i = 0; i < team.count; i++) {
        free(team.workers[i].scratch);
    }
    free(shift.build.counts);
    free(shift.digests);
    return is_good;
}
