#include "proto/link/peer_set.h"

#include "proto/message.h"
#include "proto/splitmix64.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Least time between two looks at a silent peer. */
#define SILENCE_STEP_NS UINT64_C(5000000)
#define SILENCE_NS_MAX UINT64_C(1000000000)
/* Most failed resolutions in a row after which the next one is hurried: a name that never has an
 * address must not burden the name service for ever. */
#define HURRIED_FAILURES_MAX 10

/* ---- peers ---- */

static struct eb_replica_group find_group(const struct eb_peer_set *set)
{
    return (struct eb_replica_group){.replicas = set->replicas, .count = set->count};
}

struct eb_peer *eb_peer_set_find(const struct eb_connection *connection)
{
    return connection->config->context;
}

static struct eb_peer *find_peer(const struct eb_peer_set *set, const struct eb_address *address)
{
    for (uint32_t i = 0; i < set->count; i++) {
        const struct eb_address *other = &set->peers[i]->address;
        if (other->size == address->size &&
            memcmp(&other->socket_address, &address->socket_address, address->size) == 0) {
            return set->peers[i];
        }
    }
    return NULL;
}

/* Adds a peer, unless it is there or there are enough. Returns false if out of memory. */
static bool add_peer(
    struct eb_peer_set *set, const struct eb_target *target, const struct eb_address *address)
{
    struct eb_peer *peer = find_peer(set, address);
    if (peer) {
        peer->is_listed = true;
        return true;
    }
    if (set->count == set->peers_max) {
        set->left_out++;
        return true;
    }
    peer = eb_peer_create(&set->config, target, address);
    if (peer) {
        peer->context = set;
        set->replicas[set->count] = &peer->replica;
        set->peers[set->count++] = peer;
    }
    return peer;
}

static void destroy_peer(struct eb_peer_set *set, struct eb_peer *peer)
{
    if (set->on_gone) {
        set->on_gone(set->context, peer);
    }
    eb_peer_destroy(peer);
}

/* Removes peers that are no longer listed and have no connection. */
static void remove_gone(struct eb_peer_set *set)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        struct eb_peer *peer = set->peers[i];
        if (peer->is_listed || !eb_peer_is_closed(peer)) {
            set->replicas[kept] = &peer->replica;
            set->peers[kept++] = peer;
        } else {
            destroy_peer(set, peer);
        }
    }
    set->count = kept;
    set->is_by_instance_old = true;
}

/* Has the choice know whether requests may be sent to a peer. */
static void follow_state(struct eb_peer_set *set, struct eb_peer *peer)
{
    bool is_up = eb_peer_is_usable(peer) && !peer->is_twin;
    struct eb_replica_group group = find_group(set);
    if (is_up && !peer->replica.is_up) {
        peer->was_up = true;
        eb_replica_join(&group, &peer->replica, uv_hrtime());
    } else if (!is_up && peer->replica.is_up) {
        eb_replica_leave(&peer->replica);
    }
}

static void on_set_open(struct eb_peer *peer)
{
    struct eb_peer_set *set = peer->context;
    follow_state(set, peer);
    set->on_open(set->context, peer);
}

static bool is_all_closed(const struct eb_peer_set *set)
{
    bool is_closed = true;
    for (uint32_t i = 0; i < set->count; i++) {
        is_closed = is_closed && eb_peer_is_closed(set->peers[i]);
    }
    return is_closed;
}

/* Uses the twins of a peer again that no longer leads to its process. */
static void free_twins(struct eb_peer_set *set, struct eb_peer *peer)
{
    for (uint32_t i = 0; i < set->count; i++) {
        struct eb_peer *other = set->peers[i];
        if (other != peer && other->instance == peer->instance) {
            other->is_twin = false;
            follow_state(set, other);
        }
    }
    peer->instance = 0;
    set->is_by_instance_old = true;
}

/* Leaves out all but one of the peers that lead to the same process: it would get the load of
 * several. */
static void take_instance(struct eb_peer *peer, uint64_t instance)
{
    struct eb_peer_set *set = peer->context;
    if (peer->instance != instance && peer->instance != 0 && !peer->is_twin) {
        free_twins(set, peer);
    }
    peer->instance = instance;
    peer->last_instance = instance;
    peer->is_twin = false;
    for (uint32_t i = 0; i < set->count && instance != 0; i++) {
        const struct eb_peer *other = set->peers[i];
        peer->is_twin =
            peer->is_twin || (other != peer && !other->is_twin && other->instance == instance &&
                                 eb_peer_is_usable(other));
    }
    set->is_by_instance_old = true;
    follow_state(set, peer);
}

static void on_set_told(
    struct eb_peer *peer, const struct eb_wire_server *server, const struct eb_error *why)
{
    struct eb_peer_set *set = peer->context;
    if (server) {
        peer->is_router = strcmp(server->role, "router") == 0;
        take_instance(peer, server->instance);
    }
    if (set->on_told) {
        set->on_told(set->context, peer, server, why);
    }
}

static void on_set_close(struct eb_peer *peer, bool has_spoken, const struct eb_error *why)
{
    struct eb_peer_set *set = peer->context;
    follow_state(set, peer);
    if (!peer->is_twin && peer->instance != 0 && !eb_peer_is_usable(peer)) {
        free_twins(set, peer);
    }
    if (!set->is_closing) {
        /* An address that never answers is no reason to resolve the names all the time. */
        if (has_spoken || !eb_peer_set_is_live(set)) {
            eb_resolver_hurry(&set->resolver);
        }
        set->on_close(set->context, has_spoken, why);
    } else if (is_all_closed(set)) {
        set->on_closed(set->context);
    }
}

/* ---- names ---- */

static uint32_t draw_number(struct eb_peer_set *set)
{
    return (uint32_t)(eb_splitmix64_next(&set->random) >> 32);
}

/* Takes the addresses of a target over, in an order of this client's own: if there are too many,
 * each client has others. Returns false if out of memory. */
static bool take_addresses(struct eb_peer_set *set, const struct eb_target *target,
    const struct eb_resolver_result *result)
{
    uint32_t first = draw_number(set) % result->count;
    bool has_memory = true;
    for (uint32_t i = 0; i < result->count; i++) {
        uint32_t at = (first + i) % result->count;
        has_memory = add_peer(set, target, &result->addresses[at]) && has_memory;
    }
    return has_memory;
}

/* Notes which peers' targets have an answer that does not name them, and removes those that are
 * gone, so that there is room for new ones. */
static void drop_unlisted(struct eb_peer_set *set, const struct eb_resolver_result *results)
{
    for (uint32_t i = 0; i < set->count; i++) {
        struct eb_peer *peer = set->peers[i];
        bool was_found = results[peer->target - set->targets->items].count > 0;
        peer->is_listed = peer->is_listed && !was_found;
    }
    for (uint32_t i = 0; i < set->targets->count; i++) {
        for (uint32_t k = 0; k < results[i].count; k++) {
            struct eb_peer *peer = find_peer(set, &results[i].addresses[k]);
            if (peer) {
                peer->is_listed = true;
            }
        }
    }
    remove_gone(set);
}

/* Has names resolved again soon if some could not be, and the owner needs all servers. */
static void hurry_failed(struct eb_peer_set *set)
{
    if (set->resolve_error.status == EB_STATUS_OK) {
        set->resolve_failures = 0;
    } else if (set->asks_instances && set->resolve_failures < HURRIED_FAILURES_MAX) {
        set->resolve_failures++;
        eb_resolver_hurry(&set->resolver);
    }
}

/* A resolution that fails changes nothing: the addresses that are known may well be right. */
static void on_set_results(void *context, const struct eb_resolver_result *results)
{
    struct eb_peer_set *set = context;
    const struct eb_error *why = NULL;
    bool has_memory = true;
    set->left_out = 0;
    drop_unlisted(set, results);
    for (uint32_t i = 0; i < set->targets->count; i++) {
        set->left_out += results[i].left_out;
        if (results[i].count > 0) {
            has_memory = take_addresses(set, &set->targets->items[i], &results[i]) && has_memory;
        } else if (results[i].error.status != EB_STATUS_OK) {
            why = &results[i].error;
        }
    }
    set->resolve_error.status = EB_STATUS_OK;
    if (!has_memory) {
        eb_error_set(
            &set->resolve_error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for servers");
    } else if (why) {
        set->resolve_error = *why;
    }
    hurry_failed(set);
    bool has_failed = set->count == 0 && set->resolve_error.status != EB_STATUS_OK;
    set->on_resolved(set->context, has_failed ? &set->resolve_error : NULL);
}

/* ---- start and end ---- */

/* Adds the peers whose addresses are given as numbers or paths. Sets *has_names if there are
 * others. */
static bool add_numeric(struct eb_peer_set *set, bool *has_names)
{
    bool has_memory = true;
    for (uint32_t i = 0; i < set->targets->count; i++) {
        struct eb_address address;
        if (eb_target_read_address(&set->targets->items[i], &address)) {
            has_memory = add_peer(set, &set->targets->items[i], &address) && has_memory;
        } else {
            *has_names = true;
        }
    }
    return has_memory;
}

static bool take_set_memory(struct eb_peer_set *set)
{
    set->peers_max = EB_PEER_SET_CONNECTIONS_MAX / set->config.connections;
    set->peers = calloc(set->peers_max, sizeof(struct eb_peer *));
    set->replicas = calloc(set->peers_max, sizeof(struct eb_replica *));
    set->by_instance = calloc(set->peers_max, sizeof(struct eb_peer *));
    return set->peers && set->replicas && set->by_instance;
}

int eb_peer_set_open(struct eb_peer_set *set)
{
    bool has_names = false;
    int rc = 0;
    set->random = uv_hrtime() ^ (uintptr_t)set;
    set->config.on_open = on_set_open;
    set->config.on_close = on_set_close;
    set->config.on_told = on_set_told;
    if (!take_set_memory(set) || !add_numeric(set, &has_names)) {
        rc = UV_ENOMEM;
    } else if (has_names) {
        set->resolver = (struct eb_resolver){.targets = set->targets,
            .interval_ns = set->resolve_interval_ns,
            .on_results = on_set_results,
            .context = set};
        rc = eb_resolver_open(&set->resolver, set->config.loop);
    }
    if (rc != 0) {
        eb_peer_set_deinit(set);
    }
    return rc;
}

void eb_peer_set_close(struct eb_peer_set *set)
{
    set->is_closing = true;
    eb_resolver_close(&set->resolver);
    if (is_all_closed(set)) {
        set->on_closed(set->context);
        return;
    }
    for (uint32_t i = 0; i < set->count; i++) {
        eb_peer_close(set->peers[i]);
    }
}

void eb_peer_set_deinit(struct eb_peer_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        destroy_peer(set, set->peers[i]);
    }
    free(set->peers);
    free(set->replicas);
    free(set->by_instance);
    set->peers = NULL;
    set->replicas = NULL;
    set->by_instance = NULL;
    set->count = 0;
    set->by_instance_count = 0;
}

/* ---- choice ---- */

static bool passes(const struct eb_peer_filter *filter, const struct eb_peer *peer)
{
    bool is_any = !filter->instances;
    for (size_t i = 0; i < filter->instance_count; i++) {
        is_any = is_any || filter->instances[i] == peer->instance;
    }
    return is_any && (!filter->only || filter->only == peer);
}

static int compare_instances(const void *a, const void *b)
{
    uint64_t x = (*(struct eb_peer *const *)a)->instance;
    uint64_t y = (*(struct eb_peer *const *)b)->instance;
    return (x > y) - (x < y);
}

static void sort_by_instance(struct eb_peer_set *set)
{
    set->by_instance_count = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->peers[i]->instance != 0 && !set->peers[i]->is_twin) {
            set->by_instance[set->by_instance_count++] = set->peers[i];
        }
    }
    qsort(set->by_instance, set->by_instance_count, sizeof(struct eb_peer *), compare_instances);
    set->is_by_instance_old = false;
}

/* Returns the index of the first peer whose instance is not lower. */
static uint32_t find_instance(const struct eb_peer_set *set, uint64_t instance)
{
    uint32_t low = 0;
    uint32_t high = set->by_instance_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (set->by_instance[middle]->instance < instance) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Finds the replicas that pass, of at most EB_REPLICAS_MAX peers. While a connection drains, an
 * instance may be that of several peers. */
static struct eb_replica_group find_passing(struct eb_peer_set *set,
    const struct eb_peer_filter *filter, struct eb_replica *replicas[EB_REPLICAS_MAX])
{
    struct eb_replica_group group = {.replicas = replicas};
    if (!filter->instances) {
        return find_group(set);
    }
    if (set->is_by_instance_old) {
        sort_by_instance(set);
    }
    for (size_t i = 0; i < filter->instance_count; i++) {
        uint64_t instance = filter->instances[i];
        uint32_t at = find_instance(set, instance);
        for (; at < set->by_instance_count && set->by_instance[at]->instance == instance &&
               group.count < EB_REPLICAS_MAX;
             at++) {
            replicas[group.count++] = &set->by_instance[at]->replica;
        }
    }
    return group;
}

static bool peer_takes(const void *context, const struct eb_replica *replica)
{
    const struct eb_peer_terms *terms = context;
    struct eb_peer *peer = EB_CONTAINER_OF(replica, struct eb_peer, replica);
    return eb_peer_find_least_busy(peer, terms->priority, terms->may_write);
}

/* Returns a connection to the first peer that passes the filter and is connected, if it takes the
 * attempt. */
static struct eb_connection *choose_first(
    struct eb_peer_set *set, const struct eb_peer_terms *terms)
{
    for (uint32_t i = 0; i < set->count; i++) {
        if (eb_peer_is_usable(set->peers[i]) && !set->peers[i]->is_twin &&
            passes(&terms->filter, set->peers[i])) {
            return eb_peer_find_least_busy(set->peers[i], terms->priority, terms->may_write);
        }
    }
    return NULL;
}

struct eb_connection *eb_peer_set_choose(struct eb_peer_set *set, const struct eb_peer_terms *terms)
{
    if (terms->is_first) {
        return choose_first(set, terms);
    }
    if (set->count == 1) {
        struct eb_peer *only = set->peers[0];
        bool was_tried = terms->tried[0] == only || terms->tried[1] == only;
        return (terms->is_other && was_tried) || !passes(&terms->filter, only)
                   ? NULL
                   : eb_peer_find_least_busy(only, terms->priority, terms->may_write);
    }
    const struct eb_replica *tried[2];
    struct eb_choice_terms choice = {.random = draw_number(set),
        .now_ns = terms->now_ns,
        .tried = tried,
        .takes = peer_takes,
        .context = terms};
    for (size_t i = 0; i < 2; i++) {
        if (terms->tried[i]) {
            tried[choice.tried_count++] = &terms->tried[i]->replica;
        }
    }
    struct eb_replica *passing[EB_REPLICAS_MAX];
    struct eb_replica_group group = find_passing(set, &terms->filter, passing);
    struct eb_replica *replica = eb_replica_choose(&group, &choice);
    if (!replica && choice.tried_count > 0 && !terms->is_other) {
        choice.tried_count = 0;
        replica = eb_replica_choose(&group, &choice);
    }
    if (!replica) {
        return NULL;
    }
    struct eb_peer *peer = EB_CONTAINER_OF(replica, struct eb_peer, replica);
    return eb_peer_find_least_busy(peer, terms->priority, terms->may_write);
}

bool eb_peer_set_has_untried(const struct eb_peer_set *set, const struct eb_peer_terms *terms)
{
    for (uint32_t i = 0; i < set->count; i++) {
        const struct eb_peer *peer = set->peers[i];
        bool was_tried = terms->tried[0] == peer || terms->tried[1] == peer;
        if (!was_tried && eb_peer_is_usable(peer) && !peer->is_twin &&
            !peer->replica.suspicion.is_suspect && passes(&terms->filter, peer)) {
            return true;
        }
    }
    return false;
}

bool eb_peer_set_send(struct eb_peer_set *set, struct eb_connection *connection,
    struct eb_attempt *attempt, uint64_t now_ns)
{
    if (!eb_connection_send(connection, attempt, now_ns)) {
        return false;
    }
    attempt->peer = eb_peer_set_find(connection);
    attempt->peer->sent += !attempt->path;
    /* With a single server there is nothing to choose, and a method with a path may take long. */
    attempt->is_counted = set->count > 1 && !attempt->path;
    if (attempt->is_counted) {
        uint64_t timeout_ns = attempt->deadline_ns > now_ns ? attempt->deadline_ns - now_ns : 0;
        eb_replica_send(&attempt->peer->replica, &attempt->counted, timeout_ns, now_ns);
    }
    return true;
}

void eb_peer_set_end(
    struct eb_peer_set *set, struct eb_attempt *attempt, enum eb_attempt_end end, uint64_t now_ns)
{
    struct eb_peer *peer = attempt->peer;
    if (!peer) {
        return;
    }
    peer->failed += end == EB_ATTEMPT_FAILED;
    if (attempt->is_counted) {
        struct eb_replica_group group = find_group(set);
        bool was_out = peer->replica.ejection.is_out;
        eb_replica_end(&group, &peer->replica, &attempt->counted, end, now_ns);
        peer->ejected += !was_out && peer->replica.ejection.is_out;
    }
    attempt->peer = NULL;
}

void eb_peer_set_note_heard(struct eb_peer_set *set, struct eb_connection *connection)
{
    if (set->count > 1) {
        eb_replica_note_heard(&eb_peer_set_find(connection)->replica, connection->last_read_ns);
    }
}

/* ---- rounds ---- */

/* Returns the silence after which a peer is probed. A peer whose last lookups took long may well be
 * at work on large ones. */
static uint64_t find_probe_silence_ns(const struct eb_peer *peer)
{
    uint64_t silence_ns = eb_suspicion_silence_ns(peer->replica.latency.value_ns);
    return silence_ns < SILENCE_NS_MAX ? silence_ns : SILENCE_NS_MAX;
}

/* Probes a peer that is silent. Returns when to look again. */
static uint64_t check_silence(struct eb_peer_set *set, struct eb_peer *peer, uint64_t now_ns)
{
    struct eb_replica_group group = find_group(set);
    uint64_t silence_ns = find_probe_silence_ns(peer);
    switch (eb_replica_check_silence(&group, &peer->replica, silence_ns, now_ns)) {
    case EB_SUSPICION_WAIT: break;
    case EB_SUSPICION_PROBE:
        eb_peer_probe(peer);
        if (peer->replica.suspicion.is_suspect) {
            /* There may be room elsewhere now. */
            set->on_suspect(set->context, peer);
        }
        break;
    case EB_SUSPICION_SUSPECT: set->on_suspect(set->context, peer); break;
    }
    uint64_t due_ns = eb_suspicion_due_ns(&peer->replica.suspicion, silence_ns);
    /* A peer that may not be suspected now is due at once; it must not keep the loop busy. */
    return due_ns > now_ns + SILENCE_STEP_NS ? due_ns : now_ns + SILENCE_STEP_NS;
}

void eb_peer_set_settle(struct eb_peer_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        eb_peer_settle(set->peers[i]);
        follow_state(set, set->peers[i]);
    }
}

static enum eb_peer_need find_need(const struct eb_peer_set *set, bool is_wanted)
{
    if (is_wanted && eb_peer_set_count_usable(set) == 0) {
        return EB_PEER_URGENT;
    }
    /* With several servers, each is connected before a call needs it. */
    return is_wanted || set->count > 1 || set->asks_instances ? EB_PEER_NEEDED : EB_PEER_NOT_NEEDED;
}

bool eb_peer_set_run(struct eb_peer_set *set, bool is_wanted, uint64_t now_ns, uint64_t *next_ns)
{
    enum eb_peer_need need = find_need(set, is_wanted);
    bool must_settle = false;
    *next_ns = eb_resolver_run(&set->resolver, now_ns);
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->count > 1 && set->peers[i]->replica.suspicion.silent_since_ns != 0) {
            uint64_t look_ns = check_silence(set, set->peers[i], now_ns);
            *next_ns = look_ns < *next_ns ? look_ns : *next_ns;
        }
    }
    for (uint32_t i = 0; i < set->count; i++) {
        if ((set->count > 1 || set->asks_instances) && !set->peers[i]->asks_instance) {
            set->peers[i]->asks_instance = true;
            eb_peer_ask_instance(set->peers[i]);
        }
        uint64_t ask_ns = eb_peer_ask_again(set->peers[i], now_ns);
        uint64_t connect_ns = eb_peer_connect(set->peers[i], need, now_ns);
        *next_ns = ask_ns < *next_ns ? ask_ns : *next_ns;
        *next_ns = connect_ns < *next_ns ? connect_ns : *next_ns;
        must_settle |= eb_peer_flush(set->peers[i]);
    }
    return must_settle;
}

uint32_t eb_peer_set_count_listed(const struct eb_peer_set *set)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        count += set->peers[i]->is_listed && !set->peers[i]->is_twin;
    }
    return count;
}

bool eb_peer_set_has_several(const struct eb_peer_set *set, const struct eb_peer_filter *filter)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        const struct eb_peer *peer = set->peers[i];
        count += peer->was_up && !peer->is_twin && passes(filter, peer);
    }
    return count > 1;
}

bool eb_peer_set_has_usable(const struct eb_peer_set *set, const struct eb_peer_filter *filter)
{
    for (uint32_t i = 0; i < set->count; i++) {
        const struct eb_peer *peer = set->peers[i];
        if (!peer->is_twin && eb_peer_is_usable(peer) && passes(filter, peer)) {
            return true;
        }
    }
    return false;
}

bool eb_peer_set_has_live(const struct eb_peer_set *set, const struct eb_peer_filter *filter)
{
    if (filter->instances && filter->instance_count == 0) {
        return false;
    }
    for (uint32_t i = 0; i < set->count; i++) {
        const struct eb_peer *peer = set->peers[i];
        bool may_pass = eb_peer_is_live(peer) && passes(filter, peer);
        may_pass = may_pass || (set->asks_instances && eb_peer_may_tell(peer));
        if (!peer->is_twin && may_pass) {
            return true;
        }
    }
    return set->asks_instances && set->resolver.is_open && set->resolver.ended_ns == 0;
}

uint32_t eb_peer_set_count_usable(const struct eb_peer_set *set)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        count += eb_peer_is_usable(set->peers[i]) && !set->peers[i]->is_twin;
    }
    return count;
}

bool eb_peer_set_is_live(const struct eb_peer_set *set)
{
    bool is_live = set->resolver.job && (set->count == 0 || set->resolver.ended_ns == 0);
    for (uint32_t i = 0; i < set->count; i++) {
        is_live = is_live || eb_peer_is_live(set->peers[i]);
    }
    return is_live;
}

const struct eb_error *eb_peer_set_reason(const struct eb_peer_set *set)
{
    const struct eb_error *reason = &set->resolve_error;
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->peers[i]->connect_error.status != EB_STATUS_OK) {
            reason = &set->peers[i]->connect_error;
        }
    }
    return reason;
}

void eb_peer_set_check(struct eb_peer_set *set, uint64_t now_ns)
{
    for (uint32_t i = 0; i < set->count; i++) {
        eb_peer_check(set->peers[i], now_ns);
    }
}

void eb_peer_set_renew(struct eb_peer_set *set, bool is_token_new)
{
    for (uint32_t i = 0; i < set->count; i++) {
        eb_peer_renew(set->peers[i], is_token_new);
    }
}
