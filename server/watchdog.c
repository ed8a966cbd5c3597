#include "server/watchdog.h"

#include "proto/list.h"
#include "server/service_manager.h"
#include "server/work/executor.h"

#include <assert.h>
#include <stdlib.h>

/* Number of checks within the time after which the service manager considers a silent process hung.
 * So one check may be late, or may find a loop that is busy just then. */
#define LOOKS 4

/* A check on its way to a loop and back. */
struct question {
    struct eb_mail mail;
    struct eb_watchdog *watchdog;
};

struct eb_watchdog {
    uv_timer_t timer;
    struct eb_watchdog_subjects subjects;
    struct eb_mailbox *mailbox;
    size_t open_count;                 /* checks under way */
    void (*on_stopped)(void *context); /* NULL unless the watchdog is stopping */
    void *context;
    struct question questions[]; /* [subjects.loop_count] */
};

static void on_answer(struct eb_mail *mail)
{
    struct eb_watchdog *watchdog = EB_CONTAINER_OF(mail, struct question, mail)->watchdog;
    watchdog->open_count--;
    if (watchdog->on_stopped && watchdog->open_count == 0) {
        watchdog->on_stopped(watchdog->context);
    }
}

/* Runs on the loop's thread. */
static void on_question(struct eb_mail *mail)
{
    mail->deliver = on_answer;
    eb_mailbox_post(EB_CONTAINER_OF(mail, struct question, mail)->watchdog->mailbox, mail);
}

static void ask(struct eb_watchdog *watchdog)
{
    watchdog->open_count = watchdog->subjects.loop_count;
    for (size_t i = 0; i < watchdog->subjects.loop_count; i++) {
        struct question *question = &watchdog->questions[i];
        *question = (struct question){{.deliver = on_question}, watchdog};
        eb_mailbox_post(eb_loop_mailbox(watchdog->subjects.loops[i]), &question->mail);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct eb_watchdog *watchdog = timer->data;
    if (watchdog->open_count == 0) {
        eb_executor_check(watchdog->subjects.executor);
        eb_service_manager_alive();
        ask(watchdog);
    }
}

int eb_watchdog_start(struct eb_watchdog **out, uv_loop_t *uv, struct eb_mailbox *mailbox,
    const struct eb_watchdog_subjects *subjects)
{
    uint64_t silence_ms = eb_service_manager_silence_ms();
    *out = NULL;
    if (silence_ms == 0) {
        return 0;
    }
    struct eb_watchdog *watchdog =
        calloc(1, sizeof *watchdog + subjects->loop_count * sizeof watchdog->questions[0]);
    if (!watchdog) {
        return UV_ENOMEM;
    }
    watchdog->subjects = *subjects;
    watchdog->mailbox = mailbox;
    uv_timer_init(uv, &watchdog->timer);
    watchdog->timer.data = watchdog;
    int rc = uv_timer_start(&watchdog->timer, on_timer, 0, silence_ms / LOOKS + 1);
    (void)rc; /* fails only without a callback */
    *out = watchdog;
    return 0;
}

void eb_watchdog_stop(
    struct eb_watchdog *watchdog, void (*on_stopped)(void *context), void *context)
{
    if (watchdog) {
        assert(!watchdog->on_stopped);
        watchdog->on_stopped = on_stopped;
        watchdog->context = context;
        uv_close((uv_handle_t *)&watchdog->timer, NULL);
    }
    if (!watchdog || watchdog->open_count == 0) {
        on_stopped(context);
    }
}

void eb_watchdog_destroy(struct eb_watchdog *watchdog)
{
    free(watchdog);
}
