#include "client/inbox.h"

#include <assert.h>
#include <stddef.h>

void eb_inbox_read(struct eb_inbox *inbox)
{
    uv_mutex_lock(&inbox->lock);
    struct eb_letter *letter = inbox->first;
    inbox->first = NULL;
    inbox->last = NULL;
    uv_mutex_unlock(&inbox->lock);
    while (letter) {
        struct eb_letter *next = letter->next;
        letter->read(letter);
        letter = next;
    }
}

static void on_inbox_wakeup(uv_async_t *wakeup)
{
    eb_inbox_read(wakeup->data);
}

int eb_inbox_open(struct eb_inbox *inbox, uv_loop_t *loop)
{
    inbox->first = NULL;
    inbox->last = NULL;
    inbox->has_reader = false;
    int rc = uv_mutex_init(&inbox->lock);
    if (rc != 0) {
        return rc;
    }
    rc = uv_async_init(loop, &inbox->wakeup, on_inbox_wakeup);
    if (rc != 0) {
        uv_mutex_destroy(&inbox->lock);
        return rc;
    }
    inbox->wakeup.data = inbox;
    return 0;
}

void eb_inbox_set_reader(struct eb_inbox *inbox)
{
    uv_mutex_lock(&inbox->lock);
    inbox->reader = uv_thread_self();
    inbox->has_reader = true;
    uv_mutex_unlock(&inbox->lock);
}

static bool is_reader(const struct eb_inbox *inbox)
{
    uv_thread_t self = uv_thread_self();
    return inbox->has_reader && uv_thread_equal(&self, &inbox->reader) != 0;
}

void eb_inbox_post(struct eb_inbox *inbox, struct eb_letter *letter)
{
    letter->next = NULL;
    uv_mutex_lock(&inbox->lock);
    if (inbox->first) {
        inbox->last->next = letter;
    } else {
        inbox->first = letter;
        if (!is_reader(inbox)) {
            /* Inside the lock, so that the handle cannot be closed between the two. */
            int rc = uv_async_send(&inbox->wakeup);
            assert(rc == 0);
        }
    }
    inbox->last = letter;
    uv_mutex_unlock(&inbox->lock);
}

bool eb_inbox_is_empty(struct eb_inbox *inbox)
{
    uv_mutex_lock(&inbox->lock);
    bool is_empty = !inbox->first;
    uv_mutex_unlock(&inbox->lock);
    return is_empty;
}

static void on_inbox_close(uv_handle_t *handle)
{
    struct eb_inbox *inbox = handle->data;
    uv_mutex_destroy(&inbox->lock);
}

void eb_inbox_close(struct eb_inbox *inbox)
{
    /* Waits for the sender whose letter has just been read to leave the lock. */
    uv_mutex_lock(&inbox->lock);
    assert(!inbox->first);
    uv_mutex_unlock(&inbox->lock);
    uv_close((uv_handle_t *)&inbox->wakeup, on_inbox_close);
}
