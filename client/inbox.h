/* The one way from any thread to the client's own: a list of letters, read there in the order of
 * posting, with one wake-up for all that wait. A letter that the reading thread posts itself wakes
 * nobody: that thread looks before it sleeps.
 * Thread: post from any; open, close and reading on the loop's. Memory: letters are their senders';
 * one is on its way from post until its read is called. */
#pragma once

#include <stdbool.h>
#include <uv.h>

/* Part of whatever is sent. */
struct eb_letter {
    struct eb_letter *next;
    void (*read)(struct eb_letter *letter);
};

struct eb_inbox {
    uv_async_t wakeup;
    uv_mutex_t lock; /* of all below */
    uv_thread_t reader;
    bool has_reader;
    struct eb_letter *first;
    struct eb_letter *last;
};

/* 0, or a negative libuv code and nothing is open. */
int eb_inbox_open(struct eb_inbox *inbox, uv_loop_t *loop);
/* This thread, the loop's, reads the inbox until it is empty before it sleeps. */
void eb_inbox_set_reader(struct eb_inbox *inbox);
void eb_inbox_post(struct eb_inbox *inbox, struct eb_letter *letter);
/* Reads what has come so far, as waking up does. */
void eb_inbox_read(struct eb_inbox *inbox);
bool eb_inbox_is_empty(struct eb_inbox *inbox);
/* Closes the handle. No letter is in it, nor will be. */
void eb_inbox_close(struct eb_inbox *inbox);
