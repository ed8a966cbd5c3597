#include "tests/unit/route/leg_link_fixture.h"

#include "proto/codec.h"
#include "proto/grpc_text.h"
#include "proto/link/request_message.h"

#include <stdlib.h>
#include <string.h>

/* ---- the memory for messages ---- */

static void *take_counted(void *context, size_t bytes)
{
    struct link_fixture *f = context;
    f->held_bytes += bytes;
    f->take_count++;
    return eb_memory_heap.take(eb_memory_heap.context, bytes);
}

static void give_counted(void *context, void *memory, size_t bytes)
{
    struct link_fixture *f = context;
    assert_true(f->held_bytes >= bytes);
    f->held_bytes -= bytes;
    eb_memory_heap.give(eb_memory_heap.context, memory, bytes);
}

/* ---- the loop ---- */

static void on_link_before_sleep(uv_prepare_t *prepare)
{
    struct link_fixture *f = prepare->data;
    while (f->link && eb_leg_link_run(f->link)) {
    }
}

static void on_link_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void open_link_loop(struct link_fixture *f)
{
    assert_int_equal(uv_loop_init(&f->loop), 0);
    assert_int_equal(uv_prepare_init(&f->loop, &f->before_sleep), 0);
    assert_int_equal(uv_prepare_start(&f->before_sleep, on_link_before_sleep), 0);
    assert_int_equal(uv_timer_init(&f->loop, &f->tick), 0);
    assert_int_equal(uv_timer_start(&f->tick, on_link_tick, 1, 1), 0);
    f->before_sleep.data = f;
}

/* Runs the loop until all handles are closed. */
void end_link_loop(struct link_fixture *f)
{
    uv_close((uv_handle_t *)&f->before_sleep, NULL);
    uv_close((uv_handle_t *)&f->tick, NULL);
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&f->loop), 0);
}

/* ---- life ---- */

struct eb_leg_link_options make_link_options(struct link_fixture *f)
{
    return (struct eb_leg_link_options){.targets = &f->targets,
        .connect_timeout_ns = LINK_PATIENCE_NS,
        .unacknowledged_ms_max = 1000,
        .resolve_interval_ns = LINK_PATIENCE_NS,
        .values_bytes_max = 1U << 20,
        .part_bytes_max = LINK_PART_BYTES_MAX,
        .memory = {.take = take_counted, .give = give_counted, .context = f}};
}

uint32_t count_connected(const struct link_fixture *f)
{
    uint32_t connected = 0;
    for (uint32_t i = 0; i < eb_leg_link_peer_count(f->link); i++) {
        struct eb_leg_peer peer;
        connected +=
            eb_leg_link_describe_peer(f->link, i, &peer) && peer.is_connected && peer.instance != 0;
    }
    return connected;
}

struct link_fixture *begin_link(void)
{
    struct link_fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    open_link_loop(f);
    return f;
}

/* Starts the servers; the last ones are mute. */
void start_link_servers(struct link_fixture *f, int mute_count)
{
    struct eb_error error;
    char addresses[LINK_SERVERS * (sizeof f->servers[0].address + 1)] = "";
    for (int i = 0; i < LINK_SERVERS; i++) {
        enum fake_server_mode mode =
            i < LINK_SERVERS - mute_count ? FAKE_SERVER_SPEAKS_GRPC : FAKE_SERVER_IS_MUTE;
        assert_true(fake_server_start(&f->servers[i], mode, NULL));
        atomic_store(&f->servers[i].instance, LINK_FIRST_INSTANCE + (unsigned)i);
        (void)strcat(addresses, i > 0 ? "," : "");
        (void)strcat(addresses, f->servers[i].address);
    }
    assert_true(eb_targets_parse(addresses, &f->targets, &error));
}

/* Opens a link, and waits until the servers that are not mute are connected and known. */
struct link_fixture *open_link(int mute_count)
{
    struct eb_error error;
    struct link_fixture *f = begin_link();
    start_link_servers(f, mute_count);
    struct eb_leg_link_options options = make_link_options(f);
    assert_true(eb_leg_link_open(&options, &f->loop, &f->link, &error));
    assert_null(eb_leg_link_routes(f->link));
    RUN_LINK_UNTIL(f, count_connected(f) == (uint32_t)(LINK_SERVERS - mute_count));
    return f;
}

void abandon_legs(struct link_fixture *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        struct test_leg *test = &f->legs[i];
        /* A leg that is being ended does not have its id any more. */
        if (test->over_count == 0 && test->leg.call.state != EB_DISPATCH_OVER) {
            eb_leg_link_abandon(&test->leg, EB_STATUS_CANCELLED, "not needed any more");
        }
    }
}

void stop_link_server(struct link_fixture *f, int server)
{
    if (!f->is_stopped[server]) {
        assert_true(fake_server_stop(&f->servers[server]));
        f->is_stopped[server] = true;
    }
}

void close_link(struct link_fixture *f)
{
    abandon_legs(f);
    for (uint32_t i = 0; i < f->count; i++) {
        assert_int_equal(f->legs[i].over_count, 1);
    }
    struct eb_leg_link *link = f->link;
    f->link = NULL;
    eb_leg_link_close(link);
    end_link_loop(f);
    eb_leg_link_destroy(link);
    /* Every message is back. */
    assert_int_equal(f->held_bytes, 0);
    assert_true(f->count == 0 || f->take_count > 0);
    for (int i = 0; i < LINK_SERVERS; i++) {
        stop_link_server(f, i);
    }
    eb_targets_free(&f->targets);
    free(f);
}

/* ---- routes ---- */

/* Adds a version. Bit i of holders[p] says whether server i has part p. */
void add_route(struct eb_route_table *table, const char *model, uint64_t version,
    const unsigned holders[LINK_PARTS])
{
    struct eb_route_entry *entry =
        eb_route_table_append(table, model, version, 10 * version, LINK_PARTS);
    assert_non_null(entry);
    for (uint32_t part = 0; part < LINK_PARTS; part++) {
        for (unsigned i = 0; i < LINK_SERVERS; i++) {
            if (holders[part] >> i & 1) {
                assert_true(eb_route_entry_add(entry, part, LINK_FIRST_INSTANCE + i));
            }
        }
    }
}

struct eb_route_table *create_routes(void)
{
    struct eb_route_table *table = eb_route_table_create();
    assert_non_null(table);
    return table;
}

/* Replaces the table by one with version 7 of the models that tests use. */
void set_link_routes(struct link_fixture *f, unsigned part_0, unsigned part_1)
{
    static const char *const models[] = {
        "echo", "silent", "later", "busy", "always-busy", "full", "refuse", "hang-up"};
    struct eb_route_table *table = create_routes();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        add_route(table, models[i], 7, (const unsigned[LINK_PARTS]){part_0, part_1});
    }
    eb_leg_link_set_routes(f->link, table);
    assert_ptr_equal(eb_leg_link_routes(f->link), table);
}

/* ---- legs ---- */

static bool take_leg(
    struct eb_leg *leg, const struct eb_wire_response *response, struct eb_error *error)
{
    struct test_leg *test = EB_CONTAINER_OF(leg, struct test_leg, leg);
    struct link_fixture *f = test->fixture;
    test->take_count++;
    assert_int_equal(response->error_code, EB_STATUS_OK);
    assert_int_equal(response->request_id, leg->request_id);
    assert_int_equal(response->result_count, 1);
    assert_int_equal(response->results[0].values_bytes, sizeof test->index);
    assert_memory_equal(response->results[0].values, &test->index, sizeof test->index);
    if (f->wrong_count > 0) {
        f->wrong_count--;
        eb_error_set(error, f->wrong_status, "it does not suit");
        return false;
    }
    return true;
}

static void on_test_leg_over(struct eb_leg *leg)
{
    struct test_leg *test = EB_CONTAINER_OF(leg, struct test_leg, leg);
    test->over_count++;
    assert_int_equal(test->over_count, 1);
    if (test->abandons_others) {
        abandon_legs(test->fixture);
    }
    if (test->sends_another) {
        (void)send_leg(test->fixture, "echo", 1);
    }
}

/* Makes the message of a leg, and takes an id for it unless it has one. */
void fill_leg(struct link_fixture *f, struct test_leg *test)
{
    struct eb_leg *leg = &test->leg;
    struct eb_wire_query query = {.table = "t",
        .part = 1 + leg->part,
        .indices = {&test->index, sizeof test->index, sizeof test->index, "indices_i64"}};
    leg->request_id = leg->request_id ? leg->request_id : eb_leg_link_take_id(f->link);
    assert_true(leg->request_id != 0);
    struct eb_wire_request request = {.request_id = leg->request_id,
        .model = leg->model,
        .version = leg->version,
        .is_timed = true,
        .query_count = 1,
        .queries = &query};
    size_t bytes = eb_lookup_request_bytes(&request);
    leg->request = eb_request_message_create(eb_leg_link_memory(f->link), 0, bytes);
    assert_non_null(leg->request);
    eb_lookup_request_encode(&request, leg->request->bytes + EB_GRPC_PREFIX_BYTES);
    f->message_bytes = (uint32_t)leg->request->size;
}

/* Makes a leg that the test sends. */
struct test_leg *make_leg(struct link_fixture *f, const char *model, uint32_t part)
{
    assert_true(f->count < LINK_LEGS_MAX);
    struct test_leg *test = &f->legs[f->count++];
    test->fixture = f;
    test->index = 1000 + f->count;
    test->leg = (struct eb_leg){.model = model,
        .version = 7,
        .digest = 70,
        .part = part,
        .deadline_ns = uv_hrtime() + LINK_PATIENCE_NS,
        .take = take_leg,
        .on_over = on_test_leg_over};
    return test;
}

/* Sends a leg that was made; it must not be over before this returns. */
struct test_leg *send_made(struct test_leg *test)
{
    struct link_fixture *f = test->fixture;
    fill_leg(f, test);
    assert_true(eb_leg_link_send(f->link, &test->leg));
    assert_null(test->leg.request);
    assert_int_equal(test->over_count, 0);
    return test;
}

struct test_leg *send_leg(struct link_fixture *f, const char *model, uint32_t part)
{
    return send_made(make_leg(f, model, part));
}

/* Gives up a leg that the link has refused. */
void forget_refused(struct test_leg *test)
{
    struct link_fixture *f = test->fixture;
    assert_ptr_equal(test, &f->legs[f->count - 1]);
    eb_outgoing_drop(test->leg.request);
    eb_leg_link_give_id(f->link, test->leg.request_id);
    f->count--;
}

void run_until_leg_over(struct test_leg *test)
{
    RUN_LINK_UNTIL(test->fixture, test->over_count > 0);
}

unsigned count_calls(struct link_fixture *f, int server)
{
    return atomic_load(&f->servers[server].call_count);
}

struct eb_leg_counters count_part(const struct link_fixture *f, uint32_t part)
{
    struct eb_leg_counters counters = {.refusals = 0};
    eb_leg_link_count(f->link, part, &counters);
    return counters;
}

uint64_t count_resends(const struct link_fixture *f, uint32_t part)
{
    struct eb_leg_counters counters = count_part(f, part);
    uint64_t sum = 0;
    for (int i = 0; i < EB_LEG_RESENDS; i++) {
        sum += counters.resends[i];
    }
    return sum;
}

/* Checks how a leg has ended. */
void expect_end(
    const struct test_leg *test, enum eb_status status, const char *text, uint32_t attempts)
{
    assert_int_equal(test->over_count, 1);
    assert_int_equal(test->leg.error.status, status);
    if (text) {
        assert_string_equal(test->leg.error.text, text);
    }
    assert_int_equal(test->leg.call.attempts, attempts);
}
