/* Code of servers that move as many bytes as embagd but do not interpret them. They count received
 * bytes, and for each request they send one of several answers in memory, in turn. There are as
 * many answers in memory as requests in flight, as in a real server.
 *
 * Thread: one. Memory: heap, from init to deinit. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define EB_BENCH_ECHO_READ_BYTES ((size_t)256 << 10) /* bytes of one read, as in embagd */
#define EB_BENCH_ECHO_GATHER_MAX 64                  /* answers in one write */
#define EB_BENCH_ECHO_BACKLOG 128
/* Limit on the bytes of a request, on the bytes of an answer, and on the number of answers. */
#define EB_BENCH_ECHO_SIZE_MAX UINT32_MAX

struct eb_bench_echo_sizes {
    uint64_t request_bytes;
    uint64_t answer_bytes;
    uint64_t answer_count; /* number of answers in memory */
};

struct eb_bench_echo {
    struct eb_bench_echo_sizes sizes;
    uint8_t *answers; /* [answer_count * answer_bytes], every byte 1 until `make` writes it */
    uint8_t *in;      /* [EB_BENCH_ECHO_READ_BYTES]; received bytes are not kept */
    /* Writes an answer into its memory before it is sent; NULL: answers are sent unchanged. If set,
     * only one connection may be open at a time. */
    void (*make)(void *self, uint8_t *answer);
    void *self;
};

/* The bytes received and sent on one connection; initially zeroed. */
struct eb_bench_echo_flow {
    uint64_t unanswered_bytes; /* received bytes of an incomplete request */
    uint64_t owed_bytes;       /* bytes of answers that are still to be sent */
    uint64_t sent_bytes;
    uint64_t made_bytes; /* bytes of all answers that `make` has written so far */
};

/* Allocates and writes all memory, because untouched pages would all be the same zero page. Sizes
 * are 1 to EB_BENCH_ECHO_SIZE_MAX. Returns false after a message on stderr; *out may be
 * deinited. */
bool eb_bench_echo_init(struct eb_bench_echo *out, const struct eb_bench_echo_sizes *sizes);
/* Frees the memory. Accepts a zeroed struct. */
void eb_bench_echo_deinit(struct eb_bench_echo *echo);

/* Counts received bytes, and adds the answers to complete requests to the bytes owed. */
void eb_bench_echo_receive(
    const struct eb_bench_echo *echo, struct eb_bench_echo_flow *flow, uint64_t received_bytes);
/* Fills `out` with owed answers for one write, without using the memory of any answer twice, and
 * calls `make` for each of these answers that it has not written yet. Returns the number of pieces,
 * which is 0 only if no answer is owed. */
unsigned eb_bench_echo_gather(const struct eb_bench_echo *echo, struct eb_bench_echo_flow *flow,
    struct iovec out[EB_BENCH_ECHO_GATHER_MAX]);
/* Counts the bytes that the system accepted. */
void eb_bench_echo_send(struct eb_bench_echo_flow *flow, uint64_t sent_bytes);

/* Listens on a free port of loopback and prints event=listening with its address and event=ready
 * on stderr, as embagd does. Ignores SIGPIPE, so that a write to a closed connection fails instead
 * of ending the process. Returns the socket, or -1 after a message on stderr. */
int eb_bench_echo_listen(void);
/* Serves one connection after the other with blocking calls, which is the least work that any
 * server could do, until the process is killed. Returns if accept fails, after a message on
 * stderr. */
void eb_bench_echo_serve(const struct eb_bench_echo *echo, int listener);
