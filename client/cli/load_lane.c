#include "client/cli/load_lane.h"

#include "client/cli/clock.h"
#include "client/cli/output.h"
#include "client/embag_async.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_US 1000
/* The client counts a lookup until its callback has returned, which may submit the next. */
#define IN_FLIGHT_SPARE 16
/* Lanes begin at different requests of the pool. */
#define POSITION_STRIDE 997

/* This lane's part of what `count` lanes share; the first ones take the rest. */
static unsigned share(uint64_t total, unsigned index, unsigned count)
{
    return (unsigned)(total / count + (index < total % count));
}

static bool connect_lane(
    struct eb_load_lane *lane, const struct eb_load_options *options, unsigned connections)
{
    const struct embag_options client_options = {
        .connections = connections,
        .access = options->access,
        .in_flight_max = lane->slot_count + IN_FLIGHT_SPARE,
        .retries_max = -1,
        .answer_bytes_max = UINT32_MAX,
        .unpaced = options->is_unpaced,
        .mode = options->is_unary ? EMBAG_MODE_UNARY : EMBAG_MODE_STREAM,
    };
    struct embag_error error;
    if (embag_open(options->server, &client_options, &lane->client, &error) != EMBAG_OK) {
        fputs("embag-load: ", stderr);
        (void)eb_output_error(&error);
        return false;
    }
    return true;
}

static void init_lock(struct eb_load_lane *lane)
{
    pthread_condattr_t attributes;
    int rc = pthread_condattr_init(&attributes);
    assert(rc == 0);
    rc = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    assert(rc == 0);
    rc = pthread_mutex_init(&lane->lock, NULL);
    assert(rc == 0);
    rc = pthread_cond_init(&lane->freed, &attributes);
    assert(rc == 0);
    (void)pthread_condattr_destroy(&attributes);
}

bool eb_load_lane_open(struct eb_load_lane *lane, const struct eb_load_options *options,
    unsigned index, unsigned count)
{
    *lane = (struct eb_load_lane){
        .slot_count = share(options->in_flight, index, count),
        .next_position = (uint64_t)index * POSITION_STRIDE,
    };
    lane->slots = calloc(lane->slot_count, sizeof *lane->slots);
    if (!lane->slots) {
        fprintf(stderr, "embag-load: no memory: give a smaller --in-flight\n");
        return false;
    }
    for (unsigned i = 0; i < lane->slot_count; i++) {
        lane->slots[i].lane = lane;
        lane->slots[i].next = lane->free_slots;
        lane->free_slots = &lane->slots[i];
    }
    init_lock(lane);
    if (!connect_lane(lane, options, share(options->connection_count, index, count))) {
        eb_load_lane_close(lane);
        return false;
    }
    return true;
}

void eb_load_lane_close(struct eb_load_lane *lane)
{
    embag_close(lane->client);
    lane->client = NULL;
    if (lane->slots) {
        (void)pthread_cond_destroy(&lane->freed);
        (void)pthread_mutex_destroy(&lane->lock);
    }
    free(lane->slots);
    lane->slots = NULL;
}

void eb_load_lane_supply(
    struct eb_load_lane *lane, const struct eb_load_pool *pool, struct eb_load_verify *verify)
{
    lane->pool = pool;
    lane->verify = verify;
}

bool eb_load_lane_streams(struct eb_load_lane *lane)
{
    struct embag_completion completion = {.error.status = EMBAG_OK};
    if (embag_submit(lane->client, &lane->pool->requests[0], NULL, NULL, NULL) == EMBAG_OK) {
        (void)embag_next(lane->client, EMBAG_FOREVER, &completion);
        embag_answer_free(completion.answer);
    }
    return completion.error.status != EMBAG_UNIMPLEMENTED;
}

void eb_load_lane_begin(struct eb_load_lane *lane, const struct eb_load_window *window)
{
    pthread_mutex_lock(&lane->lock);
    assert(lane->busy_count == 0);
    lane->window = *window;
    lane->stats = (struct eb_load_stats){0};
    pthread_mutex_unlock(&lane->lock);
}

void eb_load_lane_shorten(struct eb_load_lane *lane, uint64_t end_ns)
{
    pthread_mutex_lock(&lane->lock);
    lane->window.end_ns = end_ns;
    pthread_mutex_unlock(&lane->lock);
}

static struct eb_load_slot *take_slot(struct eb_load_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    struct eb_load_slot *slot = lane->free_slots;
    if (slot) {
        lane->free_slots = slot->next;
        lane->busy_count++;
        slot->position = lane->next_position++ % lane->pool->count;
    }
    pthread_mutex_unlock(&lane->lock);
    return slot;
}

static void give_slot(struct eb_load_lane *lane, struct eb_load_slot *slot)
{
    slot->next = lane->free_slots;
    lane->free_slots = slot;
    lane->busy_count--;
    pthread_cond_signal(&lane->freed);
}

/* Counts how the slot's request ended. Returns whether the slot was kept, for the next request. */
static bool end_request(
    struct eb_load_slot *slot, const struct eb_load_outcome *outcome, bool may_keep)
{
    struct eb_load_lane *lane = slot->lane;
    pthread_mutex_lock(&lane->lock);
    bool is_kept = may_keep && lane->window.is_closed && outcome->done_ns < lane->window.end_ns;
    eb_load_stats_add(&lane->stats, &lane->window, outcome);
    if (is_kept) {
        slot->position = lane->next_position++ % lane->pool->count;
    } else {
        give_slot(lane, slot);
    }
    pthread_mutex_unlock(&lane->lock);
    return is_kept;
}

static uint64_t count_bytes(const struct embag_answer *answer)
{
    uint64_t bytes = 0;
    for (size_t i = 0; answer && i < answer->result_count; i++) {
        bytes += answer->results[i].values_bytes;
    }
    return bytes;
}

static void on_done(const struct embag_completion *completion);

static void submit(struct eb_load_slot *slot, uint64_t due_ns)
{
    const struct embag_call call = {.on_done = on_done, .context = slot};
    struct eb_load_lane *lane = slot->lane;
    struct embag_request request = lane->pool->requests[slot->position];
    struct embag_error error;
    slot->due_ns = due_ns;
    slot->sent_ns = eb_clock_read_ns();
    /* The timeout counts from when it was due, like the latency. */
    uint64_t late_us = (slot->sent_ns - due_ns) / NS_PER_US;
    request.timeout_us = late_us < request.timeout_us ? request.timeout_us - late_us : 1;
    const struct eb_load_outcome refused = {
        .due_ns = due_ns, .done_ns = slot->sent_ns, .error = &error, .is_unsent = true};
    /* Once this has succeeded, the slot may be another request's already. */
    if (embag_submit(lane->client, &request, &call, NULL, &error) != EMBAG_OK) {
        (void)end_request(slot, &refused, false);
    }
}

/* A failed request's slot waits for the next tick of the run, so that a server that fails at once
 * is not asked without a pause. */
static void on_done(const struct embag_completion *completion)
{
    struct eb_load_slot *slot = completion->context;
    struct eb_load_lane *lane = slot->lane;
    struct eb_load_outcome outcome = {
        .due_ns = slot->due_ns,
        .sent_ns = slot->sent_ns,
        .done_ns = eb_clock_read_ns(),
        .error = &completion->error,
        .is_unsent = completion->error.status != EMBAG_OK && completion->attempts == 0,
        .answer_bytes = count_bytes(completion->answer),
        .queue_us = completion->answer ? completion->answer->queue_us : 0,
        .compute_us = completion->answer ? completion->answer->compute_us : 0,
    };
    if (lane->verify && completion->answer) {
        outcome.is_wrong = !eb_load_verify_answer(lane->verify, slot->position, completion->answer);
    }
    embag_answer_free(completion->answer);
    if (end_request(slot, &outcome, completion->error.status == EMBAG_OK)) {
        submit(slot, eb_clock_read_ns());
    }
}

bool eb_load_lane_send(struct eb_load_lane *lane, uint64_t due_ns)
{
    struct eb_load_slot *slot = take_slot(lane);
    if (slot) {
        submit(slot, due_ns);
    }
    return slot;
}

void eb_load_lane_skip(struct eb_load_lane *lane, uint64_t due_ns)
{
    uint64_t now_ns = eb_clock_read_ns();
    pthread_mutex_lock(&lane->lock);
    eb_load_stats_add_unsent(&lane->stats, &lane->window, due_ns, now_ns);
    pthread_mutex_unlock(&lane->lock);
}

/* Waits for the next slot that becomes free. false: none did. The lock is held. */
static bool wait_freed(struct eb_load_lane *lane, uint64_t until_ns)
{
    const struct timespec until = {
        .tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};
    return pthread_cond_timedwait(&lane->freed, &lane->lock, &until) == 0;
}

bool eb_load_lane_wait(struct eb_load_lane *lane, uint64_t until_ns)
{
    pthread_mutex_lock(&lane->lock);
    while (!lane->free_slots && wait_freed(lane, until_ns)) {
    }
    bool is_free = lane->free_slots;
    pthread_mutex_unlock(&lane->lock);
    return is_free;
}

bool eb_load_lane_drain(struct eb_load_lane *lane, uint64_t until_ns)
{
    pthread_mutex_lock(&lane->lock);
    while (lane->busy_count > 0 && wait_freed(lane, until_ns)) {
    }
    bool is_drained = lane->busy_count == 0;
    pthread_mutex_unlock(&lane->lock);
    return is_drained;
}

unsigned eb_load_lane_report(struct eb_load_lane *lane, struct eb_load_stats *stats)
{
    pthread_mutex_lock(&lane->lock);
    eb_load_stats_merge(stats, &lane->stats);
    unsigned busy_count = lane->busy_count;
    pthread_mutex_unlock(&lane->lock);
    return busy_count;
}
