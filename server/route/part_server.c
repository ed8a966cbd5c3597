#include "server/route/part_server.h"

#include "proto/grpc_text.h"
#include "proto/link/request_message.h"
#include "proto/message.h"
#include "proto/splitmix64.h"
#include "server/base/log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
/* Longest pause before something that has failed is tried again, and how often it can double. */
#define PAUSE_MAX_NS (30 * NS_PER_S)
#define DOUBLINGS_MAX 5
/* A call that has lasted for this long is a success: the next pause is the shortest again. */
#define LASTING_NS (10 * NS_PER_S)
#define REPORT_NS (60 * NS_PER_S)      /* between two warnings about the same server */
#define ARENA_BYTES ((size_t)32 << 20) /* for decoding a message */

static const char hint_role[] = "start it with --part, or remove its address from route";
static const char hint_upgrade[] = "upgrade the server to the release of this router";
static const char hint_auth[] = "give this router a principal with router: true in the "
                                "server's auth_file, and that principal's token or certificate";
static const char hint_reach[] = "check that the server runs, that the network lets this router "
                                 "reach it and, with TLS, the certificates of both";
static const char hint_answers[] = "check the server's log, and that the address is that of an "
                                   "embagd";
static const char hint_messages[] = "check that the server is embagd, of this release or "
                                    "an adjacent one";

/* ---- log ---- */

bool eb_part_servers_may_log(struct eb_part_servers *shared)
{
    uint64_t now_ms = uv_hrtime() / NS_PER_MS;
    bool is_allowed = eb_log_rate_limit_allows(&shared->lines, now_ms);
    uint64_t left_out = is_allowed ? eb_log_rate_limit_take_left_out(&shared->lines, now_ms) : 0;
    if (left_out > 0) {
        eb_log(EB_LOG_WARN, "part_servers_not_logged", eb_log_count("count", left_out));
    }
    return is_allowed;
}

static void log_event(
    struct eb_part_server *server, enum eb_log_level level, const char *event, const char *reason)
{
    if (eb_part_servers_may_log(server->shared)) {
        eb_log(
            level, event, eb_log_text("address", server->address), eb_log_text("reason", reason));
    }
}

static void log_connected(struct eb_part_server *server)
{
    char part[32];
    (void)snprintf(
        part, sizeof part, "%" PRIu32 "/%" PRIu32, server->role.part, server->role.parts);
    if (eb_part_servers_may_log(server->shared)) {
        eb_log(EB_LOG_INFO, "part_server_connected", eb_log_text("address", server->address),
            eb_log_text("part", part), eb_log_count("instance", server->mapped));
    }
}

/* Warns of a server, at most once per minute. The hint may be NULL. */
static void warn_of(
    struct eb_part_server *server, const char *event, const char *reason, const char *hint)
{
    uint64_t now_ns = uv_hrtime();
    bool is_early = server->reported_ns != 0 && now_ns < server->reported_ns + REPORT_NS;
    if (is_early || !eb_part_servers_may_log(server->shared)) {
        return;
    }
    server->reported_ns = now_ns;
    if (hint) {
        eb_log(EB_LOG_WARN, event, eb_log_text("address", server->address),
            eb_log_text("reason", reason), eb_log_text("remedy", hint));
    } else {
        eb_log(EB_LOG_WARN, event, eb_log_text("address", server->address),
            eb_log_text("reason", reason));
    }
}

/* ---- servers and the map ---- */

void eb_part_server_mark(struct eb_part_server *server)
{
    if (eb_list_is_empty(&server->link)) {
        eb_list_push(&server->shared->due, &server->link);
    }
}

static void leave_map(struct eb_part_server *server)
{
    if (server->mapped != 0) {
        server->mapped = 0;
        eb_part_map_drop(server->shared->map, server->number);
    }
}

/* Removes a server from the map, if it is there, because something is wrong. */
static void lose_server(struct eb_part_server *server, const char *reason)
{
    if (server->mapped != 0) {
        leave_map(server);
        log_event(server, EB_LOG_WARN, "part_server_lost", reason);
    }
}

static void note_trouble(
    struct eb_part_server *server, enum eb_trouble trouble, const struct eb_error *why)
{
    if (trouble > server->trouble) {
        server->trouble = trouble;
        server->why = *why;
    }
    eb_part_server_mark(server);
}

static void note_unfit(struct eb_part_server *server, const char *hint, const struct eb_error *why)
{
    server->hint = hint;
    note_trouble(server, EB_TROUBLE_UNFIT, why);
}

/* Returns whether a connection is open, even if it takes no more calls. */
static bool has_open_connection(const struct eb_peer *peer)
{
    bool is_open = false;
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        const struct eb_connection *connection = &peer->connections[i];
        is_open =
            is_open || (connection->session && connection->transport.state == EB_TRANSPORT_OPEN);
    }
    return is_open;
}

/* Returns whether the address is in use and connected, or is being connected to while a former
 * connection ends. */
static bool is_present(const struct eb_peer *peer)
{
    return !peer->is_twin && (eb_peer_is_live(peer) || has_open_connection(peer));
}

/* Delays the next call, because something has failed at now_ns. The first failure of several may be
 * free: servers close connections when these are old. */
static void pause_server(struct eb_part_server *server, bool may_be_free, uint64_t now_ns)
{
    uint32_t doublings = server->failures < DOUBLINGS_MAX ? server->failures : DOUBLINGS_MAX;
    uint64_t pause_ns = EB_PART_SERVER_PAUSE_NS << doublings;
    pause_ns = pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
    pause_ns -= pause_ns / 2 * (eb_splitmix64_next(&server->shared->random) >> 48) / 65536;
    server->retry_ns = may_be_free && server->failures == 0 ? now_ns : now_ns + pause_ns;
    server->failures += server->failures < DOUBLINGS_MAX;
}

/* ---- messages ---- */

/* Notes that a message has come on a call. */
static void hear_call(struct eb_watch_call *call, uint64_t now_ns)
{
    struct eb_part_server *server = call->server;
    call->heard_ns = now_ns;
    server->has_answered = true;
    if (!call->has_message) {
        call->has_message = true;
        eb_part_server_mark(server);
    }
    if (now_ns - call->begun_ns >= LASTING_NS) {
        server->failures = 0;
    }
}

/* Removes a server that drains from the map. It may still send messages, until it is gone. */
static void note_draining(struct eb_part_server *server)
{
    leave_map(server);
    if (!server->is_draining) {
        server->is_draining = true;
        log_event(server, EB_LOG_INFO, "part_server_draining", "it is about to end");
    }
}

/* Puts what a server holds into the map. Returns false with *why set if it is refused. */
static bool map_message(struct eb_part_server *server, const struct eb_peer_message *message,
    uint64_t now_ns, struct eb_error *why)
{
    struct eb_part_message part = message->part;
    bool was_mapped = server->mapped != 0;
    part.role = server->role;
    if (!eb_part_map_take(server->shared->map, server->number, &part, why)) {
        return false;
    }
    server->mapped = part.instance;
    server->heard_ns = now_ns;
    server->is_draining = false;
    server->is_unfit = false;
    if (!was_mapped) {
        log_connected(server);
    }
    return true;
}

static void take_message(
    struct eb_watch_call *call, struct eb_arena *arena, const uint8_t *bytes, size_t size)
{
    struct eb_part_server *server = call->server;
    struct eb_error why;
    uint64_t now_ns = uv_hrtime();
    const struct eb_peer_message *message = eb_peer_message_decode(arena, bytes, size, &why);
    if (!message) {
        note_trouble(server, EB_TROUBLE_REFUSED, &why);
    } else if (message->level < EB_PEER_LEVEL_MIN) {
        eb_error_set(&why, EB_STATUS_UNIMPLEMENTED,
            "it speaks level %" PRIu32 " of WatchModels; expected at least %u", message->level,
            EB_PEER_LEVEL_MIN);
        note_unfit(server, hint_upgrade, &why);
    } else if (message->part.instance != server->instance) {
        eb_error_set(&why, EB_STATUS_INTERNAL,
            "it says that its instance is %" PRIu64 ", but GetServer has said %" PRIu64,
            message->part.instance, server->instance);
        note_trouble(server, EB_TROUBLE_REFUSED, &why);
    } else if (message->is_draining) {
        note_draining(server);
        hear_call(call, now_ns);
    } else if (map_message(server, message, now_ns, &why)) {
        hear_call(call, now_ns);
    } else {
        note_trouble(server, EB_TROUBLE_REFUSED, &why);
    }
    if (server->trouble >= EB_TROUBLE_REFUSED) {
        lose_server(server, server->why.text);
    }
}

/* ---- callbacks of the dispatcher ---- */

/* The answer of WatchModels is never complete. A call whose message is refused is ended by the next
 * review, because calls must not be ended here. */
bool eb_part_server_on_message(
    struct eb_dispatch_call *dispatched, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_watch_call *call = EB_CONTAINER_OF(dispatched, struct eb_watch_call, dispatched);
    const struct eb_part_server *server = call->server;
    (void)error;
    if (server->peer && !server->peer->is_twin && server->trouble < EB_TROUBLE_REFUSED &&
        call->instance == server->instance) {
        struct eb_arena arena;
        eb_arena_init(&arena, &eb_memory_heap);
        eb_arena_reset(&arena, ARENA_BYTES);
        take_message(call, &arena, bytes, size);
        eb_arena_deinit(&arena);
    }
    return false;
}

void eb_part_server_on_over(struct eb_dispatch_call *dispatched)
{
    struct eb_watch_call *call = EB_CONTAINER_OF(dispatched, struct eb_watch_call, dispatched);
    struct eb_part_server *server = call->server;
    call->is_open = false;
    if (!call->is_unwanted && server->peer) {
        server->is_lost = server->is_lost || !has_open_connection(server->peer);
        note_trouble(server, EB_TROUBLE_ENDED, &call->error);
    }
}

/* Returns when a question that is asked now is overdue, and can be asked again. */
static uint64_t find_ask_ns(const struct eb_part_server *server, uint64_t now_ns)
{
    return now_ns + server->shared->connect_timeout_ns + NS_PER_MS;
}

/* What a server has told may not hold on a new connection, on which it is asked again. */
void eb_part_server_on_open(struct eb_part_server *server)
{
    server->is_told = false;
    server->ask_ns = find_ask_ns(server, uv_hrtime());
}

/* Reads what the server has told. Another process begins without failures. Returns false with *why
 * and *hint set if it cannot be used. */
static bool take_told(struct eb_part_server *server, const struct eb_wire_server *told,
    struct eb_error *why, const char **hint)
{
    struct eb_part_choice role;
    if (told->instance != server->instance) {
        server->failures = 0;
        server->retry_ns = 0;
    }
    server->instance = told->instance;
    if (told->instance == 0) {
        *hint = hint_upgrade;
        eb_error_set(why, EB_STATUS_UNIMPLEMENTED, "it does not tell its instance");
        return false;
    }
    if (!eb_peer_role_read(told->role, &role)) {
        *hint = hint_role;
        eb_error_set(why, EB_STATUS_FAILED_PRECONDITION,
            "its role is \"%.64s\"; expected \"part K/P\"", told->role);
        return false;
    }
    server->role = role;
    return true;
}

void eb_part_server_on_told(
    struct eb_part_server *server, const struct eb_wire_server *told, const struct eb_error *why)
{
    struct eb_error refusal;
    const char *hint;
    server->is_told = told && take_told(server, told, &refusal, &hint);
    if (!told) {
        note_trouble(server, EB_TROUBLE_UNTOLD, why);
    } else if (!server->is_told) {
        note_unfit(server, hint, &refusal);
    }
    eb_part_server_mark(server);
}

void eb_part_server_on_gone(struct eb_part_server *server)
{
    leave_map(server);
    eb_alarms_clear(server->shared->alarms, &server->alarm);
    server->peer = NULL;
    eb_part_server_mark(server);
}

/* ---- calls ---- */

static void end_call(struct eb_watch_call *call)
{
    if (call->is_open) {
        call->is_unwanted = true;
        eb_dispatcher_abandon(&call->dispatched, EB_STATUS_CANCELLED, "not needed any more");
    }
}

void eb_part_server_end_calls(struct eb_part_server *server)
{
    for (size_t i = 0; i < EB_PART_SERVER_CALLS; i++) {
        end_call(&server->calls[i]);
    }
}

/* Returns NULL if no call is open. */
static struct eb_watch_call *find_newest_call(struct eb_part_server *server)
{
    struct eb_watch_call *newest = NULL;
    for (size_t i = 0; i < EB_PART_SERVER_CALLS; i++) {
        struct eb_watch_call *call = &server->calls[i];
        if (call->is_open && (!newest || call->number > newest->number)) {
            newest = call;
        }
    }
    return newest;
}

/* Ends the calls to another process, and those that a newer one has replaced. */
static void end_outdated_calls(struct eb_part_server *server)
{
    for (size_t i = 0; i < EB_PART_SERVER_CALLS && server->is_told; i++) {
        if (server->calls[i].instance != server->instance) {
            end_call(&server->calls[i]);
        }
    }
    const struct eb_watch_call *newest = find_newest_call(server);
    for (size_t i = 0; i < EB_PART_SERVER_CALLS && newest && newest->has_message; i++) {
        if (&server->calls[i] != newest) {
            end_call(&server->calls[i]);
        }
    }
}

/* Returns the call to begin next. If none is free, that is the newest one, which is ended: it is
 * of no use, or it would not be replaced. */
static struct eb_watch_call *free_call(struct eb_part_server *server)
{
    for (size_t i = 0; i < EB_PART_SERVER_CALLS; i++) {
        if (!server->calls[i].is_open) {
            return &server->calls[i];
        }
    }
    struct eb_watch_call *newest = find_newest_call(server);
    end_call(newest);
    return newest;
}

/* Begins a call with the present claims. Returns false if out of memory. */
static bool begin_call(struct eb_part_server *server, uint64_t now_ns)
{
    struct eb_part_servers *shared = server->shared;
    struct eb_outgoing *request =
        eb_request_message_create(&eb_memory_heap, 0, shared->request.size);
    if (!request) {
        return false;
    }
    memcpy(request->bytes + EB_GRPC_PREFIX_BYTES, shared->request.bytes, shared->request.size);
    struct eb_watch_call *call = free_call(server);
    *call = (struct eb_watch_call){.server = server,
        .number = ++shared->call_count,
        .instance = server->instance,
        .claims = shared->claims,
        .begun_ns = now_ns,
        .heard_ns = now_ns,
        .is_open = true};
    call->dispatched = (struct eb_dispatch_call){.group = &server->group,
        .path = "/embag.v1.EmbeddingBag/WatchModels",
        .request = request,
        .deadline_ns = UINT64_MAX,
        .changes_server = true,
        .filter = {.only = server->peer},
        .error = &call->error};
    eb_dispatcher_take(shared->dispatcher, &call->dispatched);
    return true;
}

static bool is_silent(const struct eb_watch_call *call, uint64_t now_ns)
{
    return now_ns >= call->heard_ns + EB_PART_SERVER_SILENCE_NS;
}

/* Returns whether a new call must replace the newest one: it is silent, its connection is ending,
 * or its claims are former ones. Claims are replaced only when the server has answered the former
 * ones, so that each change costs it one call. */
static bool must_replace(const struct eb_watch_call *newest, uint64_t now_ns)
{
    const struct eb_connection *connection = newest->dispatched.attempt.connection;
    return is_silent(newest, now_ns) || (connection && !eb_connection_is_usable(connection)) ||
           (newest->has_message && newest->claims != newest->server->shared->claims);
}

/* Notes that a server does not answer a call. */
static void note_unanswered(struct eb_part_server *server, const char *reason)
{
    server->has_answered = true;
    warn_of(server, "part_server_unusable", reason, hint_answers);
}

/* Asks a server what it is, unless it has been asked and may still answer. */
static void ask_server(struct eb_part_server *server, uint64_t now_ns)
{
    if (now_ns >= server->ask_ns) {
        if (server->ask_ns != 0) {
            note_unanswered(server, "it does not answer GetServer");
        }
        server->ask_ns = find_ask_ns(server, now_ns);
        eb_peer_ask_instance(server->peer);
    }
}

/* Begins a call if one is needed, or what must come before. Returns when to try again; UINT64_MAX
 * if that need not be. */
static uint64_t provide_call(struct eb_part_server *server, uint64_t now_ns)
{
    const struct eb_watch_call *newest = find_newest_call(server);
    if ((newest && !must_replace(newest, now_ns)) || !eb_peer_is_usable(server->peer)) {
        return UINT64_MAX;
    }
    if (newest && !newest->has_message && is_silent(newest, now_ns)) {
        note_unanswered(server, "it does not answer WatchModels");
    }
    if (now_ns < server->retry_ns) {
        return server->retry_ns;
    }
    if (!server->is_told) {
        ask_server(server, now_ns);
        return server->ask_ns;
    }
    if (!begin_call(server, now_ns)) {
        pause_server(server, false, now_ns);
        return server->retry_ns;
    }
    return UINT64_MAX;
}

/* ---- reviews ---- */

static bool is_about_rights(enum eb_status status)
{
    return status == EB_STATUS_PERMISSION_DENIED || status == EB_STATUS_UNAUTHENTICATED;
}

/* Logs what is wrong. What the loss of a connection explains is logged elsewhere. */
static void report_trouble(struct eb_part_server *server, enum eb_trouble trouble)
{
    const struct eb_error *why = &server->why;
    if (trouble == EB_TROUBLE_UNFIT) {
        if (!server->is_unfit) {
            server->reported_ns = 0;
            warn_of(server, "part_server_unusable", why->text, server->hint);
        }
        server->is_unfit = true;
    } else if (trouble == EB_TROUBLE_REFUSED) {
        bool is_short = why->status == EB_STATUS_RESOURCE_EXHAUSTED;
        warn_of(server, "part_server_unusable", why->text, is_short ? NULL : hint_messages);
    } else if (is_about_rights(why->status)) {
        warn_of(server, "part_server_unusable", why->text, hint_auth);
    } else if (why->status != EB_STATUS_UNAVAILABLE) {
        warn_of(server, "part_server_unusable", why->text, hint_answers);
    }
}

/* Does what follows from the trouble since the last review. A server that has only ended its call,
 * as it does when a connection is old, stays in the map for a while. */
static void settle_trouble(struct eb_part_server *server, uint64_t now_ns)
{
    enum eb_trouble trouble = server->trouble;
    const struct eb_error *why = &server->why;
    if (trouble < EB_TROUBLE_REFUSED && why->status == EB_STATUS_UNIMPLEMENTED) {
        trouble = EB_TROUBLE_UNFIT;
        server->hint = hint_upgrade;
    }
    if (trouble >= EB_TROUBLE_REFUSED) {
        eb_part_server_end_calls(server);
    }
    bool goes_on = find_newest_call(server);
    bool may_stay = goes_on || why->status == EB_STATUS_UNAVAILABLE;
    if (server->is_lost || trouble >= EB_TROUBLE_REFUSED || !may_stay) {
        lose_server(server, why->text);
    }
    server->failures = trouble == EB_TROUBLE_UNFIT ? DOUBLINGS_MAX : server->failures;
    pause_server(server, why->status == EB_STATUS_UNAVAILABLE, now_ns);
    server->is_told = server->is_told && goes_on;
    server->ask_ns = server->is_told ? server->ask_ns : 0;
    server->has_answered = true;
    report_trouble(server, trouble);
    server->trouble = EB_TROUBLE_NONE;
    server->is_lost = false;
}

/* Handles a server that is not connected, or whose process is watched at another address. */
static void review_absent(struct eb_part_server *server)
{
    const struct eb_peer *peer = server->peer;
    const struct eb_error *why = &peer->connect_error;
    bool has_failed = why->status != EB_STATUS_OK;
    lose_server(server, peer->is_twin ? "its process is connected at another address"
                        : has_failed  ? why->text
                                      : "its connection has ended");
    eb_part_server_end_calls(server);
    eb_alarms_clear(server->shared->alarms, &server->alarm);
    server->has_answered = server->has_answered || peer->is_twin || has_failed;
    if (has_failed && !peer->is_twin) {
        warn_of(server, "part_server_unreachable", why->text, hint_reach);
    }
}

static void set_review(struct eb_part_server *server, uint64_t next_ns, uint64_t now_ns)
{
    struct eb_alarms *alarms = server->shared->alarms;
    const struct eb_watch_call *newest = find_newest_call(server);
    if (newest && newest->heard_ns + EB_PART_SERVER_SILENCE_NS < next_ns &&
        newest->heard_ns + EB_PART_SERVER_SILENCE_NS > now_ns) {
        next_ns = newest->heard_ns + EB_PART_SERVER_SILENCE_NS;
    }
    if (server->mapped != 0 && server->heard_ns + EB_PART_SERVER_SILENCE_NS < next_ns) {
        next_ns = server->heard_ns + EB_PART_SERVER_SILENCE_NS;
    }
    if (next_ns < UINT64_MAX) {
        eb_alarms_set(alarms, &server->alarm, next_ns);
    } else {
        eb_alarms_clear(alarms, &server->alarm);
    }
}

static void review_present(struct eb_part_server *server, uint64_t now_ns)
{
    if (server->is_told && server->mapped != 0 && server->mapped != server->instance) {
        lose_server(server, "another process is at its address");
    }
    end_outdated_calls(server);
    if (server->mapped != 0 && now_ns >= server->heard_ns + EB_PART_SERVER_SILENCE_NS) {
        lose_server(server, "it has sent nothing for 3 s");
    }
    uint64_t next_ns = provide_call(server, now_ns);
    set_review(server, next_ns, now_ns);
}

bool eb_part_server_review(struct eb_part_server *server)
{
    uint64_t now_ns = uv_hrtime();
    if (!server->peer) {
        eb_part_server_end_calls(server);
        return false;
    }
    if (server->trouble != EB_TROUBLE_NONE) {
        settle_trouble(server, now_ns);
    }
    if (is_present(server->peer)) {
        review_present(server, now_ns);
    } else {
        review_absent(server);
    }
    return true;
}

/* ---- life ---- */

static void on_server_alarm(struct eb_alarm *alarm)
{
    eb_part_server_mark(EB_CONTAINER_OF(alarm, struct eb_part_server, alarm));
}

struct eb_part_server *eb_part_server_create(
    struct eb_part_servers *shared, struct eb_peer *peer, uint32_t number)
{
    struct eb_part_server *server = calloc(1, sizeof *server);
    if (!server) {
        return NULL;
    }
    server->shared = shared;
    server->peer = peer;
    server->number = number;
    server->alarm.ring = on_server_alarm;
    eb_list_init(&server->link);
    eb_dispatch_group_init(&server->group, 1, 0, EB_HEDGE_DELAY_MIN_NS);
    eb_address_format(&peer->address, server->address);
    eb_part_server_mark(server);
    return server;
}

void eb_part_server_destroy(struct eb_part_server *server)
{
    assert(!server->peer && eb_list_is_empty(&server->link));
    eb_dispatch_group_deinit(&server->group);
    free(server);
}

void eb_part_server_renew(struct eb_part_server *server)
{
    server->failures = 0;
    server->retry_ns = 0;
    eb_part_server_mark(server);
}
