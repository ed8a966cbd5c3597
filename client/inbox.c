#include "client/inbox.h"

#include <assert.h>
#include <stddef.h>

static void on_wakeup(uv_async_t *wakeup)
{
    struct eb_inbox *inbox = wakeup->data;
    uv_mutex_lock(&inbox->lock);
    struct eb_letter *letter = inbox->first;
    inbox->first = NULL;
    inbox->last = NULL;
    uv_mutex_unlock(&inbox->lock);
    while (letter != NULL) {
        struct eb_letter *next = letter->next;
        letter->read(letter);
        letter = next;
    }
}

int eb_inbox_open(struct eb_inbox *inbox, uv_loop_t *loop)
{
    inbox->first = NULL;
    inbox->last = NULL;
    int rc = uv_mutex_init(&inbox->lock);
    if (rc != 0) {
        return rc;
    }
    rc = uv_async_init(loop, &inbox->wakeup, on_wakeup);
    if (rc != 0) {
        uv_mutex_destroy(&inbox->lock);
        return rc;
    }
    inbox->wakeup.data = inbox;
    return 0;
}

void eb_inbox_post(struct eb_inbox *inbox, struct eb_letter *letter)
{
    letter->next = NULL;
    uv_mutex_lock(&inbox->lock);
    if (inbox->first != NULL) {
        inbox->last->next = letter;
    } else {
        inbox->first = letter;
        /* Inside the lock, so that the handle cannot be closed between the two. */
        int rc = uv_async_send(&inbox->wakeup);
        assert(rc == 0);
    }
    inbox->last = letter;
    uv_mutex_unlock(&inbox->lock);
}

static void on_close(uv_handle_t *handle)
{
    struct eb_inbox *inbox = handle->data;
    uv_mutex_destroy(&inbox->lock);
}

void eb_inbox_close(struct eb_inbox *inbox)
{
    /* Waits for the sender whose letter has just been read to leave the lock. */
    uv_mutex_lock(&inbox->lock);
    assert(inbox->first == NULL);
    uv_mutex_unlock(&inbox->lock);
    uv_close((uv_handle_t *)&inbox->wakeup, on_close);
}
