/* What servers share that move as many bytes as embagd does and read nothing of them: what has
 * come is counted, and for each request one of some answers is sent that lie in memory, each in its
 * own place and in its turn: as many as are in flight, since a server's answers lie nowhere else
 * either.
 *
 * Thread: one. Memory: heap, from init to deinit. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define EB_BENCH_ECHO_READ_BYTES ((size_t)256 << 10) /* of one read, as embagd's */
#define EB_BENCH_ECHO_GATHER_MAX 64                  /* answers of one write */
#define EB_BENCH_ECHO_BACKLOG 128
/* Most bytes of an answer, and most answers. */
#define EB_BENCH_ECHO_SIZE_MAX UINT32_MAX

struct eb_bench_echo_sizes {
    uint64_t request_bytes;
    uint64_t answer_bytes;
    uint64_t answer_count; /* in memory */
};

struct eb_bench_echo {
    struct eb_bench_echo_sizes sizes;
    uint8_t *answers; /* [answer_count * answer_bytes], each 1 until it is made otherwise */
    uint8_t *in;      /* [EB_BENCH_ECHO_READ_BYTES]; what is read is not kept */
    /* Makes an answer in its place before it is sent; NULL: they are sent as they lie. Where there
     * is one, there is one connection at a time. */
    void (*make)(void *self, uint8_t *answer);
    void *self;
};

/* What has come and gone on one connection; begins zeroed. */
struct eb_bench_echo_flow {
    uint64_t unanswered_bytes; /* received, not a whole request yet */
    uint64_t owed_bytes;       /* to be sent */
    uint64_t sent_bytes;
    uint64_t made_bytes; /* of all answers so far: those that were sent, or are about to be */
};

/* Sizes are 1 to EB_BENCH_ECHO_SIZE_MAX. All memory is written once: what was only asked for is all
 * one page. false: said on stderr why not; *out may be deinited. */
bool eb_bench_echo_init(struct eb_bench_echo *out, const struct eb_bench_echo_sizes *sizes);
/* Accepts a zeroed one. */
void eb_bench_echo_deinit(struct eb_bench_echo *echo);

/* Counts what has come, and owes the answers to it. */
void eb_bench_echo_receive(
    const struct eb_bench_echo *echo, struct eb_bench_echo_flow *flow, uint64_t received_bytes);
/* What one write takes of the answers that are owed, made where they have not been: never one place
 * twice. Returns how many pieces there are, 0 only where nothing is owed. */
unsigned eb_bench_echo_gather(const struct eb_bench_echo *echo, struct eb_bench_echo_flow *flow,
    struct iovec out[EB_BENCH_ECHO_GATHER_MAX]);
/* Counts what the system took of them. */
void eb_bench_echo_send(struct eb_bench_echo_flow *flow, uint64_t sent_bytes);

/* Listens on a free port of loopback and says event=listening with its address and event=ready on
 * stderr, as embagd does. From then on a peer that is gone is an error of writing, not a signal
 * that ends the process. -1: said on stderr why not. */
int eb_bench_echo_listen(void);
/* Serves one connection after the other with blocking calls, the least that any server could do,
 * until the process is killed. Returns where there can be no more: said on stderr why. */
void eb_bench_echo_serve(const struct eb_bench_echo *echo, int listener);
