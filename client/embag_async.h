/* embag: lookups that do not block. Many can be in flight at once, from any thread, over the
 * connections of one client (embag.h). client/examples/submit_example.c is a complete program.
 *
 * Each lookup chooses how its end is reported:
 * - With on_done, by a callback on the client's thread. Nothing is faster, because no thread has to
 *   wake up. The callback must be short and must not block, because it holds up every other answer.
 *   It may submit and cancel.
 * - Without on_done, by a completion in the client's queue, from which any number of threads may
 *   take (embag_next). Use this for work that takes time or blocks, and, with embag_completion_fd,
 *   for a program's own event loop.
 * A program may use both: the work that an answer causes decides which is right.
 *
 * Retries. Lookups change nothing, so sending one twice is safe. A lookup is sent again at most
 * retries_max times, and only if its deadline leaves the time. With several servers it goes to
 * another one at once (embag_servers.h). Otherwise:
 * - After UNAVAILABLE or a lost connection, after a pause that doubles from 10 ms to 1 s and is
 *   shortened at random, so that clients do not come back all at once.
 * - After RESOURCE_EXHAUSTED, if the server named a time (grpc-retry-pushback-ms or
 *   retry_after_ms), after that time. Otherwise RESOURCE_EXHAUSTED is final.
 * Lost connections are opened again after a pause too. The first one takes at most 10 ms, or 0.5 s
 * while other servers take the lookups.
 *
 * An error that ends a whole stream, such as an answer larger than answer_bytes_max, may have been
 * caused by any lookup on it. Each lookup that was on the stream is sent once more, as a unary
 * call, which counts as an attempt.
 *
 * Overload. A connection has only as many lookups in flight as are answered soon enough. Further
 * ones wait in the client, and so do lookups while many bytes wait to be written. Waiting lookups
 * are sent oldest first. If the oldest would likely be answered too late, they are sent newest
 * first: then a server that gets more lookups than it can answer still answers as many as it can in
 * time. The others end with DEADLINE_EXCEEDED without having cost the server anything (attempts is
 * 0). Interactive lookups go before batch ones.
 *
 * Batch priority has a limit that the client does not know. For one connection a server works on at
 * most half of its in_flight_max (half is 128 by default), and on fewer if they are large. It
 * refuses more ("too many requests of batch priority wait on this connection") and names a time
 * to try again. A lookup whose retries are all refused ends with RESOURCE_EXHAUSTED, long before
 * its deadline. So have at most 128 batch lookups in flight for each of the client's connections:
 * submit fewer at a time, or open the client with more connections.
 *
 * Thread: any. Memory: a request is copied before embag_submit returns; a completion's answer
 * belongs to its taker. Once the client has warmed up it allocates only answers and what nghttp2
 * takes: little for each unary call, next to nothing on streams. */
#pragma once

#include "embag.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMBAG_FOREVER UINT64_MAX

/* The outcome of one lookup. */
struct embag_completion {
    uint64_t id;   /* number that embag_submit returned */
    void *context; /* context from the lookup's embag_call */
    /* Checked against the request (see embag_lookup). The taker frees it. NULL unless error.status
     * is EMBAG_OK. */
    struct embag_answer *answer;
    struct embag_error error; /* text is empty if status is EMBAG_OK */
    uint32_t attempts;        /* times it was sent, or no connection could be opened for it */
    uint32_t retry_after_ms;  /* pause that the server asks for; 0: none; UINT32_MAX: never retry */
};

/* Called on the client's thread. The completion is borrowed for the call, its answer is not. */
typedef void (*embag_done_fn)(const struct embag_completion *completion);

/* How the end of a lookup is reported. */
struct embag_call {
    embag_done_fn on_done; /* NULL: the completion goes to the queue */
    void *context;         /* passed back in the completion */
};

/* Begins a lookup and returns at once. EMBAG_OK: *id (id may be NULL) is the lookup's number, above
 * 0 and never used again by this client. Exactly one completion follows, perhaps even before this
 * returns, unless the client is closed before the completion is taken.
 * Any other result means that no completion follows: INVALID_ARGUMENT (an array is invalid);
 * RESOURCE_EXHAUSTED (in_flight_max lookups are in flight or in the queue, or out of memory);
 * CANCELLED (the client is being closed). `how` may be NULL: the same as all zeroes. */
enum embag_status embag_submit(struct embag_client *client, const struct embag_request *request,
    const struct embag_call *how, uint64_t *id, struct embag_error *error);

/* Withdraws a lookup. Its completion then has the status CANCELLED, unless its answer came first.
 * Does nothing if no lookup has this number, or if it is over. */
void embag_cancel(struct embag_client *client, uint64_t id);

/* Takes the oldest completion from the queue. Waits for one at most timeout_us: not at all if that
 * is 0, without a limit if it is EMBAG_FOREVER. Returns false, leaving *completion as it was, if
 * none came or the client is being closed. */
bool embag_next(
    struct embag_client *client, uint64_t timeout_us, struct embag_completion *completion);

/* Returns a descriptor that is readable while the queue is not empty. Use it with poll and the
 * like, but do not read from it. It belongs to the client and is valid until embag_close. Returns a
 * negative number if there are no more descriptors. */
int embag_completion_fd(struct embag_client *client);

#ifdef __cplusplus
}
#endif
