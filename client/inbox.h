/* The one way from any thread to the client's own: a list of letters, read there in the order of
 * posting, with one wake-up for all that wait.
 * Thread: post from any; open, close and reading on the loop's. Memory: letters are their senders';
 * one is on its way from post until its read is called. */
#pragma once

#include <uv.h>

/* Part of whatever is sent. */
struct eb_letter {
    struct eb_letter *next;
    void (*read)(struct eb_letter *letter);
};

struct eb_inbox {
    uv_async_t wakeup;
    uv_mutex_t lock; /* of first and last */
    struct eb_letter *first;
    struct eb_letter *last;
};

/* 0, or a negative libuv code and nothing is open. */
int eb_inbox_open(struct eb_inbox *inbox, uv_loop_t *loop);
void eb_inbox_post(struct eb_inbox *inbox, struct eb_letter *letter);
/* Closes the handle. No letter is in it, nor will be. */
void eb_inbox_close(struct eb_inbox *inbox);
