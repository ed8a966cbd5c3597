/* Translates between serialised messages of EmbeddingBag.WatchModels and plain values.
 * Thread: pure. Memory: decoding takes from the given arena, and its results live as long as the
 * arena's content; encoding writes into the caller's buffer. */
#pragma once

#include "proto/arena.h"
#include "proto/status.h"

/* Level of the protocol between routers and servers that this program speaks. It grows by one when
 * a message gets a field that must not be skipped. */
#define EB_WATCH_LEVEL 1u

/* Most claims of one request. A request with more is refused. */
#define EB_WATCH_CLAIMS_MAX 64u
/* Most holdings of one response. An encoder is given no more, and a decoder refuses more. */
#define EB_WATCH_HOLDINGS_MAX 4096u
/* Most bytes of the error texts of one response, all together. Decoders refuse more. */
#define EB_WATCH_ERROR_BYTES_MAX 65536u
/* Most parts that one holding may own. Decoders refuse more. */
#define EB_WATCH_PARTS_MAX 4096u

/* Claim. */
struct eb_wire_claim {
    const char *model; /* not empty when decoded */
    uint64_t version;  /* not 0 when decoded */
    uint64_t digest;
    bool served;
};

/* WatchModelsRequest. */
struct eb_wire_watch_request {
    size_t claim_count;
    const struct eb_wire_claim *claims; /* [claim_count] */
    const char *router;                 /* empty if it has no name */
    uint32_t level;
};

/* Holding; `state` is the enum State of ModelVersion. */
struct eb_wire_holding {
    const char *model; /* not empty when decoded */
    uint64_t version;
    uint64_t digest;
    uint32_t parts; /* 0: not in parts */
    size_t owned_part_count;
    const uint32_t *owned_parts; /* [owned_part_count], each below `parts` when decoded */
    int32_t state;
    const char *error; /* empty: none */
    bool served_by_router;
    bool claimed;
};

/* WatchModelsResponse. */
struct eb_wire_holdings {
    size_t count;
    const struct eb_wire_holding *items; /* [count] */
    bool draining;
    uint64_t instance;
    uint32_t level;
};

/* Decodes a request whose names have at most name_bytes_max bytes each. Returns NULL with *error
 * set, as the decoders of codec.h do. RESOURCE_EXHAUSTED: there are too many claims.
 * INVALID_ARGUMENT: a claim names no model or no version. */
struct eb_wire_watch_request *eb_watch_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, uint32_t name_bytes_max, struct eb_error *error);
size_t eb_watch_request_bytes(const struct eb_wire_watch_request *request);
void eb_watch_request_encode(const struct eb_wire_watch_request *request, uint8_t *out);

/* Decodes a response, whose sender is not trusted. Returns NULL with *error set.
 * RESOURCE_EXHAUSTED: a limit above is exceeded, a model's name has more than name_bytes_max bytes,
 * or the arena is exhausted. INTERNAL: the bytes are not a response. INVALID_ARGUMENT: a text is
 * not UTF-8, a holding names no model, or it owns a part that its version does not have. */
struct eb_wire_holdings *eb_holdings_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, uint32_t name_bytes_max, struct eb_error *error);
size_t eb_holdings_bytes(const struct eb_wire_holdings *holdings);
void eb_holdings_encode(const struct eb_wire_holdings *holdings, uint8_t *out);
