#include "tests/unit/route/watch_fixture.h"

#include "proto/message.h"
#include "server/base/log.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)

/* ---- the clock and the names ---- */

/* Far after the system's clock, so that no timer rings by itself. */
static atomic_ullong clock_ns = UINT64_C(1000000000000000000);
/* The address of every name; NULL: there is none. */
static _Atomic(const char *) name_address;
static atomic_uint address_count = 1; /* for each name: 127.1.0.0 and so on, if there are several */
static atomic_uint resolution_count;

uint64_t __wrap_uv_hrtime(void);
uint64_t __wrap_uv_hrtime(void)
{
    return atomic_load(&clock_ns);
}

int __real_getaddrinfo(
    const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(
    const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(
    const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    const char *address = atomic_load(&name_address);
    unsigned count = atomic_load(&address_count);
    (void)host;
    atomic_fetch_add(&resolution_count, 1);
    if (count == 1) {
        return address ? __real_getaddrinfo(address, port, hints, found) : EAI_NONAME;
    }
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < count; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "127.1.%u.%u", i / 256, i % 256);
        rc = __real_getaddrinfo(text, port, hints, found);
        if (rc == 0) {
            found = &(*found)->ai_next;
        }
    }
    return rc;
}

void set_address_count(unsigned count)
{
    atomic_store(&address_count, count);
}

void set_name_address(const char *address)
{
    atomic_store(&name_address, address);
}

unsigned count_resolutions(void)
{
    return atomic_load(&resolution_count);
}

/* ---- fixture ---- */

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

void run_a_while(struct watch_fixture *f)
{
    for (int i = 0; i < 30; i++) {
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
}

void advance(uint64_t ms)
{
    atomic_fetch_add(&clock_ns, ms * NS_PER_MS);
}

static void on_change(void *context)
{
    struct watch_fixture *f = context;
    f->change_count++;
    if (f->closes_at_change) {
        f->closes_at_change = false;
        eb_peer_watch_close(f->watch);
    }
}

static void on_closed(void *context)
{
    struct watch_fixture *f = context;
    assert_false(f->is_closed);
    f->is_closed = true;
}

struct eb_peer_watch_options make_options(struct watch_fixture *f)
{
    return (struct eb_peer_watch_options){.targets = &f->targets,
        .credentials = &f->credentials,
        .connect_timeout_ns = WATCH_CONNECT_TIMEOUT_MS * NS_PER_MS,
        .resolve_interval_ns = 5000 * NS_PER_MS,
        .router = "router-1",
        .on_change = on_change,
        .on_closed = on_closed,
        .context = f};
}

struct watch_fixture *start_servers(int count)
{
    struct watch_fixture *f = calloc(1, sizeof *f);
    static const char *const roles[] = {"part 0/2", "part 1/2"};
    assert_non_null(f);
    atomic_store(&resolution_count, 0);
    f->server_count = count;
    for (int i = 0; i < count; i++) {
        assert_true(fake_server_start(&f->servers[i], FAKE_SERVER_SPEAKS_GRPC, NULL));
        atomic_store(&f->servers[i].role, roles[i]);
        atomic_store(&f->servers[i].instance, 100U + (unsigned)i);
    }
    assert_int_equal(uv_loop_init(&f->loop), 0);
    assert_int_equal(uv_timer_init(&f->loop, &f->tick), 0);
    assert_int_equal(uv_timer_start(&f->tick, on_tick, 1, 1), 0);
    return f;
}

void set_targets(struct watch_fixture *f, const char *addresses)
{
    struct eb_error error;
    assert_true(eb_targets_parse(addresses, &f->targets, &error));
}

void open_watch_to(struct watch_fixture *f, const char *addresses)
{
    static const struct eb_part_key key = {"m", 7, 70, WATCH_PARTS};
    struct eb_peer_watch_options options = make_options(f);
    set_targets(f, addresses);
    assert_int_equal(eb_peer_watch_open(&f->watch, &options, &f->loop), 0);
    f->set = eb_part_map_open(eb_peer_watch_map(f->watch), &key);
    assert_non_null(f->set);
}

void open_watch(struct watch_fixture *f)
{
    char addresses[WATCH_SERVERS_MAX * (sizeof f->servers[0].address + 1)] = "";
    for (int i = 0; i < f->server_count; i++) {
        (void)strcat(addresses, i > 0 ? "," : "");
        (void)strcat(addresses, f->servers[i].address);
    }
    open_watch_to(f, addresses);
}

void stop_one(struct watch_fixture *f, int server)
{
    assert_true(fake_server_stop(&f->servers[server]));
    f->is_stopped[server] = true;
}

void close_watch(struct watch_fixture *f)
{
    if (!f->is_closed) {
        eb_peer_watch_close(f->watch);
        assert_false(f->is_closed);
    }
    uv_close((uv_handle_t *)&f->tick, NULL);
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_true(f->is_closed);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    eb_part_map_close(f->set);
    eb_peer_watch_destroy(f->watch);
    eb_targets_free(&f->targets);
    for (int i = 0; i < f->server_count; i++) {
        if (!f->is_stopped[i]) {
            stop_one(f, i);
        }
    }
    free(f);
}

/* ---- what servers tell ---- */

const uint32_t part_numbers[3] = {0, 1, 2};

struct eb_wire_holding make_holding(int i, int32_t state)
{
    return (struct eb_wire_holding){.model = "m",
        .version = 7,
        .digest = 70,
        .parts = WATCH_PARTS,
        .owned_part_count = 1,
        .owned_parts = &part_numbers[i % 2],
        .state = state,
        .error = ""};
}

void tell_wire(struct watch_fixture *f, int server, const struct eb_wire_holdings *wire)
{
    size_t size = eb_holdings_bytes(wire);
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    eb_holdings_encode(wire, bytes);
    fake_server_tell(&f->servers[server], bytes, size);
    free(bytes);
}

void tell_holding(
    struct watch_fixture *f, int server, const struct eb_wire_holding *holding, bool is_draining)
{
    tell_wire(f, server,
        &(struct eb_wire_holdings){.count = 1,
            .items = holding,
            .draining = is_draining,
            .instance = atomic_load(&f->servers[server].instance),
            .level = EB_WATCH_LEVEL});
}

void tell_state(struct watch_fixture *f, int server, int32_t state)
{
    struct eb_wire_holding holding = make_holding(server, state);
    tell_holding(f, server, &holding, false);
}

void tell_ready(struct watch_fixture *f, int server)
{
    tell_state(f, server, EB_WIRE_STATE_READY);
}

void tell_nothing(struct watch_fixture *f, int server)
{
    fake_server_tell(&f->servers[server], NULL, 0);
}

/* ---- what the watch knows ---- */

size_t count_ready(const struct watch_fixture *f, uint32_t part)
{
    size_t count;
    (void)eb_part_set_peers(f->set, part, &count);
    return count;
}

uint32_t count_mapped(const struct watch_fixture *f)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < EB_PART_MAP_PEERS_MAX; i++) {
        count += eb_peer_watch_instance(f->watch, i) != 0;
    }
    return count;
}

uint32_t find_number(const struct watch_fixture *f, int server)
{
    uint32_t number = 0;
    while (strcmp(eb_peer_watch_address(f->watch, number), f->servers[server].address) != 0) {
        number++;
        assert_true(number < EB_PART_MAP_PEERS_MAX);
    }
    return number;
}

unsigned count_begun(struct watch_fixture *f, int server)
{
    return atomic_load(&f->servers[server].watches.begun_count);
}

unsigned count_open(struct watch_fixture *f, int server)
{
    return atomic_load(&f->servers[server].watches.open_count);
}

unsigned count_gaps(struct watch_fixture *f, int server)
{
    return atomic_load(&f->servers[server].watches.gap_count);
}

struct watch_fixture *watch_one(void)
{
    struct watch_fixture *f = start_servers(1);
    tell_ready(f, 0);
    open_watch(f);
    RUN_UNTIL(f, count_ready(f, 0) == 1);
    return f;
}

/* ---- the log ---- */

void start_log(struct watch_fixture *f)
{
    eb_log_set_level(EB_LOG_INFO);
    eb_capture_start(&f->capture, STDERR_FILENO);
}

void stop_log(struct watch_fixture *f)
{
    eb_capture_stop(&f->capture, f->log, sizeof f->log);
    eb_log_set_level(EB_LOG_ERROR);
}

unsigned count_logged(const struct watch_fixture *f, const char *text)
{
    unsigned count = 0;
    for (const char *at = strstr(f->log, text); at; at = strstr(at + 1, text)) {
        count++;
    }
    return count;
}

int quieten_log(void **state)
{
    (void)state;
    eb_log_set_level(EB_LOG_ERROR);
    return 0;
}
