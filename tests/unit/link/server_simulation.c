#include "tests/unit/link/server_simulation.h"

#include "proto/splitmix64.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define MS UINT64_C(1000000)
#define NETWORK_NS UINT64_C(20000) /* each way */
#define ERROR_NS UINT64_C(50000)
#define CHECK_NS (5 * MS)
#define CALL_BYTES 8192
#define ATTEMPTS_MAX 4
/* Power of two; more than are in flight together in any test. */
#define CALLS_MAX (1u << 16)
#define THREADS 4

enum event_kind { ARRIVAL, ATTEMPT_ENDS, HEDGE_DUE, CHECK_DUE };

struct event {
    uint64_t at_ns;
    uint64_t order; /* among events of the same time */
    uint64_t call;  /* number of the call */
    enum event_kind kind;
    uint8_t attempt;
    uint8_t end; /* enum eb_attempt_end */
    bool is_pushback;
};

struct sim_attempt {
    struct eb_replica_attempt attempt;
    struct sim_call *call;
    struct eb_sim_server *server; /* NULL: not in flight */
};

struct sim_call {
    uint64_t number; /* 0: over */
    uint64_t begun_ns;
    uint32_t attempt_count;
    uint32_t in_flight;
    struct sim_attempt attempts[ATTEMPTS_MAX];
    const struct eb_replica *tried[ATTEMPTS_MAX];
};

struct eb_sim {
    struct eb_sim_settings settings;
    uint64_t now_ns;
    uint64_t random;
    uint64_t call_numbers;
    uint64_t event_numbers;
    struct event *heap;
    uint32_t event_count;
    uint32_t event_capacity;
    struct sim_call *calls; /* [CALLS_MAX] by number, modulo CALLS_MAX */
    struct eb_sim_server servers[EB_SIM_SERVERS_MAX];
    struct eb_replica *replicas[EB_SIM_SERVERS_MAX];
    struct eb_replica_group group;
    struct eb_resend_budget budget;
    struct eb_hedge hedge;
    struct eb_sim_counts counts;
};

/* ---- random numbers and events ---- */

static double draw_unit(struct eb_sim *sim)
{
    return ((double)(eb_splitmix64_next(&sim->random) >> 11) + 0.5) * 0x1p-53;
}

static uint64_t draw_exponential(struct eb_sim *sim, double mean)
{
    return (uint64_t)(-log(draw_unit(sim)) * mean) + 1;
}

/* Half of a service time is fixed. One call in a thousand takes ten times as long, as if the thread
 * was not scheduled. */
static uint64_t draw_service(struct eb_sim *sim, uint32_t slowness)
{
    double mean = (double)sim->settings.service_ns * slowness;
    uint64_t time_ns = (uint64_t)(mean / 2) + draw_exponential(sim, mean / 2);
    return draw_unit(sim) < 0.001 ? 10 * time_ns : time_ns;
}

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

static void push_event(struct eb_sim *sim, struct event event)
{
    if (sim->event_count == sim->event_capacity) {
        sim->event_capacity = sim->event_capacity > 0 ? 2 * sim->event_capacity : 1024;
        sim->heap = realloc(sim->heap, sim->event_capacity * sizeof *sim->heap);
        assert(sim->heap);
    }
    event.order = sim->event_numbers++;
    uint32_t i = sim->event_count++;
    while (i > 0 && is_before(&event, &sim->heap[(i - 1) / 2])) {
        sim->heap[i] = sim->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->heap[i] = event;
}

static struct event pop_event(struct eb_sim *sim)
{
    struct event first = sim->heap[0];
    struct event last = sim->heap[--sim->event_count];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < sim->event_count && is_before(&sim->heap[child + 1], &sim->heap[child])) {
            child++;
        }
        if (child >= sim->event_count || !is_before(&sim->heap[child], &last)) {
            break;
        }
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return first;
}

/* ---- calls ---- */

static struct eb_hedge_call hedge_terms(const struct eb_sim *sim, const struct sim_call *call)
{
    return (struct eb_hedge_call){
        .bytes = CALL_BYTES, .deadline_ns = call->begun_ns + sim->settings.timeout_ns};
}

/* Returns when a serving server has computed a call that arrives now. */
static uint64_t queue_call(struct eb_sim *sim, struct eb_sim_server *server)
{
    uint64_t *earliest = &server->free_ns[0];
    for (unsigned i = 1; i < THREADS; i++) {
        earliest = server->free_ns[i] < *earliest ? &server->free_ns[i] : earliest;
    }
    uint64_t start_ns = sim->now_ns + NETWORK_NS;
    start_ns = start_ns > *earliest ? start_ns : *earliest;
    *earliest = start_ns + draw_service(sim, server->slowness);
    return *earliest + NETWORK_NS;
}

/* Sends an attempt. Returns false if there is no replica for it. */
static bool send_attempt(struct eb_sim *sim, struct sim_call *call)
{
    struct eb_choice_terms terms = {.random = (uint32_t)eb_splitmix64_next(&sim->random),
        .now_ns = sim->now_ns,
        .tried = call->tried,
        .tried_count = call->attempt_count};
    struct eb_replica *replica =
        call->attempt_count < ATTEMPTS_MAX ? eb_replica_choose(&sim->group, &terms) : NULL;
    if (!replica) {
        return false;
    }
    struct eb_sim_server *server = EB_CONTAINER_OF(replica, struct eb_sim_server, replica);
    uint8_t number = (uint8_t)call->attempt_count++;
    struct sim_attempt *attempt = &call->attempts[number];
    uint64_t deadline_ns = call->begun_ns + sim->settings.timeout_ns;
    call->tried[number] = replica;
    attempt->call = call;
    attempt->server = server;
    call->in_flight++;
    eb_replica_send(replica, &attempt->attempt, deadline_ns - sim->now_ns, sim->now_ns);
    server->attempts++;
    sim->counts.attempts++;
    struct event end = {
        .kind = ATTEMPT_ENDS, .call = call->number, .attempt = number, .end = EB_ATTEMPT_FAILED};
    end.at_ns = sim->now_ns + ERROR_NS;
    end.is_pushback = server->mode == EB_SIM_REFUSES;
    if (server->mode == EB_SIM_SERVES) {
        end.at_ns = queue_call(sim, server);
        end.end = EB_ATTEMPT_ANSWERED;
    }
    if (server->mode == EB_SIM_STOPS || end.at_ns > deadline_ns) {
        end.at_ns = deadline_ns;
        end.end = EB_ATTEMPT_FAILED;
    }
    push_event(sim, end);
    return true;
}

static void end_attempt(
    struct eb_sim *sim, struct sim_call *call, struct sim_attempt *attempt, enum eb_attempt_end end)
{
    eb_replica_end(&sim->group, &attempt->server->replica, &attempt->attempt, end, sim->now_ns);
    attempt->server = NULL;
    call->in_flight--;
}

static void end_call(struct eb_sim *sim, struct sim_call *call, bool is_answered)
{
    for (uint32_t i = 0; i < call->attempt_count; i++) {
        if (call->attempts[i].server) {
            end_attempt(sim, call, &call->attempts[i], EB_ATTEMPT_CANCELLED);
        }
    }
    uint64_t latency_ns = sim->now_ns - call->begun_ns;
    if (is_answered || latency_ns >= sim->settings.timeout_ns) {
        eb_hedge_note_latency(&sim->hedge, CALL_BYTES, latency_ns, sim->now_ns);
    }
    sim->counts.failed += !is_answered;
    sim->counts.slow += latency_ns > 20 * sim->settings.service_ns;
    call->number = 0;
}

static void begin_call(struct eb_sim *sim)
{
    uint64_t number = ++sim->call_numbers;
    struct sim_call *call = &sim->calls[number % CALLS_MAX];
    assert(call->number == 0);
    *call = (struct sim_call){.number = number, .begun_ns = sim->now_ns};
    sim->counts.calls++;
    eb_resend_budget_earn(&sim->budget, sim->now_ns);
    struct eb_hedge_call terms = hedge_terms(sim, call);
    uint64_t hedge_ns = eb_hedge_begin(&sim->hedge, &terms, sim->now_ns);
    if (!send_attempt(sim, call)) {
        end_call(sim, call, false);
    } else if (hedge_ns != EB_HEDGE_NEVER) {
        push_event(sim, (struct event){.kind = HEDGE_DUE, .at_ns = hedge_ns, .call = number});
    }
    double pause_ns = 1e9 / sim->settings.calls_per_second;
    push_event(sim,
        (struct event){.kind = ARRIVAL, .at_ns = sim->now_ns + draw_exponential(sim, pause_ns)});
}

static void hedge_call(struct eb_sim *sim, struct sim_call *call)
{
    struct eb_hedge_call terms = hedge_terms(sim, call);
    if (call->number == 0 || !eb_hedge_take(&sim->hedge, &terms, sim->now_ns)) {
        return;
    }
    sim->counts.hedges += send_attempt(sim, call);
}

static void on_attempt_end(struct eb_sim *sim, struct sim_call *call, const struct event *event)
{
    struct sim_attempt *attempt = &call->attempts[event->attempt];
    if (call->number != event->call || !attempt->server) {
        return;
    }
    if (attempt->server->mode != EB_SIM_STOPS) {
        eb_replica_note_heard(&attempt->server->replica, sim->now_ns);
    }
    end_attempt(sim, call, attempt, (enum eb_attempt_end)event->end);
    if (event->is_pushback) {
        eb_hedge_note_pushback(&sim->hedge, sim->now_ns);
    }
    if (event->end == EB_ATTEMPT_ANSWERED) {
        end_call(sim, call, true);
        return;
    }
    bool has_time = sim->now_ns < call->begun_ns + sim->settings.timeout_ns;
    bool may_resend = has_time && eb_resend_budget_has(&sim->budget, sim->now_ns);
    if (may_resend && send_attempt(sim, call)) {
        sim->counts.resends += eb_resend_budget_take(&sim->budget, sim->now_ns);
    } else if (call->in_flight == 0) {
        end_call(sim, call, false);
    }
}

/* Sends the calls in flight at a replica that has become suspect elsewhere. */
static void leave_suspect(struct eb_sim *sim, struct eb_replica *replica)
{
    struct eb_list *attempts = &replica->attempts;
    for (struct eb_list *link = attempts->next; link != attempts; link = link->next) {
        struct eb_replica_attempt *attempt = EB_CONTAINER_OF(link, struct eb_replica_attempt, link);
        struct sim_call *call = EB_CONTAINER_OF(attempt, struct sim_attempt, attempt)->call;
        if (call->in_flight == 1) {
            sim->counts.resends += send_attempt(sim, call);
        }
    }
}

/* A probe that is sent to a server which is not stopped is answered at once. */
static void check_silence(struct eb_sim *sim)
{
    uint64_t silence_ns = eb_suspicion_silence_ns(eb_hedge_delay_max_ns(&sim->hedge, sim->now_ns));
    for (uint32_t i = 0; i < sim->group.count; i++) {
        struct eb_replica *replica = sim->group.replicas[i];
        enum eb_suspicion_step step =
            eb_replica_check_silence(&sim->group, replica, silence_ns, sim->now_ns);
        if (step == EB_SUSPICION_PROBE && sim->servers[i].mode != EB_SIM_STOPS) {
            eb_replica_note_heard(replica, sim->now_ns);
        } else if (step == EB_SUSPICION_SUSPECT) {
            leave_suspect(sim, replica);
        }
    }
    push_event(sim, (struct event){.kind = CHECK_DUE, .at_ns = sim->now_ns + CHECK_NS});
}

/* ---- interface ---- */

struct eb_sim *eb_sim_create(const struct eb_sim_settings *settings)
{
    struct eb_sim *sim = calloc(1, sizeof *sim);
    assert(sim);
    sim->calls = calloc(CALLS_MAX, sizeof *sim->calls);
    assert(sim->calls);
    sim->settings = *settings;
    sim->now_ns = 100 * MS;
    sim->random = settings->seed;
    sim->group = (struct eb_replica_group){sim->replicas, settings->servers};
    for (uint32_t i = 0; i < settings->servers; i++) {
        sim->servers[i].slowness = 1;
        sim->replicas[i] = &sim->servers[i].replica;
        eb_replica_init(sim->replicas[i]);
    }
    for (uint32_t i = 0; i < settings->servers; i++) {
        eb_replica_join(&sim->group, sim->replicas[i], sim->now_ns);
    }
    eb_resend_budget_init(&sim->budget, EB_RESEND_LEAST_CLIENT);
    eb_hedge_init(&sim->hedge, settings->hedge_percent, EB_HEDGE_DELAY_MIN_NS);
    push_event(sim, (struct event){.kind = ARRIVAL, .at_ns = sim->now_ns});
    push_event(sim, (struct event){.kind = CHECK_DUE, .at_ns = sim->now_ns});
    return sim;
}

void eb_sim_destroy(struct eb_sim *sim)
{
    free(sim->heap);
    free(sim->calls);
    free(sim);
}

struct eb_sim_server *eb_sim_server(struct eb_sim *sim, uint32_t number)
{
    return &sim->servers[number];
}

const struct eb_replica_group *eb_sim_group(const struct eb_sim *sim)
{
    return &sim->group;
}

void eb_sim_join(struct eb_sim *sim, uint32_t number)
{
    eb_replica_join(&sim->group, sim->replicas[number], sim->now_ns);
}

void eb_sim_leave(struct eb_sim *sim, uint32_t number)
{
    eb_replica_leave(sim->replicas[number]);
}

struct eb_sim_counts eb_sim_run(struct eb_sim *sim, uint64_t time_ns)
{
    uint64_t end_ns = sim->now_ns + time_ns;
    sim->counts = (struct eb_sim_counts){0};
    for (uint32_t i = 0; i < sim->group.count; i++) {
        sim->servers[i].attempts = 0;
    }
    while (sim->heap[0].at_ns < end_ns) {
        struct event event = pop_event(sim);
        struct sim_call *call = &sim->calls[event.call % CALLS_MAX];
        sim->now_ns = event.at_ns;
        switch (event.kind) {
        case ARRIVAL: begin_call(sim); break;
        case ATTEMPT_ENDS: on_attempt_end(sim, call, &event); break;
        case HEDGE_DUE:
            if (call->number == event.call) {
                hedge_call(sim, call);
            }
            break;
        case CHECK_DUE: check_silence(sim); break;
        }
    }
    sim->now_ns = end_ns;
    return sim->counts;
}

uint32_t eb_sim_share(struct eb_sim *sim, uint32_t number)
{
    return sim->counts.attempts > 0
               ? (uint32_t)(sim->servers[number].attempts * 1000 / sim->counts.attempts)
               : 0;
}
