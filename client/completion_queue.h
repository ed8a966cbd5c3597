/* Calls that are over and wait for somebody to take their results, oldest first.
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
    int fd; /* readable while there is a call; negative: nobody has asked for it */
};

void eb_completion_queue_init(struct eb_completion_queue *queue);
/* The queue is empty. */
void eb_completion_queue_deinit(struct eb_completion_queue *queue);

void eb_completion_queue_push(struct eb_completion_queue *queue, struct eb_call *call);
/* Waits for a call at most timeout_us (EMBAG_FOREVER: without end). NULL: none came, or the queue
 * is closed. */
struct eb_call *eb_completion_queue_pop(struct eb_completion_queue *queue, uint64_t timeout_us);
/* Makes the descriptor at the first call. Negative: it cannot be made. */
int eb_completion_queue_fd(struct eb_completion_queue *queue);
/* Sends those away that wait, and those to come. */
void eb_completion_queue_close(struct eb_completion_queue *queue);
/* Pops without waiting, even from a closed queue. */
struct eb_call *eb_completion_queue_drain(struct eb_completion_queue *queue);
