#include "tests/unit/rpc/service_host.h"

#include "kernels/bag_stream.h"
#include "tests/lib/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define QUEUE_BYTES_MAX (UINT64_C(1) << 30)
#define ANSWER_ARENA_BYTES (UINT64_C(1) << 26)

/* ---- start and stop ---- */

static void load_trial(struct service_host *host)
{
    struct eb_scratch scratch;
    struct eb_failure failure;
    eb_scratch_init(&scratch);
    eb_scratch_write_npy(&scratch, "trial/7/rows.npy",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (4, 2), }", 32);
    host->snapshot = manager_host_load(&host->models, scratch.root, &failure);
    assert_non_null(host->snapshot);
    eb_scratch_deinit(&scratch);
}

void service_host_init(struct service_host *host)
{
    *host = (struct service_host){
        .facts = {.version = "1", .build = "b", .isa = "ref", .loops = 1, .threads = 1, .cpus = 1},
        .limits = {
#define X(name, effect, fallback, min, max, what) .name = (fallback),
            EB_LIMIT_LIST(X)
#undef X
        }};
    host->limits.inline_below_us = 0;
    host->limits.queue_bytes_max = QUEUE_BYTES_MAX;
    loop_host_init(&host->loops);
    load_trial(host);
}

void service_host_start(struct service_host *host)
{
    host->executor = eb_executor_create(
        eb_bag_ops_find("ref"), &eb_bag_schedules_default, 1, host->limits.queue_bytes_max);
    assert_non_null(host->executor);
    assert_int_equal(uv_sem_init(&host->holds, 0), 0);
    assert_int_equal(uv_sem_init(&host->released, 0), 0);
    host->is_started = true;
    host->endpoint.mailbox = &host->loops.mailbox;
    host->service = (struct eb_service){
        .snapshot = host->snapshot,
        .lookups = {.ops = eb_bag_ops_find("ref"),
            .schedules = &eb_bag_schedules_default,
            .executor = host->executor},
        .settings = {host->limits, host->access_log},
        .admin = host->endpoint,
        .facts = host->facts,
    };
    host->loops.options.service = &host->service;
    eb_service_attach(&host->loops.options);
    loop_host_create(&host->loops);
    loop_host_listen(&host->loops, 0, "127.0.0.1:0", &host->address);
    loop_host_start(&host->loops);
}

static void stop_threads(struct service_host *host)
{
    service_host_release(host);
    loop_host_stop(&host->loops);
    host->is_started = false;
    eb_executor_destroy(host->executor);
    uv_sem_destroy(&host->holds);
    uv_sem_destroy(&host->released);
}

void service_host_stop(struct service_host *host)
{
    if (host->is_started) {
        stop_threads(host);
    }
    manager_host_free(&host->models);
}

/* ---- the executor ---- */

static void wait_for_release(struct eb_work *work, enum eb_work_outcome outcome)
{
    struct service_hold *hold = EB_CONTAINER_OF(work, struct service_hold, work);
    struct service_host *host = hold->host;
    (void)outcome;
    uv_sem_post(&host->holds);
    uv_sem_wait(&host->released);
}

/* Queues a work item that has no weight and is done when its turn comes. */
static void queue_hold(struct service_host *host, struct service_hold *hold)
{
    *hold = (struct service_hold){.work = {.on_done = wait_for_release}, .host = host};
    struct eb_work *work = &hold->work;
    struct eb_admission told;
    assert_int_equal(eb_executor_admit(host->executor, &work, 1, &told), EB_ADMIT_TAKEN);
}

void service_host_hold(struct service_host *host)
{
    host->is_held = true;
    queue_hold(host, &host->hold[0]);
    uv_sem_wait(&host->holds);
}

void service_host_turn(struct service_host *host)
{
    assert_true(host->is_held);
    queue_hold(host, &host->hold[1]);
    uv_sem_post(&host->released);
    uv_sem_wait(&host->holds);
}

void service_host_release(struct service_host *host)
{
    if (host->is_held) {
        host->is_held = false;
        uv_sem_post(&host->released);
    }
}

/* ---- the loop ---- */

static void do_nothing(struct eb_loop *loop, void *context)
{
    (void)loop;
    (void)context;
}

void service_host_settle(struct service_host *host)
{
    loop_host_act(host->loops.loops[0], do_nothing, NULL);
}

void service_host_drain(struct service_host *host)
{
    loop_host_drain(&host->loops);
    service_host_settle(host);
}

bool service_host_is_drained(struct service_host *host)
{
    service_host_settle(host);
    return loop_host_wait_drained(&host->loops, 1);
}

bool service_host_wait_taken(struct service_host *host, uint64_t bytes)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * SERVICE_HOST_TIMEOUT_MS;
    while (loop_host_taken_bytes(&host->loops) > bytes && uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
    return loop_host_taken_bytes(&host->loops) <= bytes;
}

/* ---- calls ---- */

uint8_t *service_request_encode(const struct service_request *request, size_t *size)
{
    static const int32_t index = 2;
    bool is_one = request->bags == 1;
    uint32_t count = request->queries ? request->queries : 1;
    struct eb_wire_query *queries = malloc(count * sizeof *queries);
    assert_non_null(queries);
    queries[0] = (struct eb_wire_query){
        .table = request->table ? request->table : "rows",
        .layout = EB_LAYOUT_PACKED,
        .indices = {.data = is_one ? &index : NULL,
            .bytes = is_one ? sizeof index : 0,
            .width = is_one ? sizeof index : 0,
            .field = "indices_i32"},
        .indices_per_bag = is_one,
        .num_bags = request->bags,
    };
    for (uint32_t i = 1; i < count; i++) {
        queries[i] = queries[0];
    }
    struct eb_wire_request wire = {.request_id = request->id,
        .model = "",
        .timeout_us = request->timeout_us,
        .output_type = request->is_bad ? 99 : 0,
        .cancel = request->cancel,
        .partial = request->partial,
        .priority = request->priority,
        .traceparent = request->traceparent,
        .traceparent_bytes = request->traceparent ? strlen(request->traceparent) : 0,
        .query_count = count,
        .queries = queries};
    *size = eb_lookup_request_bytes(&wire);
    uint8_t *bytes = malloc(*size);
    assert_non_null(bytes);
    eb_lookup_request_encode(&wire, bytes);
    free(queries);
    return bytes;
}

static void keep_answer(struct service_call *call, const struct eb_wire_response *response)
{
    struct service_answer *answer = &call->answers[call->count++];
    *answer = (struct service_answer){.id = response->request_id,
        .error_code = response->error_code,
        .retry_after_ms = response->retry_after_ms,
        .queue_us = response->queue_us,
        .more = response->more};
    if (response->result_count == 1) {
        answer->values_bytes = response->results[0].values_bytes;
        if (answer->values_bytes >= sizeof answer->row) {
            memcpy(answer->row, response->results[0].values, sizeof answer->row);
        }
    }
}

static void on_answer(struct wire_call *wire, const uint8_t *bytes, size_t size)
{
    struct service_call *call = EB_CONTAINER_OF(wire, struct service_call, wire);
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ANSWER_ARENA_BYTES);
    struct eb_wire_response *response = eb_lookup_response_decode(&arena, bytes, size, &error);
    if (response && call->count < SERVICE_HOST_ANSWERS_MAX) {
        keep_answer(call, response);
    } else {
        call->is_garbled = true;
    }
    call->has_wanted = call->count >= call->wanted;
    eb_arena_deinit(&arena);
}

void service_call_open(
    struct wire_peer *peer, struct service_call *call, const char *method, uint64_t timeout_us)
{
    *call = (struct service_call){.wire = {.on_message = on_answer}};
    call->wire.call = eb_grpc_client_start(peer->client, method, timeout_us, &call->wire);
    assert_non_null(call->wire.call);
}

void service_call_write(struct service_call *call, const struct service_request *request, bool last)
{
    size_t size;
    uint8_t *bytes = service_request_encode(request, &size);
    wire_peer_write_bytes(&call->wire, bytes, size, last);
    free(bytes);
}

void service_call_lookup(
    struct wire_peer *peer, struct service_call *call, const struct service_request *request)
{
    service_call_open(peer, call, SERVICE_HOST_METHOD("Lookup"), 0);
    service_call_write(call, request, true);
}

void service_call_expect_answers(struct wire_peer *peer, struct service_call *call, size_t count)
{
    call->wanted = count;
    call->has_wanted = call->count >= count;
    assert_true(wire_peer_run(peer, &call->has_wanted, SERVICE_HOST_TIMEOUT_MS));
    assert_int_equal(call->count, count);
    assert_false(call->is_garbled);
}

void service_call_expect_end(
    struct wire_peer *peer, struct service_call *call, enum eb_status status)
{
    assert_true(wire_peer_run(peer, &call->wire.is_finished, SERVICE_HOST_TIMEOUT_MS));
    assert_string_equal(eb_status_name((int)call->wire.error.status), eb_status_name((int)status));
    assert_false(call->is_garbled);
}

const struct service_answer *service_call_find(const struct service_call *call, uint64_t id)
{
    for (size_t i = 0; i < call->count; i++) {
        if (call->answers[i].id == id) {
            return &call->answers[i];
        }
    }
    return NULL;
}

void service_peer_settle(struct wire_peer *peer)
{
    struct wire_call call;
    wire_peer_call(peer, &call, SERVICE_HOST_METHOD("GetServer"));
    wire_peer_write(&call, 0, 0, true);
    assert_true(wire_peer_run(peer, &call.is_finished, SERVICE_HOST_TIMEOUT_MS));
}

/* ---- fixture ---- */

int service_fixture_set_up(void **state)
{
    struct service_fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    service_host_init(&fixture->host);
    *state = fixture;
    return 0;
}

int service_fixture_tear_down(void **state)
{
    struct service_fixture *fixture = *state;
    wire_peer_abandon(&fixture->peer);
    bool is_closed = loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS);
    service_host_stop(&fixture->host);
    free(fixture);
    assert_true(is_closed);
    return 0;
}

void service_fixture_start(struct service_fixture *fixture)
{
    service_host_start(&fixture->host);
    wire_peer_open(&fixture->peer, &fixture->host.address);
}

void service_fixture_stop(struct service_fixture *fixture)
{
    wire_peer_close(&fixture->peer);
    assert_true(loop_host_wait_conns(&fixture->host.loops, 0, SERVICE_HOST_TIMEOUT_MS));
    service_host_stop(&fixture->host);
}
