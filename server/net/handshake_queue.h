/* A loop's queue of connections whose next TLS handshake bytes have arrived, and the rate at which
 * it begins handshakes.
 *
 * Answering a client's hello takes some 0.3 ms of CPU. So a loop has at most one step of one
 * handshake in progress, and begins only so many handshakes per second. Handshakes begin in the
 * order of arrival. A connection that the rate would not let begin before its time is over is
 * refused when it arrives: work for a peer that has given up would be wasted. A busy loop may begin
 * fewer handshakes than the rate allows. Connections that it cannot begin with in time stay in the
 * queue until their time is over. A connection whose handshake has begun waits apart from those
 * whose handshake has not, and the two kinds alternate, so that neither starves.
 * Thread: its loop's. Memory: none; its lists run through the connections. Time is passed in. */
#pragma once

#include "proto/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The handshakes of this much time may begin in a row after a pause, so that a few clients that
 * connect at once do not wait. */
#define EB_HANDSHAKE_BURST_NS UINT64_C(100000000)

/* A connection's entry in the queue. */
struct eb_handshake_entry {
    struct eb_list link;
    uint64_t late_ns; /* when its time is over; valid while it waits */
    bool is_waiting;
    bool has_begun; /* it was popped before */
};

struct eb_handshake_queue {
    struct eb_list fresh; /* entries that have not begun, by arrival */
    struct eb_list begun;
    size_t fresh_count;
    size_t begun_count;
    uint64_t paid_ns; /* time up to which the handshakes begun so far have used up the rate */
    bool was_fresh;   /* whether the last entry popped began its handshake */
};

void eb_handshake_queue_init(struct eb_handshake_queue *queue);
void eb_handshake_entry_init(struct eb_handshake_entry *entry);
/* Returns how many connections wait. */
size_t eb_handshake_queue_count(const struct eb_handshake_queue *queue);

/* Appends an entry whose time is over at `late_ns`. Returns false, with the queue as before, if its
 * handshake has not begun and could not begin earlier at `per_s_max` handshakes per second, where 0
 * is no limit. The entry must not wait. */
bool eb_handshake_queue_push(struct eb_handshake_queue *queue, struct eb_handshake_entry *entry,
    uint64_t per_s_max, uint64_t late_ns, uint64_t now_ns);
/* Removes and returns the entry that takes the next step. Returns NULL if none may take one now
 * (eb_handshake_queue_pause_ns). */
struct eb_handshake_entry *eb_handshake_queue_pop(
    struct eb_handshake_queue *queue, uint64_t per_s_max, uint64_t now_ns);
/* Removes and returns an entry that has not begun and whose time is over. Returns NULL if the entry
 * that came first still has time. */
struct eb_handshake_entry *eb_handshake_queue_pop_late(
    struct eb_handshake_queue *queue, uint64_t now_ns);
/* Returns the time until an entry may take a step: 0 if one may now, UINT64_MAX if none
 * waits. */
uint64_t eb_handshake_queue_pause_ns(
    const struct eb_handshake_queue *queue, uint64_t per_s_max, uint64_t now_ns);
/* Removes an entry. Does nothing if it does not wait. */
void eb_handshake_queue_remove(struct eb_handshake_queue *queue, struct eb_handshake_entry *entry);
