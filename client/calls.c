#include "client/calls.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The low bits of a call's number are the index of its record, the high bits are its generation. */
#define INDEX_BITS 16
#define INDEX_MASK ((UINT64_C(1) << INDEX_BITS) - 1)
/* Each thread adds INSIDE_ONE to `inside`; closing sets the bit INSIDE_AWAITED while it waits. */
#define INSIDE_ONE 2U
#define INSIDE_AWAITED 1U

bool eb_calls_init(struct eb_calls *calls, uint32_t count)
{
    assert(count > 0 && count - 1 <= INDEX_MASK);
    *calls = (struct eb_calls){.count = count, .generation = 1};
    calls->records = calloc(count, sizeof *calls->records);
    if (!calls->records) {
        return false;
    }
    for (uint32_t i = count; i > 0; i--) {
        calls->records[i - 1].next = calls->free;
        calls->free = &calls->records[i - 1];
    }
    int rc = uv_mutex_init(&calls->lock);
    assert(rc == 0);
    rc = uv_cond_init(&calls->changed);
    assert(rc == 0);
    rc = uv_sem_init(&calls->left, 0);
    assert(rc == 0);
    return true;
}

void eb_calls_deinit(struct eb_calls *calls)
{
    if (!calls->records) {
        return;
    }
    uv_sem_destroy(&calls->left);
    uv_cond_destroy(&calls->changed);
    uv_mutex_destroy(&calls->lock);
    free(calls->records);
}

/* Waits until there is a free record, the table is closed, or the deadline has passed. */
static void await_free(struct eb_calls *calls, uint64_t deadline_ns)
{
    for (uint64_t now_ns = uv_hrtime(); !calls->free && !calls->closed && now_ns < deadline_ns;
         now_ns = uv_hrtime()) {
        (void)uv_cond_timedwait(&calls->changed, &calls->lock, deadline_ns - now_ns);
    }
}

static void explain_call(const struct eb_calls *calls, bool waited, struct eb_error *error)
{
    if (calls->closed) {
        eb_error_set(error, EB_STATUS_CANCELLED, "the client is being closed");
    } else if (waited) {
        eb_error_set(error, EB_STATUS_DEADLINE_EXCEEDED,
            "no call was free before the deadline: other threads' calls used them all");
    } else {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "all %u calls (in_flight_max) are in flight, or completed and not yet taken",
            calls->count);
    }
}

struct eb_call *eb_calls_take(struct eb_calls *calls, uint64_t deadline_ns, struct eb_error *error)
{
    uv_mutex_lock(&calls->lock);
    if (!calls->free && deadline_ns > 0) {
        await_free(calls, deadline_ns);
    }
    struct eb_call *call = calls->closed ? NULL : calls->free;
    if (!call) {
        explain_call(calls, deadline_ns > 0, error);
    } else {
        calls->free = call->next;
        /* The error's text is large, so only its first byte is cleared. */
        memset(call, 0, offsetof(struct eb_call, error));
        call->error.status = EB_STATUS_OK;
        call->error.text[0] = '\0';
        call->id = calls->generation++ << INDEX_BITS | (uint64_t)(call - calls->records);
    }
    uv_mutex_unlock(&calls->lock);
    return call;
}

static void put_free(struct eb_calls *calls, struct eb_call *call)
{
    call->next = calls->free;
    calls->free = call;
    uv_cond_signal(&calls->changed);
}

void eb_calls_give(struct eb_calls *calls, struct eb_call *call)
{
    uv_mutex_lock(&calls->lock);
    assert(call->id != 0);
    call->id = 0;
    call->given_back = call->cancel_posted;
    if (!call->cancel_posted) {
        put_free(calls, call);
    }
    uv_mutex_unlock(&calls->lock);
}

bool eb_calls_post(struct eb_calls *calls, struct eb_mailbox *mailbox, struct eb_mail *mail)
{
    uv_mutex_lock(&calls->lock);
    bool open = !calls->closed;
    if (open) {
        eb_mailbox_post(mailbox, mail);
    }
    uv_mutex_unlock(&calls->lock);
    return open;
}

static struct eb_call *find_call_by_id(const struct eb_calls *calls, uint64_t id)
{
    uint64_t index = id & INDEX_MASK;
    bool found = id != 0 && index < calls->count && calls->records[index].id == id;
    return found ? &calls->records[index] : NULL;
}

void eb_calls_post_cancel(struct eb_calls *calls, struct eb_mailbox *mailbox, uint64_t id)
{
    uv_mutex_lock(&calls->lock);
    struct eb_call *call = find_call_by_id(calls, id);
    if (call && !call->cancel_posted && !calls->closed) {
        call->cancel_posted = true;
        eb_mailbox_post(mailbox, &call->cancel);
    }
    uv_mutex_unlock(&calls->lock);
}

bool eb_calls_on_cancel(struct eb_calls *calls, struct eb_call *call)
{
    uv_mutex_lock(&calls->lock);
    bool meant = !call->given_back;
    call->cancel_posted = false;
    if (!meant) {
        put_free(calls, call);
    }
    uv_mutex_unlock(&calls->lock);
    return meant;
}

struct eb_call *eb_calls_find(struct eb_calls *calls, uint64_t id)
{
    uv_mutex_lock(&calls->lock);
    struct eb_call *call = find_call_by_id(calls, id);
    uv_mutex_unlock(&calls->lock);
    return call;
}

void eb_calls_enter(struct eb_calls *calls)
{
    atomic_fetch_add(&calls->inside, INSIDE_ONE);
}

void eb_calls_leave(struct eb_calls *calls)
{
    /* Once this thread is no longer counted, the table may be freed, unless closing waits for this
     * thread. */
    if (atomic_fetch_sub(&calls->inside, INSIDE_ONE) == (INSIDE_ONE | INSIDE_AWAITED)) {
        uv_sem_post(&calls->left);
    }
}

void eb_calls_close(struct eb_calls *calls)
{
    uv_mutex_lock(&calls->lock);
    calls->closed = true;
    uv_cond_broadcast(&calls->changed);
    uv_mutex_unlock(&calls->lock);
}

void eb_calls_await_leaving(struct eb_calls *calls)
{
    if (atomic_fetch_or(&calls->inside, INSIDE_AWAITED) > 0) {
        uv_sem_wait(&calls->left);
    }
}
