/* How the server's side of a connection sets nghttp2 up, and what it tells its peer to keep to.
 * Thread: one at a time. Memory: nghttp2's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct nghttp2_option;
struct nghttp2_session;

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
