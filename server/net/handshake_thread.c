#include "server/net/handshake_thread.h"

#include "proto/net/tls_stream.h"

#include <assert.h>
#include <sys/resource.h>
#include <time.h>

#define HANDSHAKE_NICE 5
#define NS_PER_S UINT64_C(1000000000)

static uint64_t read_cpu_ns(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    assert(rc == 0); /* The clock exists for every thread. */
    (void)rc;
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void run_handshake_thread(void *context)
{
    struct eb_handshake_thread *thread = context;
    /* Cannot fail: everyone may lower a priority. On Linux it is the calling thread's alone. */
    (void)setpriority(PRIO_PROCESS, 0, HANDSHAKE_NICE);
    uv_sem_wait(&thread->work);
    while (!thread->is_ending) {
        uint64_t begun_ns = read_cpu_ns();
        eb_tls_stream_shake(thread->step.stream);
        thread->step.cpu_ns = read_cpu_ns() - begun_ns;
        eb_mailbox_post(thread->mailbox, &thread->step.mail);
        uv_sem_wait(&thread->work);
    }
}

int eb_handshake_thread_start(struct eb_handshake_thread *thread, struct eb_mailbox *mailbox)
{
    int rc = uv_sem_init(&thread->work, 0);
    if (rc < 0) {
        return rc;
    }
    thread->mailbox = mailbox;
    rc = uv_thread_create(&thread->thread, run_handshake_thread, thread);
    if (rc < 0) {
        uv_sem_destroy(&thread->work);
    }
    thread->is_started = rc == 0;
    return rc;
}

void eb_handshake_thread_stop(struct eb_handshake_thread *thread)
{
    if (thread->is_started) {
        assert(!eb_handshake_thread_is_busy(thread));
        thread->is_ending = true;
        uv_sem_post(&thread->work);
        uv_thread_join(&thread->thread);
        uv_sem_destroy(&thread->work);
        thread->is_started = false;
    }
}

bool eb_handshake_thread_is_busy(const struct eb_handshake_thread *thread)
{
    return thread->step.stream;
}

void eb_handshake_thread_begin(
    struct eb_handshake_thread *thread, struct eb_conn *conn, struct eb_tls_stream *stream)
{
    assert(thread->is_started && !eb_handshake_thread_is_busy(thread));
    thread->step.conn = conn;
    thread->step.stream = stream;
    uv_sem_post(&thread->work);
}
