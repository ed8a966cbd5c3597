#include "server/publish/worker.h"

#include "proto/list.h"

#include <assert.h>
#include <stddef.h>
#include <sys/resource.h>

#define NICE_MOST 19

static void on_result(struct eb_mail *mail)
{
    struct eb_job *job = EB_CONTAINER_OF(mail, struct eb_job, mail);
    job->worker->job_count--;
    job->done(job);
}

static void on_job(struct eb_mail *mail)
{
    struct eb_job *job = EB_CONTAINER_OF(mail, struct eb_job, mail);
    job->run(job);
    job->mail.deliver = on_result;
    eb_mailbox_post(&job->worker->results, &job->mail);
}

static void on_worker_end(struct eb_mail *mail)
{
    struct eb_worker *worker = EB_CONTAINER_OF(mail, struct eb_worker, end);
    eb_mailbox_close(&worker->jobs);
}

/* SCHED_IDLE would be gentler still. But if all processors are busy for a long time, a thread of
 * that class does not run at all, and a new version would never be loaded. */
void eb_worker_lower_priority(void)
{
    (void)setpriority(PRIO_PROCESS, 0, NICE_MOST);
}

static void on_give_way(struct eb_mail *mail)
{
    (void)mail;
    eb_worker_lower_priority();
}

static void run_worker_thread(void *context)
{
    struct eb_worker *worker = context;
    uv_run(&worker->uv, UV_RUN_DEFAULT);
}

/* Closes the loop of a worker that has no thread. */
static void close_worker_loop(struct eb_worker *worker)
{
    uv_run(&worker->uv, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&worker->uv);
    assert(rc == 0);
}

int eb_worker_start(struct eb_worker *worker, uv_loop_t *owner)
{
    *worker =
        (struct eb_worker){.give_way = {.deliver = on_give_way}, .end = {.deliver = on_worker_end}};
    int rc = uv_loop_init(&worker->uv);
    if (rc < 0) {
        return rc;
    }
    rc = eb_mailbox_open(&worker->jobs, &worker->uv);
    if (rc < 0) {
        close_worker_loop(worker);
        return rc;
    }
    rc = eb_mailbox_open(&worker->results, owner);
    if (rc == 0) {
        rc = uv_thread_create(&worker->thread, run_worker_thread, worker);
        if (rc == 0) {
            return 0;
        }
        eb_mailbox_close(&worker->results);
    }
    eb_mailbox_close(&worker->jobs);
    close_worker_loop(worker);
    return rc;
}

void eb_worker_post(struct eb_worker *worker, struct eb_job *job)
{
    job->worker = worker;
    job->mail.deliver = on_job;
    worker->job_count++;
    eb_mailbox_post(&worker->jobs, &job->mail);
}

void eb_worker_give_way(struct eb_worker *worker)
{
    eb_mailbox_post(&worker->jobs, &worker->give_way);
}

void eb_worker_stop(struct eb_worker *worker)
{
    assert(worker->job_count == 0);
    eb_mailbox_post(&worker->jobs, &worker->end);
    uv_thread_join(&worker->thread);
    int rc = uv_loop_close(&worker->uv);
    assert(rc == 0);
    eb_mailbox_close(&worker->results);
}
