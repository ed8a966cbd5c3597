#include "proto/net/background_task.h"

#include "proto/list.h"

#include <assert.h>

static void run_background_thread(void *argument)
{
    struct eb_background_task *task = argument;
    task->run(task);
    eb_mailbox_post(&task->mailbox, &task->over);
}

static void on_background_over(struct eb_mail *mail)
{
    struct eb_background_task *task = EB_CONTAINER_OF(mail, struct eb_background_task, over);
    int rc = uv_thread_join(&task->thread);
    assert(rc == 0);
    task->is_running = false;
    if (task->is_closing) {
        eb_mailbox_close(&task->mailbox);
    }
    task->done(task);
}

int eb_background_task_open(struct eb_background_task *task, uv_loop_t *loop)
{
    task->over.deliver = on_background_over;
    return eb_mailbox_open(&task->mailbox, loop);
}

bool eb_background_task_start(struct eb_background_task *task)
{
    assert(!task->is_running && !task->is_closing);
    task->is_running = uv_thread_create(&task->thread, run_background_thread, task) == 0;
    return task->is_running;
}

void eb_background_task_close(struct eb_background_task *task)
{
    task->is_closing = true;
    if (!task->is_running) {
        eb_mailbox_close(&task->mailbox);
    }
}
