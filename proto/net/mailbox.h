/* The one way from any thread to a libuv loop: a list of mails, delivered on the loop's thread.
 * Thread: post from any; open, close and delivery on the loop's. Memory: mails are their senders';
 * one is on its way from post until its deliver is called, which may free it. */
#pragma once

#include <stdbool.h>
#include <uv.h>

/* Part of whatever is sent. */
struct eb_mail {
    struct eb_mail *next;
    /* Called on the loop's thread, once per post, in the order of posting. */
    void (*deliver)(struct eb_mail *mail);
};

struct eb_mailbox {
    uv_async_t wakeup;
    uv_mutex_t lock;
    struct eb_mail *first; /* guarded by lock */
    struct eb_mail *last;  /* guarded by lock */
    /* Called before mails are delivered; may be set when the mailbox is open. NULL: nobody asks. */
    void (*on_delivery)(struct eb_mailbox *mailbox);
};

/* 0, or a negative libuv code and nothing is open. */
int eb_mailbox_open(struct eb_mailbox *mailbox, uv_loop_t *loop);
void eb_mailbox_post(struct eb_mailbox *mailbox, struct eb_mail *mail);
/* Delivers what is there, then closes the handle; nothing may be posted from now on. */
void eb_mailbox_close(struct eb_mailbox *mailbox);
