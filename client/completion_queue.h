/* The queue of calls that are over and whose results wait to be taken, oldest first.
 * Thread: any. Memory: calls are linked, not copied. */
#pragma once

#include "client/calls.h"

struct eb_completion_queue {
    uv_mutex_t lock;
    uv_cond_t filled; /* a call has been pushed, or the queue is closed */
    struct eb_call *first;
    struct eb_call *last;
    uint32_t waiter_count;
    bool closed;
    int fd; /* readable while there is a call; negative until it is requested */
};

void eb_completion_queue_init(struct eb_completion_queue *queue);
/* The queue must be empty. */
void eb_completion_queue_deinit(struct eb_completion_queue *queue);

void eb_completion_queue_push(struct eb_completion_queue *queue, struct eb_call *call);
/* Returns the oldest call. Waits for one at most timeout_us, or without a limit if that is
 * EMBAG_FOREVER. Returns NULL if none came, or if the queue is closed. */
struct eb_call *eb_completion_queue_pop(struct eb_completion_queue *queue, uint64_t timeout_us);
/* Returns the descriptor, which is made on the first call. Returns a negative number if it cannot
 * be made. */
int eb_completion_queue_fd(struct eb_completion_queue *queue);
/* Closes the queue: present and later waiters get NULL at once. */
void eb_completion_queue_close(struct eb_completion_queue *queue);
/* Pops the oldest call without waiting, even from a closed queue. Returns NULL if there is none. */
struct eb_call *eb_completion_queue_drain(struct eb_completion_queue *queue);
