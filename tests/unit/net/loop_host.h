/* Loops on threads of their own with a tiny service, for tests over real sockets. Its methods:
 *   /t/Echo   answers every message with itself, ends OK with the request
 *   /t/Large  answers its one message, a number of 32 bits, with so many bytes, each its position's
 * Thread: the test's. Memory: freed by loop_host_stop. What fails outside the service fails the
 * test: so that no loop outlives its memory then, a host lies on the heap, and the teardown stops
 * it (loop_host_set_up, loop_host_tear_down). */
#pragma once

#include "server/net/loop.h"

#include <stdatomic.h>

#define LOOP_HOST_LOOPS 2

struct loop_host;

struct loop_host_word {
    struct eb_mail mail;
    struct loop_host *host;
};

struct loop_host {
    struct eb_loop_options options; /* for the test to change before loop_host_create */
    struct eb_loop *loops[LOOP_HOST_LOOPS];
    uv_loop_t uv; /* where the loops say that they have drained */
    struct eb_mailbox mailbox;
    struct loop_host_word words[LOOP_HOST_LOOPS];
    unsigned drained_count;
    bool is_created; /* and not stopped */
    bool is_stopping;
    bool is_draining;
    bool is_cut;
    atomic_uint opened_count; /* connections so far */
    atomic_uint closed_count;
    atomic_uint message_count;
    atomic_uint loop_states; /* service states open */
    bool lacks_memory;       /* the service's state of a loop cannot be made */
};

/* Only sets the options: limits and a turn that no test meets by accident, a tick of 10 ms. */
void loop_host_init(struct loop_host *host);
void loop_host_create(struct loop_host *host);
/* Listens at `text` on loop `number`; *bound is where. `shared` as for eb_loop_listen. */
void loop_host_listen(
    struct loop_host *host, unsigned number, const char *text, struct eb_address *bound);
void loop_host_start(struct loop_host *host);
/* All four in one: both loops listen on one port of the loopback address. */
void loop_host_serve(struct loop_host *host, struct eb_address *bound);

void loop_host_drain(struct loop_host *host);
void loop_host_cut(struct loop_host *host);
/* true: within `timeout_ms` every loop has said that it has drained. */
bool loop_host_wait_drained(struct loop_host *host, int timeout_ms);
/* Cuts what is left and ends everything. Does nothing where nothing is created, or the second time;
 * fails the test again where it has failed before. */
void loop_host_stop(struct loop_host *host);

/* For cmocka's setup: sets *state to a host on the heap, initialised. */
int loop_host_set_up(void **state);
/* Stops the host, if the test has not, and frees it. */
int loop_host_tear_down(void **state);

/* Calls `act` on the loop's thread and waits for its return. */
void loop_host_act(
    struct eb_loop *loop, void (*act)(struct eb_loop *loop, void *context), void *context);
/* Bytes taken from both pools of both loops. */
uint64_t loop_host_taken_bytes(struct loop_host *host);
/* 0 once stopped. */
uint64_t loop_host_conn_count(const struct loop_host *host);
/* true: within `timeout_ms` there are `count` connections. */
bool loop_host_wait_conns(const struct loop_host *host, uint64_t count, int timeout_ms);
