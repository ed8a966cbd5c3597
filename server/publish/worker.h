/* A background thread: it does one job after the other, of those that take long (reading a
 * repository, loading a version, freeing one), and tells the thread that asked. Once there is
 * something to give way to, it does its jobs at the lowest priority. Thread: start, post and stop
 * on the owner's loop; a job's run on the worker, its done on the owner's loop. Memory: jobs are
 * their senders'; one is on its way from post until its done is called, which may free it. */
#pragma once

#include "proto/net/mailbox.h"

struct eb_worker;

/* Part of whatever is to be done. */
struct eb_job {
    struct eb_mail mail;
    struct eb_worker *worker;
    void (*run)(struct eb_job *job);
    void (*done)(struct eb_job *job);
};

struct eb_worker {
    uv_loop_t uv; /* the thread's own */
    uv_thread_t thread;
    struct eb_mailbox jobs;
    struct eb_mailbox results; /* on the owner's loop */
    struct eb_mail give_way;
    struct eb_mail end;
    unsigned job_count; /* posted and not done */
};

/* Starts the thread. 0, or a negative libuv code with nothing left behind. */
int eb_worker_start(struct eb_worker *worker, uv_loop_t *owner);
void eb_worker_post(struct eb_worker *worker, struct eb_job *job);
/* Lowers the priority of the jobs that are posted from now on. Called at most once. */
void eb_worker_give_way(struct eb_worker *worker);
/* Waits for the thread's end; no job may be on its way. The worker's memory is its owner's again
 * when the loop has run. */
void eb_worker_stop(struct eb_worker *worker);
