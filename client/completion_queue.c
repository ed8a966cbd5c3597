#include "client/completion_queue.h"

#include <assert.h>
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NS_PER_US 1000

void eb_completion_queue_init(struct eb_completion_queue *queue)
{
    *queue = (struct eb_completion_queue){.fd = -1};
    int rc = uv_mutex_init(&queue->lock);
    assert(rc == 0);
    rc = uv_cond_init(&queue->filled);
    assert(rc == 0);
}

void eb_completion_queue_deinit(struct eb_completion_queue *queue)
{
    assert(!queue->first);
    if (queue->fd >= 0) {
        (void)close(queue->fd);
    }
    uv_cond_destroy(&queue->filled);
    uv_mutex_destroy(&queue->lock);
}

/* Makes the descriptor readable or unreadable. */
static void show(const struct eb_completion_queue *queue, bool readable)
{
    if (queue->fd < 0) {
        return;
    }
    eventfd_t value = 1;
    int rc = 0;
    do {
        rc = readable ? eventfd_write(queue->fd, value) : eventfd_read(queue->fd, &value);
    } while (rc != 0 && errno == EINTR);
    /* EAGAIN means that the program has read from the descriptor, which it must not do. */
    assert(rc == 0 || errno == EAGAIN);
}

void eb_completion_queue_push(struct eb_completion_queue *queue, struct eb_call *call)
{
    call->next = NULL;
    uv_mutex_lock(&queue->lock);
    if (queue->first) {
        queue->last->next = call;
    } else {
        queue->first = call;
        show(queue, true);
    }
    queue->last = call;
    if (queue->waiter_count > 0) {
        uv_cond_signal(&queue->filled);
    }
    uv_mutex_unlock(&queue->lock);
}

/* Takes the oldest call. The caller holds the lock. */
static struct eb_call *take_completion_first(struct eb_completion_queue *queue)
{
    struct eb_call *call = queue->first;
    if (call) {
        queue->first = call->next;
        if (!queue->first) {
            show(queue, false);
        }
    }
    return call;
}

/* Waits for a call. The caller holds the lock. */
static void await_call(struct eb_completion_queue *queue, uint64_t timeout_us)
{
    uint64_t now_ns = uv_hrtime();
    bool endless = timeout_us > (UINT64_MAX - now_ns) / NS_PER_US;
    uint64_t deadline_ns = endless ? UINT64_MAX : now_ns + timeout_us * NS_PER_US;
    queue->waiter_count++;
    while (!queue->first && !queue->closed && now_ns < deadline_ns) {
        if (endless) {
            uv_cond_wait(&queue->filled, &queue->lock);
        } else {
            (void)uv_cond_timedwait(&queue->filled, &queue->lock, deadline_ns - now_ns);
        }
        now_ns = uv_hrtime();
    }
    queue->waiter_count--;
}

struct eb_call *eb_completion_queue_pop(struct eb_completion_queue *queue, uint64_t timeout_us)
{
    uv_mutex_lock(&queue->lock);
    if (timeout_us > 0) {
        await_call(queue, timeout_us);
    }
    struct eb_call *call = queue->closed ? NULL : take_completion_first(queue);
    uv_mutex_unlock(&queue->lock);
    return call;
}

int eb_completion_queue_fd(struct eb_completion_queue *queue)
{
    uv_mutex_lock(&queue->lock);
    if (queue->fd < 0) {
        queue->fd = eventfd(queue->first ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    int fd = queue->fd;
    uv_mutex_unlock(&queue->lock);
    return fd;
}

void eb_completion_queue_close(struct eb_completion_queue *queue)
{
    uv_mutex_lock(&queue->lock);
    queue->closed = true;
    uv_cond_broadcast(&queue->filled);
    uv_mutex_unlock(&queue->lock);
}

struct eb_call *eb_completion_queue_drain(struct eb_completion_queue *queue)
{
    uv_mutex_lock(&queue->lock);
    struct eb_call *call = take_completion_first(queue);
    uv_mutex_unlock(&queue->lock);
    return call;
}
