#include "proto/net/mailbox.h"

#include <assert.h>
#include <stddef.h>

void eb_mailbox_deliver(struct eb_mailbox *mailbox)
{
    uv_mutex_lock(&mailbox->lock);
    struct eb_mail *mail = mailbox->first;
    mailbox->first = NULL;
    mailbox->last = NULL;
    uv_mutex_unlock(&mailbox->lock);
    if (mail && mailbox->on_delivery) {
        mailbox->on_delivery(mailbox);
    }
    while (mail) {
        struct eb_mail *next = mail->next;
        mail->deliver(mail);
        mail = next;
    }
}

static void on_mailbox_wakeup(uv_async_t *wakeup)
{
    eb_mailbox_deliver(wakeup->data);
}

int eb_mailbox_open(struct eb_mailbox *mailbox, uv_loop_t *loop)
{
    *mailbox = (struct eb_mailbox){0};
    int rc = uv_mutex_init(&mailbox->lock);
    if (rc < 0) {
        return rc;
    }
    rc = uv_async_init(loop, &mailbox->wakeup, on_mailbox_wakeup);
    if (rc < 0) {
        uv_mutex_destroy(&mailbox->lock);
        return rc;
    }
    mailbox->wakeup.data = mailbox;
    return 0;
}

void eb_mailbox_set_reader(struct eb_mailbox *mailbox)
{
    uv_mutex_lock(&mailbox->lock);
    mailbox->reader = uv_thread_self();
    mailbox->has_reader = true;
    uv_mutex_unlock(&mailbox->lock);
}

static bool is_reader(const struct eb_mailbox *mailbox)
{
    if (!mailbox->has_reader) {
        return false;
    }
    uv_thread_t self = uv_thread_self();
    return uv_thread_equal(&self, &mailbox->reader) != 0;
}

void eb_mailbox_post(struct eb_mailbox *mailbox, struct eb_mail *mail)
{
    mail->next = NULL;
    uv_mutex_lock(&mailbox->lock);
    bool was_empty = !mailbox->first;
    if (was_empty) {
        mailbox->first = mail;
    } else {
        mailbox->last->next = mail;
    }
    mailbox->last = mail;
    /* Called with the lock held, so that the handle cannot be closed between the append and the
     * send. */
    if (was_empty && !is_reader(mailbox)) {
        int rc = uv_async_send(&mailbox->wakeup);
        assert(rc == 0);
    }
    uv_mutex_unlock(&mailbox->lock);
}

bool eb_mailbox_is_empty(struct eb_mailbox *mailbox)
{
    uv_mutex_lock(&mailbox->lock);
    bool is_empty = !mailbox->first;
    uv_mutex_unlock(&mailbox->lock);
    return is_empty;
}

static void on_mailbox_closed(uv_handle_t *handle)
{
    struct eb_mailbox *mailbox = handle->data;
    uv_mutex_destroy(&mailbox->lock);
}

void eb_mailbox_close(struct eb_mailbox *mailbox)
{
    eb_mailbox_deliver(mailbox);
    uv_close((uv_handle_t *)&mailbox->wakeup, on_mailbox_closed);
}
