#include "proto/link/peer.h"

#include "proto/codec.h"
#include "proto/link/request_message.h"
#include "proto/link/retry.h"
#include "proto/splitmix64.h"

#include <stdlib.h>

/* Most time until a lost connection is opened again if other servers take the calls meanwhile. If
 * calls can only wait, it is a fraction of that. */
#define SPREAD_NS_MAX UINT64_C(500000000)
#define SPREAD_URGENT_FRACTION 50
/* Time until a question that has failed is asked again: doubles from the first to the second. */
#define ASK_PAUSE_NS UINT64_C(1000000000)
#define ASK_DOUBLINGS_MAX 5
#define ANSWER_ARENA_BYTES ((size_t)256 << 10) /* for decoding a Server, which is small */

static void on_peer_open(void *context, struct eb_connection *connection);
static void on_peer_close(
    void *context, struct eb_connection *connection, const struct eb_error *why);

/* ---- the question for the instance ---- */

static struct eb_peer *find_asker(const struct eb_attempt *attempt)
{
    return EB_CONTAINER_OF(attempt, struct eb_peer, question);
}

static void drop_question(struct eb_peer *peer)
{
    struct eb_attempt *question = &peer->question;
    if (question->connection) {
        eb_connection_withdraw(question->connection, question);
    }
    if (question->request) {
        eb_outgoing_drop(question->request);
        question->request = NULL;
    }
}

/* Notes that the peer has not told what it is. Asking again is of no use if it does not know the
 * method. */
static void note_untold(struct eb_peer *peer, const struct eb_error *why)
{
    peer->must_ask = why->status != EB_STATUS_UNIMPLEMENTED;
    peer->ask_ns = uv_hrtime() + (ASK_PAUSE_NS << peer->ask_failures);
    peer->ask_failures += peer->ask_failures < ASK_DOUBLINGS_MAX;
    peer->config->on_told(peer, NULL, why);
}

/* Ends the question, which is no longer a connection's. */
static void end_question(struct eb_peer *peer, const struct eb_error *error)
{
    struct eb_error why = *error;
    drop_question(peer);
    if (peer->is_answered) {
        return;
    }
    if (why.status == EB_STATUS_OK) {
        eb_error_set(&why, EB_STATUS_INTERNAL, "the server sent no answer to GetServer");
    }
    note_untold(peer, &why);
}

/* Returns whether an answer to the question may still come, and holds for new connections too. */
static bool is_question_open(const struct eb_peer *peer, uint64_t now_ns)
{
    const struct eb_attempt *question = &peer->question;
    return question->request && now_ns < question->deadline_ns && question->connection &&
           eb_connection_is_usable(question->connection);
}

/* Asks what the peer is, above all for the number of its process. Until it has told, it counts as a
 * server of its own, and gets no requests that only certain processes may take. */
static void ask_instance(struct eb_peer *peer, struct eb_connection *connection)
{
    uint64_t now_ns = uv_hrtime();
    struct eb_attempt *question = &peer->question;
    if (is_question_open(peer, now_ns)) {
        return;
    }
    drop_question(peer);
    peer->is_answered = false;
    peer->must_ask = true;
    *question = (struct eb_attempt){.path = "/embag.v1.EmbeddingBag/GetServer",
        .request = eb_request_message_create(peer->config->memory, 0, 0),
        .deadline_ns = now_ns + peer->config->connect_timeout_ns,
        .is_unary = true};
    if (!question->request || !eb_connection_send(connection, question, now_ns)) {
        struct eb_error why;
        eb_error_set(&why, EB_STATUS_UNAVAILABLE, "the call of GetServer could not be begun");
        end_question(peer, &why);
    }
}

static void on_peer_message(struct eb_attempt *attempt, const uint8_t *bytes, size_t size)
{
    if (attempt->owner) {
        attempt->peer->config->handler.on_message(attempt, bytes, size);
        return;
    }
    struct eb_peer *peer = find_asker(attempt);
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ANSWER_ARENA_BYTES);
    const struct eb_wire_server *server = eb_server_decode(&arena, bytes, size, &error);
    peer->is_answered = true;
    if (server) {
        peer->must_ask = false;
        peer->config->on_told(peer, server, NULL);
    } else {
        note_untold(peer, &error);
    }
    eb_arena_deinit(&arena);
}

static void on_peer_end(
    struct eb_attempt *attempt, const struct eb_error *error, uint32_t pushback_ms)
{
    if (attempt->owner) {
        attempt->peer->config->handler.on_end(attempt, error, pushback_ms);
    } else {
        end_question(find_asker(attempt), error);
    }
}

static void on_peer_drop(struct eb_attempt *attempt, const struct eb_error *why)
{
    if (attempt->owner) {
        attempt->peer->config->handler.on_drop(attempt, why);
    } else {
        end_question(find_asker(attempt), why);
    }
}

/* ---- life ---- */

/* Fills in the settings of connections, which borrow the credentials' token. */
static void configure_connections(struct eb_peer *peer)
{
    const struct eb_peer_config *config = peer->config;
    const struct eb_credentials *credentials = config->credentials;
    peer->handler = config->handler;
    peer->handler.on_message = on_peer_message;
    peer->handler.on_end = on_peer_end;
    peer->handler.on_drop = on_peer_drop;
    peer->connection_config = (struct eb_connection_config){
        .handler = &peer->handler,
        .on_open = on_peer_open,
        .on_close = on_peer_close,
        .context = peer,
        .identity = {.authority = peer->target->authority,
            .authorization = credentials->authorization[0] ? credentials->authorization : NULL,
            .is_secure = credentials->tls},
        .limits = {.response_bytes_max = config->answer_bytes_max},
        .memory = config->memory,
        .is_unpaced = config->is_unpaced,
    };
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        struct eb_connection *connection = &peer->connections[i];
        connection->config = &peer->connection_config;
        connection->transport.loop = config->loop;
        connection->transport.alarms = config->alarms;
        connection->transport.endpoint = &peer->target->endpoint;
        connection->transport.address = &peer->address;
        connection->transport.credentials = credentials;
        connection->transport.read_buffer = config->read_buffer;
        connection->transport.unacknowledged_ms_max = config->unacknowledged_ms_max;
    }
}

struct eb_peer *eb_peer_create(const struct eb_peer_config *config, const struct eb_target *target,
    const struct eb_address *address)
{
    uint32_t count = 2 * config->connections;
    struct eb_peer *peer = calloc(1, sizeof *peer + count * sizeof *peer->connections);
    if (!peer) {
        return NULL;
    }
    peer->config = config;
    peer->target = target;
    peer->address = *address;
    peer->is_listed = true;
    eb_replica_init(&peer->replica);
    peer->random = uv_hrtime() ^ (uintptr_t)peer;
    peer->connection_count = count;
    configure_connections(peer);
    return peer;
}

void eb_peer_destroy(struct eb_peer *peer)
{
    free(peer);
}

/* ---- state ---- */

bool eb_peer_is_usable(const struct eb_peer *peer)
{
    bool is_usable = false;
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        is_usable = is_usable || eb_connection_is_usable(&peer->connections[i]);
    }
    return is_usable;
}

/* Counts the connections that take requests or may do so soon. */
static uint32_t count_live(const struct eb_peer *peer)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        const struct eb_connection *connection = &peer->connections[i];
        live += connection->transport.state == EB_TRANSPORT_OPENING ||
                eb_connection_is_usable(connection);
    }
    return live;
}

uint32_t eb_peer_count_attempts(const struct eb_peer *peer)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        count += peer->connections[i].session ? peer->connections[i].attempts.count : 0;
    }
    return count;
}

bool eb_peer_is_live(const struct eb_peer *peer)
{
    return count_live(peer) > 0;
}

bool eb_peer_may_tell(const struct eb_peer *peer)
{
    if (peer->instance != 0) {
        return false;
    }
    if (eb_peer_is_usable(peer)) {
        return peer->question.request;
    }
    bool is_new = peer->is_listed && !peer->was_up && peer->connect_failures == 0;
    return is_new || eb_peer_is_live(peer);
}

static struct eb_connection *find_closed(struct eb_peer *peer)
{
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        if (!peer->connections[i].session) {
            return &peer->connections[i];
        }
    }
    return NULL;
}

bool eb_peer_is_closed(const struct eb_peer *peer)
{
    bool is_closed = true;
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        is_closed = is_closed && !peer->connections[i].session;
    }
    return is_closed;
}

/* ---- opening connections ---- */

static uint32_t draw_peer_jitter(struct eb_peer *peer)
{
    return (uint32_t)(eb_splitmix64_next(&peer->random) >> 32);
}

/* Delays the next attempts to connect, because a connection was of no use. */
static void back_off(struct eb_peer *peer)
{
    uint64_t now_ns = uv_hrtime();
    peer->connects_early = false;
    if (peer->connect_not_before_ns <= now_ns) {
        peer->connect_failures++;
        peer->connect_not_before_ns =
            now_ns + eb_retry_pause_ns(peer->connect_failures, draw_peer_jitter(peer));
    }
}

static void on_peer_open(void *context, struct eb_connection *connection)
{
    struct eb_peer *peer = context;
    peer->is_unary = false;
    peer->ask_failures = 0;
    peer->config->on_open(peer);
    if (peer->asks_instance) {
        ask_instance(peer, connection);
    }
}

/* Handles a connection that was of no use: it is not replaced for a while. */
static void refuse_connection(struct eb_peer *peer, const struct eb_error *why)
{
    back_off(peer);
    if (!eb_peer_is_live(peer)) {
        peer->connect_error = *why;
    }
}

/* Delays the next attempt to connect by a random time, because many clients have probably lost
 * their connections at the same moment. */
static void spread_reconnect(struct eb_peer *peer)
{
    if (!eb_peer_is_live(peer)) {
        peer->lost_ns = uv_hrtime();
        peer->spread_ns = SPREAD_NS_MAX * (draw_peer_jitter(peer) >> 16) / 65536;
    }
}

static void on_peer_close(
    void *context, struct eb_connection *connection, const struct eb_error *why)
{
    struct eb_peer *peer = context;
    if (connection->has_answered) {
        peer->connect_failures = 0;
        peer->connects_early = true;
        spread_reconnect(peer);
    } else {
        refuse_connection(peer, why);
    }
    peer->config->on_close(peer, connection->has_spoken, why);
}

static void open_peer_connection(
    struct eb_peer *peer, struct eb_connection *connection, uint64_t now_ns)
{
    peer->connect_error.status = EB_STATUS_OK;
    if (!eb_connection_open(connection, now_ns + peer->config->connect_timeout_ns)) {
        struct eb_error why;
        eb_error_set(&why, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for a connection");
        refuse_connection(peer, &why);
        peer->config->on_close(peer, false, &why);
    }
}

/* Returns the earliest time of the next attempt to connect. */
static uint64_t find_connect_ns(const struct eb_peer *peer, bool is_urgent)
{
    uint64_t spread_ns = is_urgent ? peer->spread_ns / SPREAD_URGENT_FRACTION : peer->spread_ns;
    uint64_t at_ns = peer->lost_ns + spread_ns;
    return at_ns > peer->connect_not_before_ns ? at_ns : peer->connect_not_before_ns;
}

uint64_t eb_peer_connect(struct eb_peer *peer, enum eb_peer_need need, uint64_t now_ns)
{
    uint64_t not_before_ns = find_connect_ns(peer, need == EB_PEER_URGENT);
    bool is_asked =
        peer->is_listed && !peer->is_twin && (need != EB_PEER_NOT_NEEDED || peer->connects_early);
    uint32_t live = count_live(peer);
    if (live >= peer->config->connections) {
        peer->connects_early = false;
        return UINT64_MAX;
    }
    for (uint32_t i = live; is_asked && i < peer->config->connections; i++) {
        struct eb_connection *connection = find_closed(peer);
        if (!connection) {
            break;
        }
        if (now_ns < not_before_ns) {
            return not_before_ns;
        }
        open_peer_connection(peer, connection, now_ns);
    }
    return UINT64_MAX;
}

/* ---- all connections ---- */

void eb_peer_ask_instance(struct eb_peer *peer)
{
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        if (eb_connection_is_usable(&peer->connections[i])) {
            ask_instance(peer, &peer->connections[i]);
        }
    }
}

/* Returns when the peer is to be asked again, which has not told what it is. */
static uint64_t find_ask_again_ns(const struct eb_peer *peer)
{
    if (!peer->must_ask || !eb_peer_is_usable(peer)) {
        return UINT64_MAX;
    }
    return peer->question.request ? peer->question.deadline_ns : peer->ask_ns;
}

uint64_t eb_peer_ask_again(struct eb_peer *peer, uint64_t now_ns)
{
    if (now_ns >= find_ask_again_ns(peer)) {
        eb_peer_ask_instance(peer);
    }
    return find_ask_again_ns(peer);
}

struct eb_connection *eb_peer_find_least_busy(
    struct eb_peer *peer, enum eb_priority priority, bool may_write)
{
    struct eb_connection *found = NULL;
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        struct eb_connection *connection = &peer->connections[i];
        if (found && connection->attempts.count >= found->attempts.count) {
            continue;
        }
        if (may_write && !eb_connection_takes(connection, priority)) {
            eb_connection_flush(connection);
        }
        if (eb_connection_takes(connection, priority)) {
            found = connection;
        }
    }
    return found;
}

void eb_peer_settle(struct eb_peer *peer)
{
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        struct eb_connection *connection = &peer->connections[i];
        eb_connection_settle(connection);
        if (peer->is_twin && connection->session && connection->attempts.count == 0) {
            eb_connection_close(connection);
        }
    }
}

bool eb_peer_flush(struct eb_peer *peer)
{
    bool must_settle = false;
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        eb_connection_flush(&peer->connections[i]);
        must_settle |= eb_connection_must_settle(&peer->connections[i]);
    }
    return must_settle;
}

void eb_peer_check(struct eb_peer *peer, uint64_t now_ns)
{
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        eb_connection_check(&peer->connections[i], now_ns);
    }
}

void eb_peer_renew(struct eb_peer *peer, bool is_token_new)
{
    peer->connect_failures = 0;
    peer->connect_not_before_ns = 0;
    peer->spread_ns = 0;
    peer->ask_failures = 0;
    peer->ask_ns = 0;
    for (uint32_t i = 0; is_token_new && i < peer->connection_count; i++) {
        eb_connection_renew_stream(&peer->connections[i]);
    }
}

void eb_peer_probe(struct eb_peer *peer)
{
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        eb_connection_probe(&peer->connections[i]);
    }
}

void eb_peer_close(struct eb_peer *peer)
{
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        eb_connection_close(&peer->connections[i]);
    }
}
