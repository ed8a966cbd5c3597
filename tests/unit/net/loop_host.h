/* Loops on their own threads with a tiny service, for tests over real sockets. Its methods:
 *   /t/Echo   echoes every message, ends with OK when the request ends
 *   /t/Large  expects one 32-bit number n, answers with n bytes whose byte i is (uint8_t)i
 * Thread: the test's. Memory: freed by loop_host_stop. A failure outside the service fails the
 * test. A host lies on the heap and the teardown stops it (loop_host_set_up, loop_host_tear_down),
 * so that no loop outlives the memory of its host when a test fails. */
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
    struct eb_loop_options options; /* the test may change these before loop_host_create */
    struct eb_loop *loops[LOOP_HOST_LOOPS];
    uv_loop_t uv; /* where the loops report that they have drained */
    struct eb_mailbox mailbox;
    struct loop_host_word words[LOOP_HOST_LOOPS];
    unsigned drained_count;
    bool is_created; /* created, and not stopped yet */
    bool is_stopping;
    bool is_draining;
    bool is_cut;
    atomic_uint opened_count; /* connections opened so far */
    atomic_uint closed_count;
    atomic_uint message_count;
    atomic_uint loop_states; /* open service states */
    bool lacks_memory;       /* makes the creation of a loop's service state fail */
};

/* Only sets the options: limits and a time slice that no test reaches by accident, and a tick of 10
 * ms. */
void loop_host_init(struct loop_host *host);
void loop_host_create(struct loop_host *host);
/* Listens at `text` on loop `number`. Sets *bound to the actual address. */
void loop_host_listen(
    struct loop_host *host, unsigned number, const char *text, struct eb_address *bound);
void loop_host_start(struct loop_host *host);
/* Creates the loops, lets both listen on the same port of the loopback address, and starts them. */
void loop_host_serve(struct loop_host *host, struct eb_address *bound);

void loop_host_drain(struct loop_host *host);
void loop_host_cut(struct loop_host *host);
/* Returns whether every loop has reported within `timeout_ms` that it has drained. */
bool loop_host_wait_drained(struct loop_host *host, int timeout_ms);
/* Cuts the remaining connections and ends everything. Does nothing if nothing was created, or if
 * called a second time. If an earlier stop has failed the test, fails it again. */
void loop_host_stop(struct loop_host *host);

/* For cmocka's setup: sets *state to an initialised host on the heap. */
int loop_host_set_up(void **state);
/* Stops the host if the test has not done so, and frees it. */
int loop_host_tear_down(void **state);

/* Calls `act` on the loop's thread and waits for its return. */
void loop_host_act(
    struct eb_loop *loop, void (*act)(struct eb_loop *loop, void *context), void *context);
/* Returns the bytes taken from both pools of both loops. */
uint64_t loop_host_taken_bytes(struct loop_host *host);
/* Returns the number of connections; 0 once stopped. */
uint64_t loop_host_conn_count(const struct loop_host *host);
/* Returns whether there were `count` connections within `timeout_ms`. */
bool loop_host_wait_conns(const struct loop_host *host, uint64_t count, int timeout_ms);
