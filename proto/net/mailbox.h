/* The one way to send something from any thread to a libuv loop: a list of mails, delivered on the
 * loop's thread. One wake-up serves all waiting mails.
 * Thread: post from any; everything else on the loop's. Memory: a mail belongs to its sender. The
 * mail is in the mailbox from eb_mailbox_post until its `deliver` is called, which may free the
 * mail. */
#pragma once

#include <stdbool.h>
#include <uv.h>

/* A member of the struct that is sent. */
struct eb_mail {
    struct eb_mail *next;
    /* Called on the loop's thread, once per post, in the order of posting. */
    void (*deliver)(struct eb_mail *mail);
};

struct eb_mailbox {
    uv_async_t wakeup;
    uv_mutex_t lock;       /* guards the members below, up to on_delivery */
    struct eb_mail *first; /* the oldest mail that is not delivered */
    struct eb_mail *last;
    uv_thread_t reader; /* valid if has_reader is set */
    bool has_reader;
    /* Called before mails are delivered. May be set once the mailbox is open. May be NULL. */
    void (*on_delivery)(struct eb_mailbox *mailbox);
};

/* Returns 0. On failure returns a negative libuv code, and nothing is open. */
int eb_mailbox_open(struct eb_mailbox *mailbox, uv_loop_t *loop);
/* Sends a mail, which must stay in place until it is delivered. Any thread. */
void eb_mailbox_post(struct eb_mailbox *mailbox, struct eb_mail *mail);
/* Delivers the waiting mails, then closes the libuv handle. Nothing may be posted any more. The
 * mailbox must stay in place until the loop has run the handle's close callback. */
void eb_mailbox_close(struct eb_mailbox *mailbox);

/* Declares that the calling thread is the loop's, and that it delivers mails until the mailbox is
 * empty each time before the loop sleeps. From then on, mails that this thread posts do not wake
 * the loop, which saves a system call and a round of the loop for each. */
void eb_mailbox_set_reader(struct eb_mailbox *mailbox);
/* Delivers the mails posted so far, as a wake-up does. */
void eb_mailbox_deliver(struct eb_mailbox *mailbox);
/* Returns whether the mailbox has no waiting mails. */
bool eb_mailbox_is_empty(struct eb_mailbox *mailbox);
