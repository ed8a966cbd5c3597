/* The rules to which the server's side of a connection holds its peer: limits and the settings that
 * announce them, the preface, a budget for frames that achieve nothing, and the answer to requests
 * that are not gRPC.
 * Thread: the connection's. Memory: none, except what nghttp2 allocates. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nghttp2_option;
struct nghttp2_session;

/* ---- limits ---- */

/* Caps of one connection. */
struct eb_grpc_server_limits {
    uint32_t request_bytes_max; /* largest message, at most 512 MiB; larger: RESOURCE_EXHAUSTED */
    uint32_t streams_max;       /* open calls at once (SETTINGS_MAX_CONCURRENT_STREAMS) */
    uint32_t header_fields_max; /* most fields of a request's headers; more: RESOURCE_EXHAUSTED */
    uint32_t header_bytes_max;  /* limit on the names and values of one request together */
    /* Output in the write queue, at least 1 MiB; more ends the connection. Answers that wait in
     * calls for the peer's windows do not count. */
    uint32_t outbound_bytes_max;
    /* A message without progress for this long ends its call, as does one that takes four times as
     * long at less than 4 KiB/s. */
    uint32_t message_stall_ms_max;
    /* A call is reset if its answers hardly progress for this long; 0: never. */
    uint32_t answer_stall_ms_max;
    /* Number of calls that a peer may reset, in addition to one for each call that it lets end and
     * a thousand a second. */
    uint32_t reset_budget;
    /* Least time between a peer's pings, while it has calls and while it has no calls. A ping
     * counts as too early only if nothing was sent to the peer since the ping before. A few early
     * pings end the connection. 0 if the peer may ping as often as it likes. */
    uint32_t ping_interval_min_ms;
    uint32_t ping_idle_interval_min_ms;
};

/* Returns the options of a session. The caller deletes them. Returns NULL if out of memory. */
struct nghttp2_option *eb_grpc_settings_option(void);
/* Submits SETTINGS and the connection's window. Returns false if out of memory. */
bool eb_grpc_settings_submit(
    struct nghttp2_session *session, const struct eb_grpc_server_limits *limits);

/* ---- preface ---- */

/* The first bytes of a connection: HTTP/2's preface, or other bytes from a client on the wrong
 * port. */

#define EB_GRPC_PREFACE_BYTES 24

/* A preface that is being read. It must be zeroed at first. */
struct eb_grpc_preface {
    size_t count; /* bytes of the preface that have come */
};

/* Checks the part of the next bytes that belongs to the preface. Returns false if it differs from
 * the preface. */
bool eb_grpc_preface_check(struct eb_grpc_preface *preface, const uint8_t *bytes, size_t count);
bool eb_grpc_preface_is_whole(const struct eb_grpc_preface *preface);
/* Returns the answer to a client that has sent no preface, chosen by the first byte that it sent. A
 * client of HTTP/1.x would show our frames as garbage, so the answer says which port it has
 * reached. Returns "" for any other client. */
const char *eb_grpc_preface_answer(uint8_t first);

/* ---- budget ---- */

/* Bounds the work that a peer causes without achieving anything: frames that carry nothing, pings
 * that come too early, calls that it resets, and header blocks that expand. */

struct eb_grpc_budget {
    uint32_t resets_max;
    uint32_t resets_left;
    uint32_t noise_left;
    uint32_t window_updates; /* window updates since the last one that was spent as noise */
    uint32_t strikes;        /* pings that came too early since something was sent */
    uint64_t pinged_ms;      /* time of the last ping since something was sent; 0: none */
    uint64_t noise_ms;       /* time up to which noise_left has been refilled; 0: no clock yet */
    uint64_t resets_ms;      /* time up to which resets_left has been refilled */
    uint32_t excess_max;
    uint32_t excess_left;
    uint32_t excess_per_s;
    uint64_t excess_ms; /* time when excess_left was last refilled */
};

/* Allows a burst of `resets_max` resets, and a thousand a second for ever. Allows header blocks to
 * expand beyond eb_grpc_block_bytes_max: by three times `header_bytes_max` at once, all blocks
 * together, and by `header_bytes_max` a second for ever. */
void eb_grpc_budget_init(
    struct eb_grpc_budget *budget, uint32_t resets_max, uint32_t header_bytes_max);
/* Refills the budget for the time that has passed, on any steady clock. */
void eb_grpc_budget_refill(struct eb_grpc_budget *budget, uint64_t now_ms);

/* Spends one frame that asks for an answer or for work but does not advance a call. Returns false
 * if there were too many. */
bool eb_grpc_budget_spend_noise(struct eb_grpc_budget *budget);
/* Spends the noise that an HTTP/2 frame costs, by the fields of its head. HEADERS, CONTINUATION and
 * RST_STREAM cost nothing here; other functions count them. Returns false if there was too much. */
bool eb_grpc_budget_spend_frame(
    struct eb_grpc_budget *budget, uint8_t type, uint8_t flags, size_t length);
/* Spends a ping. Returns false if too many pings have come less than `interval_ms` after the ping
 * before. */
bool eb_grpc_budget_spend_ping(
    struct eb_grpc_budget *budget, uint64_t now_ms, uint64_t interval_ms);
/* Forgives earlier noise and pings, because something of a call was sent. */
void eb_grpc_budget_calm(struct eb_grpc_budget *budget);

/* Spends a reset of a call that was being served, by the peer or for an error of the peer. Returns
 * false if there were too many. */
bool eb_grpc_budget_spend_reset(struct eb_grpc_budget *budget);
/* Notes that a call has ended normally, which earns a reset. */
void eb_grpc_budget_earn_reset(struct eb_grpc_budget *budget);

/* Spends the excess of header blocks (eb_grpc_block_excess), in bytes. Returns false if there was
 * too much. */
bool eb_grpc_budget_spend_excess(struct eb_grpc_budget *budget, size_t bytes);

/* ---- refusal ---- */

/* The answer to a request that is not gRPC: an HTTP status and a line of text that gives the
 * reason, for people with a browser or curl. */

/* An answer that is being sent. Zeroed if there is none. */
struct eb_grpc_refusal {
    int http_status; /* 0: none */
    size_t sent;     /* bytes of the text that are sent */
};

/* Submits the answer, whose http_status is set. `refusal` is borrowed until the stream is closed.
 * Returns nghttp2's result. */
int eb_grpc_refusal_submit(
    struct nghttp2_session *session, int32_t stream_id, struct eb_grpc_refusal *refusal);
