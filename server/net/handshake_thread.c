#include "server/net/handshake_thread.h"

#include "proto/net/tls_stream.h"

#include <assert.h>
#include <errno.h>
#include <sys/resource.h>
#include <time.h>

#define NICE_STEPS 5
#define NICE_MOST 19
#define NS_PER_S UINT64_C(1000000000)

static uint64_t read_cpu_ns(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    assert(rc == 0); /* The clock exists for every thread. */
    (void)rc;
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Lowers the priority of the calling thread: on Linux each thread has its own. */
static void lower_priority(void)
{
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, 0);
    if (errno == 0) {
        nice = nice < NICE_MOST - NICE_STEPS ? nice + NICE_STEPS : NICE_MOST;
        (void)setpriority(PRIO_PROCESS, 0, nice); /* Everyone may lower a priority. */
    }
}

static void run_handshake_thread(void *context)
{
    struct eb_handshake_thread *thread = context;
    lower_priority();
    uv_sem_wait(&thread->work);
    while (!thread->is_ending) {
        uint64_t begun_ns = read_cpu_ns();
        eb_tls_stream_handshake(thread->step.stream);
        thread->step.cpu_ns = read_cpu_ns() - begun_ns;
        eb_mailbox_post(thread->mailbox, &thread->step.mail);
        uv_sem_wait(&thread->work);
    }
}

int eb_handshake_thread_start(struct eb_handshake_thread *thread, struct eb_mailbox *mailbox,
    void (*deliver)(struct eb_mail *mail))
{
    int rc = uv_sem_init(&thread->work, 0);
    if (rc < 0) {
        return rc;
    }
    thread->mailbox = mailbox;
    thread->step.mail.deliver = deliver;
    thread->is_ending = false;
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

void eb_handshake_thread_begin(
    struct eb_handshake_thread *thread, struct eb_conn *conn, struct eb_tls_stream *stream)
{
    assert(thread->is_started && !eb_handshake_thread_is_busy(thread));
    thread->step.conn = conn;
    thread->step.stream = stream;
    uv_sem_post(&thread->work);
}

bool eb_handshake_thread_is_busy(const struct eb_handshake_thread *thread)
{
    return thread->step.stream;
}

bool eb_handshake_thread_has(const struct eb_handshake_thread *thread, const struct eb_conn *conn)
{
    return thread->step.conn == conn;
}

void eb_handshake_thread_forget(struct eb_handshake_thread *thread)
{
    thread->step.conn = NULL;
}

struct eb_tls_stream *eb_handshake_thread_end(struct eb_handshake_thread *thread)
{
    struct eb_tls_stream *stream = thread->step.stream;
    thread->step.conn = NULL;
    thread->step.stream = NULL;
    return stream;
}
