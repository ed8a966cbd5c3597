/* What the server's side of a connection keeps its peer to: limits and the settings that announce
 * them, the preface, a budget for frames that achieve nothing, and the answer to requests that are
 * not gRPC.
 * Thread: the connection's. Memory: none, but for what nghttp2 allocates. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nghttp2_option;
struct nghttp2_session;

/* ---- limits ---- */

/* Caps of one connection. */
struct eb_grpc_server_limits {
    uint32_t request_bytes_max;    /* one message, at most 512 MiB; larger: RESOURCE_EXHAUSTED */
    uint32_t streams_max;          /* open calls at once (SETTINGS_MAX_CONCURRENT_STREAMS) */
    uint32_t header_fields_max;    /* of one request; more: RESOURCE_EXHAUSTED */
    uint32_t header_bytes_max;     /* names and values of one request together */
    uint32_t outbound_bytes_max;   /* written output that waits, at least 1 MiB; given up beyond.
                                      What waits in calls for the peer's windows does not count */
    uint32_t message_stall_ms_max; /* a message that makes no progress for so long ends its call, as
                                      does one that takes four times as long at less than 4 KiB/s */
    uint32_t
        answer_stall_ms_max; /* answers that hardly move for so long reset the call; 0: never */
    uint32_t reset_budget;   /* streams a peer may reset beyond those it lets end, and beyond a
                                thousand a second */
    /* Between a peer's pings, while it has calls and while it has none; some that come sooner, and
     * after nothing was sent to it, turn it away. 0: as often as it likes. */
    uint32_t ping_interval_min_ms;
    uint32_t ping_idle_interval_min_ms;
};

/* The caller's to delete. NULL: no memory. */
struct nghttp2_option *eb_grpc_settings_option(void);
/* Submits SETTINGS and the connection's window. false: no memory. */
bool eb_grpc_settings_submit(
    struct nghttp2_session *session, const struct eb_grpc_server_limits *limits);

/* ---- preface ---- */

/* The first bytes of a connection: HTTP/2's, or those of somebody who has the wrong port. */

#define EB_GRPC_PREFACE_BYTES 24

/* A preface that is being read. Zeroed is ready. */
struct eb_grpc_preface {
    size_t count; /* of its bytes that have come */
};

/* Looks at bytes as they come, for as long as they belong to it. false: they do not. */
bool eb_grpc_preface_check(struct eb_grpc_preface *preface, const uint8_t *bytes, size_t count);
bool eb_grpc_preface_is_whole(const struct eb_grpc_preface *preface);
/* What to say to a client whose first byte this is and that has sent no preface: tells one of
 * HTTP/1.x, which would show our frames as garbage, what it has reached. "" where it is none. */
const char *eb_grpc_preface_answer(uint8_t first);

/* ---- budget ---- */

/* How much a peer may ask for without getting anything done: frames that carry nothing, pings that
 * come too soon, calls that it resets, and header blocks that expand. */

struct eb_grpc_budget {
    uint32_t resets_max;
    uint32_t resets_left;
    uint32_t noise_left;
    uint32_t window_updates; /* since one of them counted */
    uint32_t strikes;        /* pings that have come too soon since something was sent */
    uint64_t pinged_ms;      /* when a ping has come since something was sent; 0: none has */
    uint64_t noise_ms;       /* up to when noise_left is refilled; 0: no clock seen yet */
    uint64_t resets_ms;      /* up to when resets_left is */
    uint32_t excess_max;
    uint32_t excess_left;
    uint32_t excess_per_s;
    uint64_t excess_ms; /* when excess_left was last refilled */
};

/* Allows a burst of `resets_max` resets, and a thousand a second for ever; and header blocks that
 * expand by three times `header_bytes_max` beyond good faith, together and at once, and by as much
 * as one a second for ever. */
void eb_grpc_budget_init(
    struct eb_grpc_budget *budget, uint32_t resets_max, uint32_t header_bytes_max);
/* Lets time pass, on any steady clock. */
void eb_grpc_budget_refill(struct eb_grpc_budget *budget, uint64_t now_ms);

/* One frame that asks for an answer or for work without a call getting on. false: too many. */
bool eb_grpc_budget_spend_noise(struct eb_grpc_budget *budget);
/* A frame of HTTP/2 begins, by the fields of its head: spends what it is worth as noise. Of
 * HEADERS, CONTINUATION and RST_STREAM the call says what they are. */
bool eb_grpc_budget_spend_frame(
    struct eb_grpc_budget *budget, uint8_t type, uint8_t flags, size_t length);
/* A ping. false: the peer has sent too many within `interval_ms` of the one before. */
bool eb_grpc_budget_spend_ping(
    struct eb_grpc_budget *budget, uint64_t now_ms, uint64_t interval_ms);
/* A call got on, something of it was sent: earlier noise and pings are forgiven. */
void eb_grpc_budget_calm(struct eb_grpc_budget *budget);

/* A call that was being served was reset, by the peer or for an error of its. false: too many. */
bool eb_grpc_budget_spend_reset(struct eb_grpc_budget *budget);
/* A call has ended as it should. */
void eb_grpc_budget_earn_reset(struct eb_grpc_budget *budget);

/* Spends what header blocks cost beyond good faith, in bytes. Returns false if that is too much. */
bool eb_grpc_budget_spend_excess(struct eb_grpc_budget *budget, size_t bytes);

/* ---- refusal ---- */

/* The answer to a request that is not gRPC: an HTTP status and a line that says why, for people
 * with a browser or curl. */

/* An answer that is being sent; zeroed: there is none. */
struct eb_grpc_refusal {
    int http_status; /* 0: none */
    size_t sent;     /* bytes of its text */
};

/* Submits the answer, whose http_status is set and which is borrowed until the stream is closed.
 * The result is nghttp2's. */
int eb_grpc_refusal_submit(
    struct nghttp2_session *session, int32_t stream_id, struct eb_grpc_refusal *refusal);
