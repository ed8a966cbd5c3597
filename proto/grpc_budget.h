/* How much a peer may ask for without getting anything done: frames that carry nothing, pings that
 * come too soon, calls that it resets, and header blocks that expand.
 * Thread: one at a time. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
