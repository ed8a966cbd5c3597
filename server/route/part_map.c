#include "server/route/part_map.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a peer has said. All of it is one block of memory. */
struct eb_part_peer {
    uint64_t instance; /* 0: it is not connected, or has said nothing yet */
    struct eb_part_choice role;
    size_t count;
    struct eb_part_holding *holdings;      /* [count] in the order of the message */
    const struct eb_part_holding **sorted; /* [count] by version, then by model */
    size_t own_count;
    uint64_t *own; /* [own_count] pairs of parts and part that it has of any version, sorted */
};

/* One part of a set. While an instance is looked at, `turn` tells whether `state` and `peer` are
 * its. */
struct eb_part_row {
    uint32_t connected; /* instances that have the part of any version in as many parts */
    uint32_t failed;    /* instances where it is FAILED and nothing better */
    uint32_t turn;
    uint32_t peer; /* the first peer of the instance in the best state */
    enum eb_part_state state;
};

/* ---- messages ---- */

static bool is_loaded(const struct eb_part_holding *holding)
{
    return holding->state == EB_PART_READY || holding->state == EB_PART_SERVING;
}

/* Returns the holding, with the part of the peer's role if it is not loaded and names none. The
 * result borrows from both. */
static struct eb_part_holding complete_holding(
    const struct eb_part_holding *holding, const struct eb_part_choice *role)
{
    struct eb_part_holding result = *holding;
    bool is_role = result.parts == 0 || result.parts == role->parts;
    if (!is_loaded(holding) && result.owned_count == 0 && role->parts != 0 && is_role) {
        result.parts = role->parts;
        result.owned_count = 1;
        result.owned = &role->part;
    }
    return result;
}

static bool is_same_holding(const struct eb_part_holding *a, const struct eb_part_holding *b)
{
    return a->version == b->version && a->digest == b->digest && a->parts == b->parts &&
           a->state == b->state && a->is_served == b->is_served && a->is_claimed == b->is_claimed &&
           a->owned_count == b->owned_count &&
           (a->owned_count == 0 ||
               memcmp(a->owned, b->owned, a->owned_count * sizeof *a->owned) == 0) &&
           strcmp(a->model, b->model) == 0 && strcmp(a->error, b->error) == 0;
}

/* Returns whether a message repeats what the peer has said. */
static bool is_repeated(const struct eb_part_peer *peer, const struct eb_part_message *message)
{
    if (peer->instance != message->instance || peer->role.part != message->role.part ||
        peer->role.parts != message->role.parts || peer->count != message->count) {
        return false;
    }
    for (size_t i = 0; i < message->count; i++) {
        struct eb_part_holding holding = complete_holding(&message->holdings[i], &message->role);
        if (!is_same_holding(&peer->holdings[i], &holding)) {
            return false;
        }
    }
    return true;
}

static bool refuse_message(struct eb_error *error, const char *what, uint64_t number, uint64_t max)
{
    eb_error_set(error, EB_STATUS_INTERNAL,
        "the server says that it holds %s %" PRIu64 "; expected at most %" PRIu64, what, number,
        max);
    return false;
}

static bool check_owned_parts(const struct eb_part_holding *holding, struct eb_error *error)
{
    if (holding->parts > EB_PARTS_MAX) {
        return refuse_message(
            error, "a version whose number of parts is", holding->parts, EB_PARTS_MAX);
    }
    if (holding->owned_count > holding->parts) {
        return refuse_message(error, "parts of one version:", holding->owned_count, holding->parts);
    }
    for (size_t i = 0; i < holding->owned_count; i++) {
        if (holding->owned[i] >= holding->parts) {
            return refuse_message(error, "part", holding->owned[i], holding->parts - 1);
        }
    }
    return true;
}

/* The sizes of a message's content. */
struct message_sizes {
    size_t owned;
    size_t name_bytes;
    size_t error_bytes;
};

static bool check_sizes(const struct message_sizes *sizes, struct eb_error *error)
{
    if (sizes->owned > EB_PART_MAP_OWNED_MAX) {
        return refuse_message(error, "parts of versions:", sizes->owned, EB_PART_MAP_OWNED_MAX);
    }
    if (sizes->name_bytes > EB_PART_MAP_NAME_BYTES_MAX) {
        return refuse_message(
            error, "bytes of names of models:", sizes->name_bytes, EB_PART_MAP_NAME_BYTES_MAX);
    }
    return sizes->error_bytes <= EB_PART_MAP_ERROR_BYTES_MAX ||
           refuse_message(error, "error texts whose bytes are", sizes->error_bytes,
               EB_PART_MAP_ERROR_BYTES_MAX);
}

/* Checks a message, and sets *sizes. */
static bool check_message(
    const struct eb_part_message *message, struct message_sizes *sizes, struct eb_error *error)
{
    const struct eb_part_choice *role = &message->role;
    *sizes = (struct message_sizes){0};
    if (message->instance == 0) {
        eb_error_set(
            error, EB_STATUS_INTERNAL, "the server's instance is 0; expected a number above 0");
        return false;
    }
    if (role->parts > EB_PARTS_MAX || (role->parts != 0 && role->part >= role->parts)) {
        eb_error_set(error, EB_STATUS_INTERNAL,
            "the server says that it has part %" PRIu32 " of %" PRIu32, role->part, role->parts);
        return false;
    }
    if (message->count > EB_PART_MAP_HOLDINGS_MAX) {
        return refuse_message(error, "versions:", message->count, EB_PART_MAP_HOLDINGS_MAX);
    }
    for (size_t i = 0; i < message->count; i++) {
        struct eb_part_holding holding = complete_holding(&message->holdings[i], role);
        if ((unsigned)holding.state >= EB_PART_STATES) {
            return refuse_message(
                error, "a version in state", (unsigned)holding.state, EB_PART_STATES - 1);
        }
        if (!check_owned_parts(&holding, error)) {
            return false;
        }
        sizes->owned += holding.owned_count;
        sizes->name_bytes += strlen(holding.model);
        sizes->error_bytes += strlen(holding.error);
        if (!check_sizes(sizes, error)) {
            return false;
        }
    }
    return true;
}

/* ---- peers ---- */

static int compare_number(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_version(
    const struct eb_part_holding *holding, const char *model, uint64_t version)
{
    int order = compare_number(holding->version, version);
    return order != 0 ? order : strcmp(holding->model, model);
}

static int compare_holdings(const void *a, const void *b)
{
    const struct eb_part_holding *const *left = a;
    const struct eb_part_holding *const *right = b;
    return compare_version(*left, (*right)->model, (*right)->version);
}

static int compare_pairs(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;
    return compare_number(*left, *right);
}

static uint64_t pair_of(uint32_t parts, uint32_t part)
{
    return (uint64_t)parts << 32 | part;
}

/* Copies a text to *at, and moves *at past it. */
static const char *copy_text(const char *text, char **at)
{
    char *copy = *at;
    size_t bytes = strlen(text) + 1;
    memcpy(copy, text, bytes);
    *at += bytes;
    return copy;
}

/* Lists the parts that the peer has of any version. */
static void list_own(struct eb_part_peer *peer)
{
    size_t count = 0;
    if (peer->role.parts != 0) {
        peer->own[count++] = pair_of(peer->role.parts, peer->role.part);
    }
    for (size_t i = 0; i < peer->count; i++) {
        const struct eb_part_holding *holding = &peer->holdings[i];
        for (size_t k = 0; k < holding->owned_count; k++) {
            peer->own[count++] = pair_of(holding->parts, holding->owned[k]);
        }
    }
    qsort(peer->own, count, sizeof *peer->own, compare_pairs);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || peer->own[i] != peer->own[i - 1]) {
            peer->own[peer->own_count++] = peer->own[i];
        }
    }
}

/* Copies a message. Returns false if out of memory. */
static bool copy_message(const struct eb_part_message *message, const struct message_sizes *sizes,
    struct eb_part_peer *peer)
{
    size_t count = message->count;
    char *block = malloc(count * (sizeof *peer->holdings + sizeof *peer->sorted + 2) +
                         (sizes->owned + 1) * (sizeof *peer->own + sizeof(uint32_t)) +
                         sizes->name_bytes + sizes->error_bytes);
    if (!block) {
        return false;
    }
    *peer =
        (struct eb_part_peer){.instance = message->instance, .role = message->role, .count = count};
    peer->holdings = (struct eb_part_holding *)(void *)block;
    peer->sorted = (const struct eb_part_holding **)(void *)(peer->holdings + count);
    peer->own = (uint64_t *)(void *)(peer->sorted + count);
    uint32_t *owned = (uint32_t *)(void *)(peer->own + sizes->owned + 1);
    char *texts = (char *)(owned + sizes->owned);
    for (size_t i = 0; i < count; i++) {
        struct eb_part_holding holding = complete_holding(&message->holdings[i], &message->role);
        for (size_t k = 0; k < holding.owned_count; k++) {
            owned[k] = holding.owned[k];
        }
        holding.owned = owned;
        owned += holding.owned_count;
        holding.model = copy_text(holding.model, &texts);
        holding.error = copy_text(holding.error, &texts);
        peer->holdings[i] = holding;
        peer->sorted[i] = &peer->holdings[i];
    }
    qsort(peer->sorted, count, sizeof *peer->sorted, compare_holdings);
    list_own(peer);
    return true;
}

/* Returns the position of the first of the peer's sorted holdings that is not before a version. */
static size_t find_holdings(const struct eb_part_peer *peer, const char *model, uint64_t version)
{
    size_t low = 0;
    size_t high = peer->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_version(peer->sorted[middle], model, version) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Returns the peer's holding of the version at that position, or NULL if there is none any more. */
static const struct eb_part_holding *holding_at(
    const struct eb_part_peer *peer, size_t at, const char *model, uint64_t version)
{
    bool is_there = at < peer->count && compare_version(peer->sorted[at], model, version) == 0;
    return is_there ? peer->sorted[at] : NULL;
}

/* Returns whether a holding with the model and number of a set is one of its files. */
static bool is_of_set(const struct eb_part_holding *holding, const struct eb_part_key *key)
{
    bool is_unknown = holding->digest == 0 && !is_loaded(holding);
    return holding->parts == key->parts && (holding->digest == key->digest || is_unknown);
}

/* ---- connected peers ---- */

static int compare_peers(const struct eb_part_map *map, uint32_t a, uint32_t b)
{
    int order = compare_number(map->peers[a].instance, map->peers[b].instance);
    return order != 0 ? order : compare_number(a, b);
}

static void add_connected(struct eb_part_map *map, uint32_t peer)
{
    uint32_t at = map->connected_count++;
    while (at > 0 && compare_peers(map, map->connected[at - 1], peer) > 0) {
        map->connected[at] = map->connected[at - 1];
        at--;
    }
    map->connected[at] = peer;
}

static void remove_connected(struct eb_part_map *map, uint32_t peer)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < map->connected_count; i++) {
        if (map->connected[i] != peer) {
            map->connected[kept++] = map->connected[i];
        }
    }
    map->connected_count = kept;
}

/* Returns the end of the peers that have the instance of the one at `from`. */
static uint32_t find_instance_end(const struct eb_part_map *map, uint32_t from)
{
    uint64_t instance = map->peers[map->connected[from]].instance;
    uint32_t end = from + 1;
    while (end < map->connected_count && map->peers[map->connected[end]].instance == instance) {
        end++;
    }
    return end;
}

/* ---- sets ---- */

static int rank_state(enum eb_part_state state)
{
    return state == EB_PART_FAILED ? 0 : state == EB_PART_LOADING ? 1 : 2;
}

/* Notes the state of the parts of a holding in the rows of the set. */
static void note_states(
    struct eb_part_set *set, const struct eb_part_holding *holding, uint32_t peer, uint32_t turn)
{
    for (size_t i = 0; i < holding->owned_count; i++) {
        struct eb_part_row *row = &set->rows[holding->owned[i]];
        if (row->turn != turn || rank_state(row->state) < rank_state(holding->state)) {
            row->turn = turn;
            row->state = holding->state;
            row->peer = peer;
        }
    }
}

/* Notes the states at a peer, and what it says of the version as a whole. */
static void note_peer(
    const struct eb_part_map *map, struct eb_part_set *set, uint32_t number, uint32_t turn)
{
    const struct eb_part_peer *peer = &map->peers[number];
    const struct eb_part_key *key = &set->key;
    size_t at = find_holdings(peer, key->model, key->version);
    const struct eb_part_holding *holding = holding_at(peer, at, key->model, key->version);
    for (; holding; holding = holding_at(peer, ++at, key->model, key->version)) {
        if (is_of_set(holding, key)) {
            set->is_served = set->is_served || holding->is_served;
            set->is_claimed = set->is_claimed || holding->is_claimed;
            note_states(set, holding, number, turn);
        } else if (holding->parts == key->parts && holding->digest != 0) {
            set->is_conflict = true;
        }
    }
}

/* Uses the best state of a part at one instance, which its row has. */
typedef void (*settle_row_fn)(struct eb_part_set *set, uint32_t part);

static void count_row(struct eb_part_set *set, uint32_t part)
{
    const struct eb_part_row *row = &set->rows[part];
    set->first[part + 1] += rank_state(row->state) == 2;
    set->rows[part].failed += row->state == EB_PART_FAILED;
}

/* While the peers are placed, first[part + 1] is where the next one of the part goes. */
static void place_row(struct eb_part_set *set, uint32_t part)
{
    const struct eb_part_row *row = &set->rows[part];
    if (rank_state(row->state) == 2) {
        set->peers[set->first[part + 1]++] = row->peer;
    }
}

/* Calls `settle` for each part of the peer for which that has not been done in this turn, and moves
 * the row on to the next number. */
static void settle_peer(
    const struct eb_part_peer *peer, struct eb_part_set *set, uint32_t turn, settle_row_fn settle)
{
    const struct eb_part_key *key = &set->key;
    size_t at = find_holdings(peer, key->model, key->version);
    const struct eb_part_holding *holding = holding_at(peer, at, key->model, key->version);
    for (; holding; holding = holding_at(peer, ++at, key->model, key->version)) {
        for (size_t i = 0; is_of_set(holding, key) && i < holding->owned_count; i++) {
            struct eb_part_row *row = &set->rows[holding->owned[i]];
            if (row->turn == turn) {
                settle(set, holding->owned[i]);
                row->turn = turn + 1;
            }
        }
    }
}

/* Finds the best state of each part at each instance, and calls `settle` for it. */
static void visit_instances(
    const struct eb_part_map *map, struct eb_part_set *set, settle_row_fn settle)
{
    uint32_t turn = 1;
    for (uint32_t part = 0; part < set->key.parts; part++) {
        set->rows[part].turn = 0;
    }
    for (uint32_t from = 0; from < map->connected_count; turn += 2) {
        uint32_t end = find_instance_end(map, from);
        for (uint32_t i = from; i < end; i++) {
            note_peer(map, set, map->connected[i], turn);
        }
        for (uint32_t i = from; i < end; i++) {
            settle_peer(&map->peers[map->connected[i]], set, turn, settle);
        }
        from = end;
    }
}

/* Finds the peers of each part. The set has room for them. */
static void refresh_set(const struct eb_part_map *map, struct eb_part_set *set)
{
    uint32_t parts = set->key.parts;
    set->is_served = set->is_claimed = set->is_conflict = false;
    for (uint32_t part = 0; part < parts; part++) {
        set->first[part] = 0;
        set->rows[part].failed = 0;
    }
    set->first[parts] = 0;
    visit_instances(map, set, count_row);
    /* Turn the counts into starts: first[p + 1] becomes that of part p, and is its end when its
     * peers have been placed. */
    uint32_t start = 0;
    for (uint32_t part = 0; part < parts; part++) {
        uint32_t count = set->first[part + 1];
        set->first[part + 1] = start;
        start += count;
    }
    assert(start <= set->room);
    visit_instances(map, set, place_row);
}

/* Returns how many parts of the set a peer has. */
static size_t count_parts_of_set(const struct eb_part_peer *peer, const struct eb_part_key *key)
{
    size_t count = 0;
    size_t at = find_holdings(peer, key->model, key->version);
    const struct eb_part_holding *holding = holding_at(peer, at, key->model, key->version);
    for (; holding; holding = holding_at(peer, ++at, key->model, key->version)) {
        count += is_of_set(holding, key) ? holding->owned_count : 0;
    }
    return count;
}

/* Returns whether two messages of one peer say the same of a set's version. It may return false if
 * they say it in another order. */
static bool is_same_version(
    const struct eb_part_peer *a, const struct eb_part_peer *b, const struct eb_part_key *key)
{
    size_t at = find_holdings(a, key->model, key->version);
    size_t other = find_holdings(b, key->model, key->version);
    const struct eb_part_holding *left = holding_at(a, at, key->model, key->version);
    const struct eb_part_holding *right = holding_at(b, other, key->model, key->version);
    if ((left || right) && a->instance != b->instance) {
        return false;
    }
    while (left && right) {
        if (!is_same_holding(left, right)) {
            return false;
        }
        left = holding_at(a, ++at, key->model, key->version);
        right = holding_at(b, ++other, key->model, key->version);
    }
    return !left && !right;
}

/* Makes room for `count` peers. Returns false if out of memory. */
static bool reserve_peers(struct eb_part_set *set, size_t count)
{
    if (count <= set->room) {
        return true;
    }
    size_t room = count + count / 2;
    uint32_t *peers = realloc(set->peers, room * sizeof *peers);
    if (peers) {
        set->peers = peers;
        set->room = room;
    }
    return peers;
}

/* Makes room in all sets for what a peer says. */
static bool reserve_sets(struct eb_part_map *map, const struct eb_part_peer *peer)
{
    for (struct eb_list *link = map->sets.next; link != &map->sets; link = link->next) {
        struct eb_part_set *set = EB_CONTAINER_OF(link, struct eb_part_set, link);
        size_t more = count_parts_of_set(peer, &set->key);
        if (!reserve_peers(set, set->first[set->key.parts] + more)) {
            return false;
        }
    }
    return true;
}

/* Replaces what a peer has said, and refreshes the sets for which that makes a difference. */
static void replace_peer(
    struct eb_part_map *map, uint32_t number, const struct eb_part_peer *replacement)
{
    struct eb_part_peer former = map->peers[number];
    if (former.instance != 0) {
        remove_connected(map, number);
    }
    map->peers[number] = *replacement;
    if (replacement->instance != 0) {
        add_connected(map, number);
    }
    map->changes++;
    for (struct eb_list *link = map->sets.next; link != &map->sets; link = link->next) {
        struct eb_part_set *set = EB_CONTAINER_OF(link, struct eb_part_set, link);
        if (!is_same_version(&former, replacement, &set->key)) {
            refresh_set(map, set);
        }
    }
    free(former.holdings);
}

bool eb_part_map_take(struct eb_part_map *map, uint32_t peer, const struct eb_part_message *message,
    struct eb_error *error)
{
    struct message_sizes sizes;
    struct eb_part_peer replacement;
    assert(peer < map->peer_count);
    if (!check_message(message, &sizes, error)) {
        eb_part_map_drop(map, peer);
        return false;
    }
    if (is_repeated(&map->peers[peer], message)) {
        return true;
    }
    if (!copy_message(message, &sizes, &replacement)) {
        goto out_of_memory;
    }
    if (!reserve_sets(map, &replacement)) {
        free(replacement.holdings);
        goto out_of_memory;
    }
    replace_peer(map, peer, &replacement);
    return true;

out_of_memory:
    eb_part_map_drop(map, peer);
    eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left for what a server holds");
    return false;
}

void eb_part_map_drop(struct eb_part_map *map, uint32_t peer)
{
    struct eb_part_peer none = {0};
    assert(peer < map->peer_count);
    if (map->peers[peer].instance != 0) {
        replace_peer(map, peer, &none);
    }
}

/* ---- maps and sets ---- */

bool eb_part_map_init(struct eb_part_map *map, uint32_t peer_count)
{
    assert(peer_count <= EB_PART_MAP_PEERS_MAX);
    *map = (struct eb_part_map){.peer_count = peer_count};
    map->peers = calloc((size_t)peer_count + 1, sizeof *map->peers);
    map->connected = calloc((size_t)peer_count + 1, sizeof *map->connected);
    eb_list_init(&map->sets);
    if (!map->peers || !map->connected) {
        eb_part_map_deinit(map);
        return false;
    }
    return true;
}

void eb_part_map_deinit(struct eb_part_map *map)
{
    while (map->sets.next && !eb_list_is_empty(&map->sets)) {
        eb_part_map_close(EB_CONTAINER_OF(map->sets.next, struct eb_part_set, link));
    }
    for (uint32_t peer = 0; map->peers && peer < map->peer_count; peer++) {
        free(map->peers[peer].holdings);
    }
    free(map->peers);
    free(map->connected);
    *map = (struct eb_part_map){0};
}

struct eb_part_set *eb_part_map_open(struct eb_part_map *map, const struct eb_part_key *key)
{
    assert(key->parts > 0 && key->parts <= EB_PARTS_MAX);
    struct eb_part_set *set = calloc(1, sizeof *set);
    if (!set) {
        return NULL;
    }
    size_t count = 0;
    eb_list_init(&set->link);
    set->key = *key;
    set->key.model = strdup(key->model);
    set->first = calloc((size_t)key->parts + 1, sizeof *set->first);
    set->rows = calloc(key->parts, sizeof *set->rows);
    for (uint32_t i = 0; i < map->connected_count; i++) {
        count += count_parts_of_set(&map->peers[map->connected[i]], key);
    }
    if (!set->key.model || !set->first || !set->rows || !reserve_peers(set, count)) {
        eb_part_map_close(set);
        return NULL;
    }
    eb_list_push(&map->sets, &set->link);
    set->counted = map->changes - 1;
    refresh_set(map, set);
    return set;
}

void eb_part_map_close(struct eb_part_set *set)
{
    if (!set) {
        return;
    }
    eb_list_remove(&set->link);
    free((char *)set->key.model);
    free(set->first);
    free(set->peers);
    free(set->rows);
    free(set);
}

/* ---- what the map says ---- */

/* Returns the position of the first of the peer's own parts that is not before that one. */
static size_t find_own(const struct eb_part_peer *peer, uint64_t pair)
{
    size_t low = 0;
    size_t high = peer->own_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (peer->own[middle] < pair) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t eb_part_map_count_connected(const struct eb_part_map *map, uint32_t part, uint32_t parts)
{
    uint64_t pair = pair_of(parts, part);
    uint64_t counted = 0; /* the instance that was counted last */
    uint32_t count = 0;
    for (uint32_t i = 0; i < map->connected_count; i++) {
        const struct eb_part_peer *peer = &map->peers[map->connected[i]];
        size_t at = find_own(peer, pair);
        if (peer->instance != counted && at < peer->own_count && peer->own[at] == pair) {
            counted = peer->instance;
            count++;
        }
    }
    return count;
}

/* Counts the connected replicas of each part of a set, unless that has been done since the last
 * change. */
static void count_connected_rows(const struct eb_part_map *map, struct eb_part_set *set)
{
    uint32_t parts = set->key.parts;
    uint32_t turn = 0;
    uint64_t instance = 0;
    if (set->counted == map->changes) {
        return;
    }
    for (uint32_t part = 0; part < parts; part++) {
        set->rows[part].connected = 0;
        set->rows[part].turn = 0;
    }
    for (uint32_t i = 0; i < map->connected_count; i++) {
        const struct eb_part_peer *peer = &map->peers[map->connected[i]];
        turn += peer->instance != instance;
        instance = peer->instance;
        for (size_t at = find_own(peer, pair_of(parts, 0));
             at < peer->own_count && peer->own[at] < pair_of(parts + 1, 0); at++) {
            struct eb_part_row *row = &set->rows[(uint32_t)peer->own[at]];
            row->connected += row->turn != turn;
            row->turn = turn;
        }
    }
    set->counted = map->changes;
}

/* Returns the error of a peer where the part is FAILED, or NULL if it is not. */
static const char *find_part_error(
    const struct eb_part_peer *peer, const struct eb_part_key *key, uint32_t part)
{
    size_t at = find_holdings(peer, key->model, key->version);
    const struct eb_part_holding *holding = holding_at(peer, at, key->model, key->version);
    for (; holding; holding = holding_at(peer, ++at, key->model, key->version)) {
        for (size_t i = 0; is_of_set(holding, key) && i < holding->owned_count; i++) {
            if (holding->owned[i] == part && holding->state == EB_PART_FAILED) {
                return holding->error;
            }
        }
    }
    return NULL;
}

/* Returns the error of a part that is FAILED somewhere; the lowest peer's that has a text. */
static const char *find_set_error(
    const struct eb_part_map *map, const struct eb_part_key *key, uint32_t part)
{
    for (uint32_t peer = 0; peer < map->peer_count; peer++) {
        const char *error = find_part_error(&map->peers[peer], key, part);
        if (error && error[0] != '\0') {
            return error;
        }
    }
    return "";
}

struct eb_part_view eb_part_map_view(
    const struct eb_part_map *map, struct eb_part_set *set, uint32_t replicas)
{
    struct eb_part_view view = {.is_complete = true,
        .has_replicas = true,
        .is_served = set->is_served,
        .is_claimed = set->is_claimed,
        .is_conflict = set->is_conflict,
        .error = ""};
    count_connected_rows(map, set);
    for (uint32_t part = 0; part < set->key.parts; part++) {
        const struct eb_part_row *row = &set->rows[part];
        uint32_t ready = set->first[part + 1] - set->first[part];
        uint32_t wanted = row->connected < replicas ? row->connected : replicas;
        if (ready == 0 && view.is_complete) {
            view.is_complete = false;
            view.lost_part = part;
        }
        view.has_replicas = view.has_replicas && ready > 0 && ready >= wanted;
        view.ready_parts += ready > 0;
        if (!view.is_failed && row->failed > 0 && row->failed == row->connected) {
            view.is_failed = true;
            view.failed_part = part;
            view.error = find_set_error(map, &set->key, part);
        }
    }
    return view;
}

void eb_part_view_explain(const struct eb_part_view *view, struct eb_failure *text)
{
    (void)eb_failure_set(text, "part %" PRIu32 ": %s", view->failed_part,
        view->error[0] != '\0' ? view->error : "the servers do not say why");
}

bool eb_part_map_has_version(const struct eb_part_map *map, const char *model, uint64_t version)
{
    for (uint32_t i = 0; i < map->connected_count; i++) {
        const struct eb_part_peer *peer = &map->peers[map->connected[i]];
        size_t at = find_holdings(peer, model, version);
        const struct eb_part_holding *holding = holding_at(peer, at, model, version);
        for (; holding; holding = holding_at(peer, ++at, model, version)) {
            if (holding->state != EB_PART_FAILED) {
                return true;
            }
        }
    }
    return false;
}
