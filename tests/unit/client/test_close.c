/* Closes a client while another thread is at any point of a call. The linker sends the library's
 * locks through the wrappers here (--wrap), which hold the thread before one of them. */
#include "client/embag_admin.h"

#include "tests/lib/test_group.h"
#include "tests/unit/client/client_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define LOCKS_MAX 100 /* more locks than any call takes */

void __real_uv_mutex_lock(uv_mutex_t *mutex);
void __real_uv_mutex_unlock(uv_mutex_t *mutex);
void __real_uv_sem_wait(uv_sem_t *sem);
void __wrap_uv_mutex_lock(uv_mutex_t *mutex);
void __wrap_uv_mutex_unlock(uv_mutex_t *mutex);
void __wrap_uv_sem_wait(uv_sem_t *sem);

/* A call on its own thread, and the point at which it is held. */
static struct trial {
    void (*call)(struct trial *trial);
    struct client_fixture *fixture;
    uv_sem_t reached;  /* the thread is held, or its call is over */
    uv_sem_t released; /* the thread may continue */
    bool is_held;
    bool was_awaited; /* closing waited for the thread */
    enum embag_status status;
    enum embag_status callback_status; /* of a lookup that a callback begins during the close */
} trial;

static _Thread_local unsigned locks_left; /* locks before this thread is held; 0: it is not held */
static _Thread_local unsigned locks_owned;
static _Thread_local bool is_closing;

/* A thread that owns a lock is not held, because it would block the others. */
void __wrap_uv_mutex_lock(uv_mutex_t *mutex)
{
    if (locks_owned == 0 && locks_left > 0 && --locks_left == 0) {
        trial.is_held = true;
        uv_sem_post(&trial.reached);
        __real_uv_sem_wait(&trial.released);
    }
    locks_owned++;
    __real_uv_mutex_lock(mutex);
}

void __wrap_uv_mutex_unlock(uv_mutex_t *mutex)
{
    __real_uv_mutex_unlock(mutex);
    locks_owned--;
}

/* Closing waits on a semaphore only for threads to leave their calls. */
void __wrap_uv_sem_wait(uv_sem_t *sem)
{
    if (is_closing) {
        trial.was_awaited = true;
        uv_sem_post(&trial.released);
    }
    __real_uv_sem_wait(sem);
}

/* ---- calls ---- */

static void call_submit(struct trial *in)
{
    in->status = client_fixture_submit(in->fixture, "echo", 1, NULL, NULL);
}

static void call_cancel(struct trial *in)
{
    embag_cancel(in->fixture->client, 1);
}

static void call_next(struct trial *in)
{
    struct embag_completion completion;
    if (embag_next(in->fixture->client, 0, &completion)) {
        embag_answer_free(completion.answer);
    }
}

static void call_completion_fd(struct trial *in)
{
    (void)embag_completion_fd(in->fixture->client);
}

static void call_lookup(struct trial *in)
{
    struct embag_request request = {.model = "echo"};
    struct embag_answer *answer = NULL;
    in->status = embag_lookup(in->fixture->client, &request, &answer, NULL);
    embag_answer_free(answer);
}

static void call_list_models(struct trial *in)
{
    struct embag_model_list *list = NULL;
    in->status = embag_list_models(in->fixture->client, &list, NULL);
    embag_model_list_free(list);
}

static void call_command_version(struct trial *in)
{
    struct embag_version_command command = {.model = "m", .version = 1};
    in->status = embag_command_version(in->fixture->client, &command, NULL);
}

/* ---- trials ---- */

static void on_done(const struct embag_completion *completion)
{
    struct trial *in = completion->context;
    in->callback_status = client_fixture_submit(in->fixture, "echo", 2, NULL, NULL);
}

/* Opens a client with a lookup that never ends and a completion to take. */
static void open_client(void)
{
    struct embag_call how = {.on_done = on_done, .context = &trial};
    trial.fixture = client_fixture_open((struct embag_options){0});
    assert_int_equal(client_fixture_submit(trial.fixture, "silent", 1, &how, NULL), EMBAG_OK);
    assert_int_equal(client_fixture_submit(trial.fixture, "echo", 1, NULL, NULL), EMBAG_OK);
    struct pollfd poller = {.fd = embag_completion_fd(trial.fixture->client), .events = POLLIN};
    assert_int_equal(poll(&poller, 1, CLIENT_FIXTURE_PATIENCE_US / 1000), 1);
}

static void close_client(void)
{
    is_closing = true;
    embag_close(trial.fixture->client);
    is_closing = false;
    assert_true(fake_server_stop(&trial.fixture->server));
    free(trial.fixture);
}

static void run_trial(void *context)
{
    locks_left = *(const unsigned *)context;
    trial.call(&trial);
    if (!trial.is_held) {
        uv_sem_post(&trial.reached);
    }
}

/* Closes the client while the call is held before its lock number `lock`. Returns false if the call
 * takes fewer locks. */
static bool try_at(void (*call)(struct trial *trial), unsigned lock)
{
    uv_thread_t thread;
    trial = (struct trial){.call = call};
    assert_int_equal(uv_sem_init(&trial.reached, 0), 0);
    assert_int_equal(uv_sem_init(&trial.released, 0), 0);
    open_client();
    assert_int_equal(uv_thread_create(&thread, run_trial, &lock), 0);
    __real_uv_sem_wait(&trial.reached);
    bool is_held = trial.is_held;
    close_client();
    assert_int_equal(trial.was_awaited, is_held);
    assert_int_equal(trial.callback_status, EMBAG_CANCELLED);
    assert_int_equal(uv_thread_join(&thread), 0);
    assert_true(trial.status == EMBAG_OK || trial.status == EMBAG_CANCELLED);
    uv_sem_destroy(&trial.reached);
    uv_sem_destroy(&trial.released);
    return is_held;
}

static void waits_for_a_thread_in_any_call(void **state)
{
    (void)state;
    static void (*const calls[])(struct trial *) = {call_submit, call_cancel, call_next,
        call_completion_fd, call_lookup, call_list_models, call_command_version};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        unsigned lock = 1;
        while (try_at(calls[i], lock)) {
            lock++;
            assert_true(lock < LOCKS_MAX);
        }
        assert_true(lock > 1);
        assert_int_equal(trial.status, EMBAG_OK);
    }
}

EB_TEST_GROUP(close)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_for_a_thread_in_any_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
