#include "proto/net/mailbox.h"

#include <assert.h>
#include <stddef.h>

static void deliver_all(struct eb_mailbox *mailbox)
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
    deliver_all(wakeup->data);
}

int eb_mailbox_open(struct eb_mailbox *mailbox, uv_loop_t *loop)
{
    *mailbox = (struct eb_mailbox){0};
    int code = uv_mutex_init(&mailbox->lock);
    if (code < 0) {
        return code;
    }
    code = uv_async_init(loop, &mailbox->wakeup, on_mailbox_wakeup);
    if (code < 0) {
        uv_mutex_destroy(&mailbox->lock);
        return code;
    }
    mailbox->wakeup.data = mailbox;
    return 0;
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
    /* Inside the lock, so that the handle cannot be closed between the append and the send. */
    if (was_empty) {
        int code = uv_async_send(&mailbox->wakeup);
        assert(code == 0);
        (void)code;
    }
    uv_mutex_unlock(&mailbox->lock);
}

static void on_mailbox_closed(uv_handle_t *handle)
{
    struct eb_mailbox *mailbox = handle->data;
    uv_mutex_destroy(&mailbox->lock);
}

void eb_mailbox_close(struct eb_mailbox *mailbox)
{
    deliver_all(mailbox);
    uv_close((uv_handle_t *)&mailbox->wakeup, on_mailbox_closed);
}
