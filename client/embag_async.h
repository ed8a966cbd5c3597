/* embag: lookups that do not block: many under way at once, from any thread, over the connections
 * of one client (embag.h). client/examples/submit_example.c is a whole program.
 *
 * Each lookup says how it wants to be told that it is over:
 * - With on_done, by a callback on the client's thread. Nothing is faster, for no thread has to
 *   wake. It must be short and must not block, for it holds up every other answer; it may submit
 *   and cancel.
 * - Without, by a completion in the client's queue, from which any number of threads take
 *   (embag_next). That is for work that takes time or blocks, and, with embag_completion_fd, for a
 *   program's own event loop.
 * A program may use both: which is right depends on the work behind an answer, not on the client.
 *
 * Retries. Lookups change nothing, so that sending one twice is safe. One is sent again, at most
 * retries_max times and only where its deadline leaves the time:
 * - after UNAVAILABLE and lost connections, after a pause that doubles from 10 ms to 1 s and is
 *   shortened by chance, so that clients do not come back all at once;
 * - after RESOURCE_EXHAUSTED with which the server named a time (grpc-retry-pushback-ms or
 *   retry_after_ms), after that time. Without one it is final.
 * Lost connections are opened again in the same manner.
 *
 * What ends a whole stream, such as a larger answer than answer_bytes_max, may have been another
 * lookup's: each that was on it is sent once more, by itself, which counts as an attempt.
 *
 * Overload. As many lookups are under way over a connection as are answered soon enough; more wait
 * here, and so they do while much waits to be written. Those that wait are sent oldest first; where
 * the oldest would likely be answered too late, newest first: of more lookups than the server can
 * answer, as many as it can are answered in time, and the others end with DEADLINE_EXCEEDED without
 * having cost it anything (attempts is 0). Interactive lookups go before batch ones.
 *
 * Of batch priority there is a limit that the client does not know: a server works on as many of
 * one connection as half of its in_flight_max, 128 by default, and on fewer where they are large.
 * It refuses those beyond ("too much of batch priority waits on this connection") with a time to
 * come again; a lookup whose retries are all refused ends with RESOURCE_EXHAUSTED, long before its
 * deadline. So have no more than 128 batch lookups under way for each of the client's connections:
 * submit fewer at a time, or open it with more connections.
 *
 * Thread: any. Memory: a request is copied before embag_submit returns; a completion's answer is
 * its taker's. Beyond answers nothing is allocated once the client is warm, but for what nghttp2
 * takes: little of each unary call, next to nothing on streams. */
#pragma once

#include "embag.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMBAG_FOREVER UINT64_MAX

/* How one lookup ended. */
struct embag_completion {
    uint64_t id;                 /* as embag_submit gave it */
    void *context;               /* of its embag_call */
    struct embag_answer *answer; /* to be freed by the taker; fits its request, see embag_lookup;
                                    NULL where error.status is not EMBAG_OK */
    struct embag_error error;    /* text is empty where status is EMBAG_OK */
    uint32_t attempts;           /* times it was sent, or a connection was tried for it in vain */
    uint32_t retry_after_ms; /* as the server asked; 0: nothing; UINT32_MAX: not to come again */
};

/* On the client's thread. The completion is borrowed for the call, its answer is not. */
typedef void (*embag_done_fn)(const struct embag_completion *completion);

/* How a lookup is told to be over. */
struct embag_call {
    embag_done_fn on_done; /* NULL: the completion goes to the queue */
    void *context;         /* handed back */
};

/* Begins a lookup and returns at once. EMBAG_OK: *id (id may be NULL) is its number, above 0 and
 * never used again by this client, and exactly one completion follows, even before this returns,
 * unless the client is closed before it is taken.
 * Otherwise none does: INVALID_ARGUMENT (an array that is none); RESOURCE_EXHAUSTED (in_flight_max
 * lookups are under way or in the queue, or no memory); CANCELLED (the client is being closed).
 * `how` may be NULL: as if all of it were zero. */
enum embag_status embag_submit(struct embag_client *client, const struct embag_request *request,
    const struct embag_call *how, uint64_t *id, struct embag_error *error);

/* Withdraws a lookup, whose completion then says CANCELLED unless its answer was quicker. A number
 * that is none, or of a lookup that is over, changes nothing. */
void embag_cancel(struct embag_client *client, uint64_t id);

/* Takes the oldest completion from the queue, waiting at most timeout_us for one (0: not at all;
 * EMBAG_FOREVER). false: none came, or the client is being closed; *completion is as it was. */
bool embag_next(
    struct embag_client *client, uint64_t timeout_us, struct embag_completion *completion);

/* A descriptor that is readable while the queue is not empty: for poll and its like, not for read.
 * It is the client's until embag_close. Negative: there are no more descriptors. */
int embag_completion_fd(struct embag_client *client);

#ifdef __cplusplus
}
#endif
