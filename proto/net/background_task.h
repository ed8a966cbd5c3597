/* Runs a function on a separate thread, and then another one on a loop, so that waiting for a file
 * system delays nothing else. The thread exists only while the first function runs.
 * Thread: the loop's; `run` is called on the task's own. Memory: only the struct. */
#pragma once

#include "proto/net/mailbox.h"

struct eb_background_task {
    /* Called on the task's thread, which blocks the same signals as the loop's thread. */
    void (*run)(struct eb_background_task *task);
    /* Called on the loop's thread each time `run` has returned. */
    void (*done)(struct eb_background_task *task);
    /* Private. */
    struct eb_mailbox mailbox;
    struct eb_mail over; /* from the thread: `run` has returned */
    uv_thread_t thread;
    bool is_running;
    bool is_closing;
};

/* Returns 0, or a negative libuv code with nothing open. The owner has set `run` and `done`, and
 * has zeroed the other members. */
int eb_background_task_open(struct eb_background_task *task, uv_loop_t *loop);
/* Starts a task that is not running. Returns false if no thread can be created for it. */
bool eb_background_task_start(struct eb_background_task *task);
/* Closes the task. If it is running, `done` is still called when `run` has returned, and the handle
 * is closed after that. The struct must stay valid until the loop has closed the handle. */
void eb_background_task_close(struct eb_background_task *task);
