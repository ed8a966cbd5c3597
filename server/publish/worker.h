/* A background thread for jobs that take long: reading a repository, loading a version, freeing
 * one. It runs one job after the other, at the lowest priority once it has been told to give way.
 * Thread: start, post, give_way and stop on the owner's loop; the `run` of a job on the worker's
 * thread, its `done` on the owner's loop. Memory: a job belongs to its sender and must stay from
 * post until its `done` is called, which may free it. */
#pragma once

#include "proto/net/mailbox.h"

struct eb_worker;

/* A member of the sender's struct. */
struct eb_job {
    struct eb_mail mail;
    struct eb_worker *worker;
    void (*run)(struct eb_job *job);
    void (*done)(struct eb_job *job);
};

struct eb_worker {
    uv_loop_t uv; /* the thread's own loop */
    uv_thread_t thread;
    struct eb_mailbox jobs;
    struct eb_mailbox results; /* on the owner's loop */
    struct eb_mail give_way;
    struct eb_mail end;
    unsigned job_count; /* jobs that were posted and whose `done` has not been called */
};

/* Starts the thread. Returns 0, or a negative libuv code with nothing left behind. */
int eb_worker_start(struct eb_worker *worker, uv_loop_t *owner);
void eb_worker_post(struct eb_worker *worker, struct eb_job *job);
/* Lowers the priority of the jobs that are posted from now on. Called at most once. */
void eb_worker_give_way(struct eb_worker *worker);
/* Gives the calling thread the lowest priority, so that nearly everything else runs first. */
void eb_worker_lower_priority(void);
/* Ends the thread and waits for it. No job may be under way. The owner may free the worker once the
 * loop has run. */
void eb_worker_stop(struct eb_worker *worker);
