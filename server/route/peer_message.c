#include "server/route/peer_message.h"

#include "proto/message.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Longest name of a model that a server can be set to accept (name_bytes_max). */
#define NAME_BYTES_MAX 4096u
/* Most digits of a part's number. */
#define ROLE_DIGITS_MAX 5

/* ---- roles ---- */

/* Reads decimal digits and moves *text past them. Returns false if there are none or too many. */
static bool read_role_number(const char **text, uint32_t *number)
{
    size_t digits = strspn(*text, "0123456789");
    *number = 0;
    if (digits == 0 || digits > ROLE_DIGITS_MAX) {
        return false;
    }
    for (; digits > 0; digits--) {
        *number = *number * 10 + (uint32_t)(*(*text)++ - '0');
    }
    return true;
}

bool eb_peer_role_read(const char *role, struct eb_part_choice *choice)
{
    static const char prefix[] = "part ";
    if (strncmp(role, prefix, strlen(prefix)) != 0) {
        return false;
    }
    const char *at = role + strlen(prefix);
    if (!read_role_number(&at, &choice->part) || *at++ != '/' ||
        !read_role_number(&at, &choice->parts)) {
        return false;
    }
    return *at == '\0' && choice->parts <= EB_PARTS_MAX && choice->part < choice->parts;
}

/* ---- messages ---- */

/* Sets *state. Returns false for a version whose state does not matter. */
static bool translate_state(int32_t wire, enum eb_part_state *state)
{
    switch (wire) {
    case EB_WIRE_STATE_LOADING: *state = EB_PART_LOADING; return true;
    case EB_WIRE_STATE_READY: *state = EB_PART_READY; return true;
    case EB_WIRE_STATE_SERVING: *state = EB_PART_SERVING; return true;
    case EB_WIRE_STATE_FAILED: *state = EB_PART_FAILED; return true;
    default: return false;
    }
}

static struct eb_part_holding translate_holding(
    const struct eb_wire_holding *holding, enum eb_part_state state)
{
    return (struct eb_part_holding){
        .model = holding->model,
        .version = holding->version,
        .digest = holding->digest,
        .parts = holding->parts,
        .owned_count = holding->owned_part_count,
        .owned = holding->owned_parts,
        .state = state,
        .error = holding->error,
        .is_served = holding->served_by_router,
        .is_claimed = holding->claimed,
    };
}

/* Takes zeroed memory from the arena. Returns NULL with *error set if there is none. */
static void *take_message_memory(
    struct eb_arena *arena, size_t count, size_t bytes, struct eb_error *error)
{
    void *memory = eb_arena_take(arena, count * bytes);
    if (!memory) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left for what a server holds");
        return NULL;
    }
    return memset(memory, 0, count * bytes);
}

struct eb_peer_message *eb_peer_message_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    const struct eb_wire_holdings *wire =
        eb_holdings_decode(arena, bytes, size, NAME_BYTES_MAX, error);
    struct eb_peer_message *message =
        wire ? take_message_memory(arena, 1, sizeof *message, error) : NULL;
    struct eb_part_holding *holdings =
        message ? take_message_memory(arena, wire->count + 1, sizeof *holdings, error) : NULL;
    if (!holdings) {
        return NULL;
    }
    size_t count = 0;
    for (size_t i = 0; i < wire->count; i++) {
        enum eb_part_state state;
        if (wire->items[i].version == 0) {
            eb_error_set(error, EB_STATUS_INTERNAL, "holdings[%zu] names no version", i);
            return NULL;
        }
        if (translate_state(wire->items[i].state, &state)) {
            holdings[count++] = translate_holding(&wire->items[i], state);
        }
    }
    message->part =
        (struct eb_part_message){.instance = wire->instance, .count = count, .holdings = holdings};
    message->is_draining = wire->draining;
    message->level = wire->level;
    return message;
}

/* ---- claims ---- */

/* Adds the claims of versions that are served, or of those that are not. Returns the new number. */
static size_t add_claims(struct eb_wire_claim wire[EB_WATCH_CLAIMS_MAX], size_t wire_count,
    const struct eb_peer_watch_claim *claims, size_t count, bool is_served)
{
    for (size_t i = 0; i < count && wire_count < EB_WATCH_CLAIMS_MAX; i++) {
        const struct eb_peer_watch_claim *claim = &claims[i];
        assert(claim->model[0] != '\0' && claim->version != 0);
        if (claim->is_served == is_served) {
            wire[wire_count++] = (struct eb_wire_claim){
                claim->model, claim->version, claim->digest, claim->is_served};
        }
    }
    return wire_count;
}

bool eb_peer_request_encode(struct eb_peer_request *request, const char *router,
    const struct eb_peer_watch_claim *claims, size_t count)
{
    struct eb_wire_claim wire[EB_WATCH_CLAIMS_MAX];
    size_t wire_count = add_claims(wire, 0, claims, count, true);
    wire_count = add_claims(wire, wire_count, claims, count, false);
    struct eb_wire_watch_request message = {
        .claim_count = wire_count, .claims = wire, .router = router, .level = EB_WATCH_LEVEL};
    size_t size = eb_watch_request_bytes(&message);
    uint8_t *bytes = malloc(size);
    if (!bytes) {
        return false;
    }
    eb_watch_request_encode(&message, bytes);
    *request =
        (struct eb_peer_request){.bytes = bytes, .size = size, .left_out = count - wire_count};
    return true;
}

void eb_peer_request_free(struct eb_peer_request *request)
{
    free(request->bytes);
    *request = (struct eb_peer_request){0};
}
