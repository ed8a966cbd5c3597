#include "client/cli/load_connection.h"

#include "client/cli/load_clock.h"
#include "client/cli/output.h"
#include "client/embag_async.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_US 1000
/* The client counts a lookup until its callback has returned. As the callback may already submit
 * the next lookup, the client's limit is this much above the number of slots. */
#define IN_FLIGHT_SPARE 16
/* Distance between the requests of the pool at which two successive connections begin. */
#define POSITION_STRIDE 997

/* Returns the part of `total` for the connection at `index` if `count` connections share it. The
 * first connections take the remainder. */
static unsigned share_of_connection(uint64_t total, unsigned index, unsigned count)
{
    return (unsigned)(total / count + (index < total % count));
}

static bool connect_connection(struct eb_load_connection *connection,
    const struct eb_load_options *options, unsigned connections)
{
    struct embag_options client_options = {
        .connect_timeout_us = EB_LOAD_CONNECT_TIMEOUT_US,
        .connections = connections,
        .access = options->access,
        .in_flight_max = connection->slot_count + IN_FLIGHT_SPARE,
        .retries_max = options->retries > 0 ? (int32_t)options->retries : -1,
        .hedge_percent = options->hedge_percent,
        .answer_bytes_max = UINT32_MAX,
        .unpaced = options->is_unpaced,
        .mode = options->is_unary ? EMBAG_MODE_UNARY : EMBAG_MODE_STREAM,
    };
    struct embag_error error;
    if (embag_open(options->server, &client_options, &connection->client, &error) != EMBAG_OK) {
        fputs("embag-load: ", stderr);
        (void)eb_output_error(&error);
        return false;
    }
    return true;
}

static void init_lock(struct eb_load_connection *connection)
{
    pthread_condattr_t attributes;
    int rc = pthread_condattr_init(&attributes);
    assert(rc == 0);
    rc = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    assert(rc == 0);
    rc = pthread_mutex_init(&connection->lock, NULL);
    assert(rc == 0);
    rc = pthread_cond_init(&connection->freed, &attributes);
    assert(rc == 0);
    (void)pthread_condattr_destroy(&attributes);
}

static void free_connection(struct eb_load_connection *connection)
{
    free(connection->slots);
    free(connection->snapshots);
    connection->slots = NULL;
    connection->snapshots = NULL;
}

bool eb_load_connection_open(struct eb_load_connection *connection,
    const struct eb_load_options *options, unsigned index, unsigned count)
{
    *connection = (struct eb_load_connection){
        .slot_count = share_of_connection(options->in_flight, index, count),
        .next_position = (uint64_t)index * POSITION_STRIDE,
    };
    connection->slots = calloc(connection->slot_count, sizeof *connection->slots);
    connection->snapshots = calloc(2, sizeof *connection->snapshots);
    if (!connection->slots || !connection->snapshots) {
        fprintf(stderr, "embag-load: out of memory: give a smaller --in-flight\n");
        free_connection(connection);
        return false;
    }
    for (unsigned i = 0; i < connection->slot_count; i++) {
        connection->slots[i].connection = connection;
        connection->slots[i].next = connection->free_slots;
        connection->free_slots = &connection->slots[i];
    }
    init_lock(connection);
    if (!connect_connection(
            connection, options, share_of_connection(options->connection_count, index, count))) {
        eb_load_connection_close(connection);
        return false;
    }
    return true;
}

void eb_load_connection_close(struct eb_load_connection *connection)
{
    embag_close(connection->client);
    connection->client = NULL;
    if (connection->slots) {
        (void)pthread_cond_destroy(&connection->freed);
        (void)pthread_mutex_destroy(&connection->lock);
    }
    free_connection(connection);
}

bool eb_load_connection_await_servers(
    struct eb_load_connection *connection, uint64_t deadline_ns, struct embag_error *error)
{
    uint64_t now_ns = eb_load_clock_read_ns();
    /* 0 would mean the client's own timeout. */
    uint64_t left_us = now_ns + NS_PER_US < deadline_ns ? (deadline_ns - now_ns) / NS_PER_US : 1;
    return embag_wait_ready(connection->client, 0, left_us, error) == EMBAG_OK;
}

void eb_load_connection_supply(struct eb_load_connection *connection,
    const struct eb_load_pool *pool, struct eb_load_verify *verify)
{
    connection->pool = pool;
    connection->verify = verify;
}

bool eb_load_connection_streams(struct eb_load_connection *connection)
{
    struct embag_completion completion = {.error.status = EMBAG_OK};
    if (embag_submit(connection->client, &connection->pool->requests[0], NULL, NULL, NULL) ==
        EMBAG_OK) {
        (void)embag_next(connection->client, EMBAG_FOREVER, &completion);
        embag_answer_free(completion.answer);
    }
    return completion.error.status != EMBAG_UNIMPLEMENTED;
}

void eb_load_connection_begin(
    struct eb_load_connection *connection, const struct eb_load_window *window)
{
    pthread_mutex_lock(&connection->lock);
    assert(connection->busy_count == 0);
    connection->window = *window;
    connection->stats = (struct eb_load_stats){0};
    pthread_mutex_unlock(&connection->lock);
}

void eb_load_connection_shorten(struct eb_load_connection *connection, uint64_t end_ns)
{
    pthread_mutex_lock(&connection->lock);
    connection->window.end_ns = end_ns;
    pthread_mutex_unlock(&connection->lock);
}

static struct eb_load_slot *take_slot(struct eb_load_connection *connection)
{
    pthread_mutex_lock(&connection->lock);
    struct eb_load_slot *slot = connection->free_slots;
    if (slot) {
        connection->free_slots = slot->next;
        connection->busy_count++;
        slot->position = connection->next_position++ % connection->pool->count;
    }
    pthread_mutex_unlock(&connection->lock);
    return slot;
}

static void give_slot(struct eb_load_connection *connection, struct eb_load_slot *slot)
{
    slot->next = connection->free_slots;
    connection->free_slots = slot;
    connection->busy_count--;
    pthread_cond_signal(&connection->freed);
}

/* Counts the outcome of the slot's request. Returns whether the slot is kept for the next one. */
static bool end_request(
    struct eb_load_slot *slot, const struct eb_load_outcome *outcome, bool may_keep)
{
    struct eb_load_connection *connection = slot->connection;
    pthread_mutex_lock(&connection->lock);
    bool is_kept =
        may_keep && connection->window.is_closed && outcome->done_ns < connection->window.end_ns;
    eb_load_stats_add(&connection->stats, &connection->window, outcome);
    if (is_kept) {
        slot->position = connection->next_position++ % connection->pool->count;
    } else {
        give_slot(connection, slot);
    }
    pthread_mutex_unlock(&connection->lock);
    return is_kept;
}

static uint64_t count_lookup_bytes(const struct embag_answer *answer)
{
    uint64_t bytes = 0;
    for (size_t i = 0; answer && i < answer->result_count; i++) {
        bytes += answer->results[i].values_bytes;
    }
    return bytes;
}

static void on_lookup_done(const struct embag_completion *completion);

static void submit_lookup(struct eb_load_slot *slot, uint64_t due_ns)
{
    struct embag_call call = {.on_done = on_lookup_done, .context = slot};
    struct eb_load_connection *connection = slot->connection;
    struct embag_request request = connection->pool->requests[slot->position];
    struct embag_error error;
    slot->due_ns = due_ns;
    slot->sent_ns = eb_load_clock_read_ns();
    /* The timeout counts from when the request was due, as the latency does. */
    uint64_t late_us = (slot->sent_ns - due_ns) / NS_PER_US;
    request.timeout_us = late_us < request.timeout_us ? request.timeout_us - late_us : 1;
    struct eb_load_outcome refused = {
        .due_ns = due_ns, .done_ns = slot->sent_ns, .error = &error, .is_unsent = true};
    /* Once this has succeeded, the slot may already belong to another request. */
    if (embag_submit(connection->client, &request, &call, NULL, &error) != EMBAG_OK) {
        (void)end_request(slot, &refused, false);
    }
}

/* Counts an outcome and, in a closed load, sends the next request. The slot of a failed request
 * waits for the run's next tick, so that a server that fails at once gets a pause. */
static void on_lookup_done(const struct embag_completion *completion)
{
    struct eb_load_slot *slot = completion->context;
    struct eb_load_connection *connection = slot->connection;
    struct eb_load_outcome outcome = {
        .due_ns = slot->due_ns,
        .sent_ns = slot->sent_ns,
        .done_ns = eb_load_clock_read_ns(),
        .error = &completion->error,
        .is_unsent = completion->error.status != EMBAG_OK && completion->attempts == 0,
        .answer_bytes = count_lookup_bytes(completion->answer),
        .queue_us = completion->answer ? completion->answer->queue_us : 0,
        .compute_us = completion->answer ? completion->answer->compute_us : 0,
    };
    if (connection->verify && completion->answer) {
        outcome.is_wrong =
            !eb_load_verify_answer(connection->verify, slot->position, completion->answer);
    }
    embag_answer_free(completion->answer);
    if (end_request(slot, &outcome, completion->error.status == EMBAG_OK)) {
        submit_lookup(slot, eb_load_clock_read_ns());
    }
}

bool eb_load_connection_send(struct eb_load_connection *connection, uint64_t due_ns)
{
    struct eb_load_slot *slot = take_slot(connection);
    if (slot) {
        submit_lookup(slot, due_ns);
    }
    return slot;
}

void eb_load_connection_skip(struct eb_load_connection *connection, uint64_t due_ns)
{
    uint64_t now_ns = eb_load_clock_read_ns();
    pthread_mutex_lock(&connection->lock);
    eb_load_stats_add_unsent(&connection->stats, &connection->window, due_ns, now_ns);
    pthread_mutex_unlock(&connection->lock);
}

/* Waits until a slot becomes free. Returns false if none did by `until_ns`. The caller holds the
 * lock. */
static bool wait_freed(struct eb_load_connection *connection, uint64_t until_ns)
{
    struct timespec until = {
        .tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};
    return pthread_cond_timedwait(&connection->freed, &connection->lock, &until) == 0;
}

bool eb_load_connection_wait(struct eb_load_connection *connection, uint64_t until_ns)
{
    pthread_mutex_lock(&connection->lock);
    while (!connection->free_slots && wait_freed(connection, until_ns)) {
    }
    bool is_free = connection->free_slots;
    pthread_mutex_unlock(&connection->lock);
    return is_free;
}

bool eb_load_connection_drain(struct eb_load_connection *connection, uint64_t until_ns)
{
    pthread_mutex_lock(&connection->lock);
    while (connection->busy_count > 0 && wait_freed(connection, until_ns)) {
    }
    bool is_drained = connection->busy_count == 0;
    pthread_mutex_unlock(&connection->lock);
    return is_drained;
}

unsigned eb_load_connection_report(
    struct eb_load_connection *connection, struct eb_load_stats *stats)
{
    pthread_mutex_lock(&connection->lock);
    eb_load_stats_merge(stats, &connection->stats);
    unsigned busy_count = connection->busy_count;
    pthread_mutex_unlock(&connection->lock);
    return busy_count;
}

static void read_servers(struct eb_load_connection *connection, struct eb_load_snapshot *snapshot)
{
    enum embag_status status = embag_get_stats(
        connection->client, &snapshot->stats, snapshot->servers, EB_LOAD_SERVERS_MAX);
    assert(status == EMBAG_OK);
}

void eb_load_connection_mark_servers(struct eb_load_connection *connection)
{
    read_servers(connection, &connection->snapshots[0]);
}

void eb_load_connection_report_servers(
    struct eb_load_connection *connection, struct eb_load_servers *servers)
{
    read_servers(connection, &connection->snapshots[1]);
    eb_load_servers_add(servers, &connection->snapshots[0], &connection->snapshots[1]);
}
