#include "client/cli/load_run.h"

#include "client/cli/load_clock.h"
#include "client/embag_async.h"
#include "tests/lib/test_group.h"
#include "tests/unit/load/load_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define JOBS_MAX 65536
#define READS_MAX 4 /* two by each of two clients */
#define NS_PER_MS UINT64_C(1000000)

/* Takes the place of the client: a thread that answers one lookup after another, except while it
 * stalls. Times count from the thread's start. */
static struct {
    uint64_t stall_from_ms, stall_until_ms; /* no answers in between */
    uint64_t fail_until_ms;                 /* lookups fail at once until then */
    bool refuses;                           /* no lookup is accepted */
    uint32_t attempts;                      /* of a lookup that times out; 0: it was never sent */
    bool times_out;                         /* every lookup times out */
    bool is_unpaced;                        /* these three from the options of embag_open */
    int32_t retries_max;
    uint32_t hedge_percent;
    uint64_t start_ns;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_ending;
    struct embag_call jobs[JOBS_MAX];
    unsigned first, count, count_max;
    uint64_t submitted;
    uint64_t timeout_us_min, timeout_us_max; /* of the requests */
    bool is_partial;                         /* some servers cannot be connected to */
    unsigned read_count; /* calls of embag_get_stats, their times, and what they have returned */
    uint64_t read_ms[READS_MAX], read_sent[READS_MAX];
    uint64_t wait_us; /* timeout of the last embag_wait_ready */
} fake;

enum embag_status __wrap_embag_open(const char *address, const struct embag_options *options,
    struct embag_client **client, struct embag_error *error);
void __wrap_embag_close(struct embag_client *client);
enum embag_status __wrap_embag_submit(struct embag_client *client,
    const struct embag_request *request, const struct embag_call *call, uint64_t *id,
    struct embag_error *error);
enum embag_status __wrap_embag_get_stats(struct embag_client *client, struct embag_stats *stats,
    struct embag_server_stats *servers, uint32_t servers_max);
enum embag_status __wrap_embag_wait_ready(
    struct embag_client *client, uint32_t servers, uint64_t timeout_us, struct embag_error *error);

static uint64_t now_ms(void)
{
    return (eb_load_clock_read_ns() - fake.start_ns) / NS_PER_MS;
}

static void sleep_ms(uint64_t ms)
{
    struct timespec time = {
        .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000 * NS_PER_MS)};
    (void)nanosleep(&time, NULL);
}

static void answer_call(const struct embag_call *call)
{
    struct embag_completion completion = {.context = call->context};
    while (now_ms() >= fake.stall_from_ms && now_ms() < fake.stall_until_ms) {
        sleep_ms(1);
    }
    if (now_ms() < fake.fail_until_ms) {
        completion.error.status = EMBAG_UNAVAILABLE;
    } else if (fake.times_out) {
        completion.error.status = EMBAG_DEADLINE_EXCEEDED;
    }
    completion.attempts = fake.times_out ? fake.attempts : 1;
    call->on_done(&completion);
}

static void *serve_calls(void *context)
{
    (void)context;
    pthread_mutex_lock(&fake.lock);
    while (!fake.is_ending || fake.count > 0) {
        if (fake.count == 0) {
            pthread_cond_wait(&fake.changed, &fake.lock);
            continue;
        }
        struct embag_call call = fake.jobs[fake.first];
        pthread_mutex_unlock(&fake.lock);
        answer_call(&call);
        pthread_mutex_lock(&fake.lock);
        fake.first = (fake.first + 1) % JOBS_MAX;
        fake.count--;
    }
    pthread_mutex_unlock(&fake.lock);
    return NULL;
}

enum embag_status __wrap_embag_open(const char *address, const struct embag_options *options,
    struct embag_client **client, struct embag_error *error)
{
    static char place;
    (void)address;
    (void)error;
    fake.is_unpaced = options->unpaced;
    fake.retries_max = options->retries_max;
    fake.hedge_percent = options->hedge_percent;
    *client = (struct embag_client *)(void *)&place;
    return EMBAG_OK;
}

void __wrap_embag_close(struct embag_client *client)
{
    (void)client;
}

enum embag_status __wrap_embag_submit(struct embag_client *client,
    const struct embag_request *request, const struct embag_call *call, uint64_t *id,
    struct embag_error *error)
{
    uint64_t timeout_us = request->timeout_us;
    (void)client;
    (void)id;
    pthread_mutex_lock(&fake.lock);
    if (fake.submitted == 0 || timeout_us < fake.timeout_us_min) {
        fake.timeout_us_min = timeout_us;
    }
    fake.timeout_us_max = timeout_us > fake.timeout_us_max ? timeout_us : fake.timeout_us_max;
    fake.submitted++;
    error->status = fake.refuses ? EMBAG_RESOURCE_EXHAUSTED : EMBAG_OK;
    error->text[0] = '\0';
    if (!fake.refuses) {
        fake.jobs[(fake.first + fake.count++) % JOBS_MAX] = *call;
        fake.count_max = fake.count > fake.count_max ? fake.count : fake.count_max;
        pthread_cond_signal(&fake.changed);
    }
    pthread_mutex_unlock(&fake.lock);
    return error->status;
}

/* Counts everything that was submitted as sent to one server. */
enum embag_status __wrap_embag_get_stats(struct embag_client *client, struct embag_stats *stats,
    struct embag_server_stats *servers, uint32_t servers_max)
{
    (void)client;
    assert_true(servers_max > 0);
    pthread_mutex_lock(&fake.lock);
    assert_true(fake.read_count < READS_MAX);
    fake.read_ms[fake.read_count] = now_ms();
    fake.read_sent[fake.read_count++] = fake.submitted;
    *stats = (struct embag_stats){.lookups = fake.submitted, .resends = 5, .servers = 1};
    servers[0] = (struct embag_server_stats){.address = "fake", .sent = fake.submitted};
    pthread_mutex_unlock(&fake.lock);
    return EMBAG_OK;
}

/* Notes the timeout. */
enum embag_status __wrap_embag_wait_ready(
    struct embag_client *client, uint32_t servers, uint64_t timeout_us, struct embag_error *error)
{
    (void)client;
    assert_int_equal(servers, 0);
    fake.wait_us = timeout_us;
    error->status = fake.is_partial ? EMBAG_DEADLINE_EXCEEDED : EMBAG_OK;
    return error->status;
}

static int setup(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    return pthread_mutex_init(&fake.lock, NULL) + pthread_cond_init(&fake.changed, NULL);
}

/* Runs the load that the words describe. Returns the result, which the caller frees. */
static struct eb_load_result *run_load(const char *words)
{
    struct eb_load_options options;
    struct eb_load_target target;
    struct eb_load_pool pool;
    struct eb_load_connection connections[2];
    struct eb_load_result *result = malloc(sizeof *result);
    assert_non_null(result);
    load_fixture_make(&options, &target, &pool, words);
    fake.start_ns = eb_load_clock_read_ns();
    assert_int_equal(pthread_create(&fake.thread, NULL, serve_calls, NULL), 0);
    assert_in_range(options.thread_count, 1, 2);
    for (unsigned i = 0; i < options.thread_count; i++) {
        assert_true(eb_load_connection_open(&connections[i], &options, i, options.thread_count));
        eb_load_connection_supply(&connections[i], &pool, NULL);
    }
    struct eb_load_run load = {.options = &options,
        .rate = options.rate,
        .seed = options.seed,
        .connections = connections};
    eb_load_run(&load, result);
    pthread_mutex_lock(&fake.lock);
    fake.is_ending = true;
    pthread_cond_signal(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
    assert_int_equal(pthread_join(fake.thread, NULL), 0);
    for (unsigned i = 0; i < options.thread_count; i++) {
        eb_load_connection_close(&connections[i]);
    }
    eb_load_pool_deinit(&pool);
    eb_load_target_deinit(&target);
    return result;
}

static double quantile_ms(const struct eb_load_result *result, double quantile)
{
    return eb_load_stats_quantile_us(&result->stats, quantile) / 1000;
}

static void keeps_so_many_in_flight_when_closed(void **state)
{
    (void)state;
    static const char *const words[] = {"--tables a --in-flight 5 --duration 0.1 --warmup 0",
        "--tables a --in-flight 5 --duration 0.1 --warmup 0 --connections 2 --threads 2"};
    for (unsigned i = 0; i < 2; i++) {
        (void)setup(NULL);
        struct eb_load_result *result = run_load(words[i]);
        assert_true(result->stats.by_status[0] > 0);
        assert_true(eb_load_run_answers_per_s(result) > 0);
        /* While the callback of a call submits the next one, both calls are counted. */
        assert_in_range(fake.count_max, 5, 6);
        assert_int_equal(eb_load_stats_errors(&result->stats), 0);
        free(result);
    }
}

/* Of 2000 requests a second, 800 are due in 0.4 s. The server stalls from 0.1 s to 0.3 s, so some
 * 300 requests are due so early in the stall that they wait for more than 50 ms. A load generator
 * that waited for the server would have measured only a few of these. */
static void charges_a_stall_to_all_that_were_due_in_it(void **state)
{
    (void)state;
    static const char *const words[] = {"--tables a --rate 2000 --duration 0.4 --warmup 0",
        "--tables a --rate 2000 --duration 0.4 --warmup 0 --in-flight 1"};
    for (unsigned i = 0; i < 2; i++) {
        (void)setup(NULL);
        fake.stall_from_ms = 100;
        fake.stall_until_ms = 300;
        struct eb_load_result *result = run_load(words[i]);
        assert_true(quantile_ms(result, 0.7) > 45);
        assert_true(quantile_ms(result, 1) > 180);
        assert_true(eb_load_stats_requests(&result->stats) > 600);
        free(result);
    }
}

static void counts_what_was_due_and_never_sent(void **state)
{
    (void)state;
    fake.stall_until_ms = 400;
    struct eb_load_result *result =
        run_load("--tables a --rate 1000 --duration 0.2 --warmup 0 --in-flight 2");
    assert_int_equal(result->stats.by_status[0], 2);
    assert_true(result->stats.unsent_count > 100);
    assert_int_equal(result->lost_count, 0);
    /* The answers came after the window. */
    assert_true(eb_load_run_answers_per_s(result) == 0);
    free(result);
}

/* If the server stalls for longer than the timeout, requests due in the meantime are not sent
 * afterwards, and requests that are sent late have less time left. */
static void sends_nothing_whose_time_is_over(void **state)
{
    (void)state;
    fake.stall_until_ms = 250;
    struct eb_load_result *result = run_load(
        "--tables a --rate 1000 --duration 0.4 --warmup 0 --in-flight 1 --timeout-us 50000");
    /* The requests due in the first 200 ms were not sent, except the first one. */
    assert_true(result->stats.unsent_count > 100);
    /* At least a quarter of all requests had no answer. */
    assert_true(quantile_ms(result, 0.8) >= 50);
    assert_true(fake.timeout_us_max <= 50000);
    assert_true(fake.timeout_us_min < 50000);
    free(result);
}

/* If the client withheld a request until its time was over, the request was never sent, and the
 * server has no part in the failure. */
static void tells_what_was_withheld_from_what_was_not_answered(void **state)
{
    (void)state;
    for (uint32_t attempts = 0; attempts < 2; attempts++) {
        (void)setup(NULL);
        fake.times_out = true;
        fake.attempts = attempts;
        struct eb_load_result *result =
            run_load("--tables a --rate 1000 --duration 0.1 --warmup 0");
        const struct eb_load_stats *stats = &result->stats;
        uint64_t count = eb_load_stats_requests(stats);
        assert_true(count > 0);
        assert_int_equal(stats->unsent_count, attempts == 0 ? count : 0);
        assert_int_equal(eb_load_stats_errors(stats), attempts == 0 ? 0 : count);
        assert_int_equal(stats->by_status[EMBAG_DEADLINE_EXCEEDED], attempts == 0 ? 0 : count);
        assert_int_equal(stats->late.count, attempts == 0 ? 0 : count);
        assert_int_equal(stats->unanswered.count, count);
        /* The default timeout is one second. */
        assert_true(quantile_ms(result, 0.01) >= 1000);
        free(result);
    }
}

static void lets_the_client_withhold_requests_unless_told_otherwise(void **state)
{
    (void)state;
    static const char *const words[] = {
        "--tables a --duration 0.01 --warmup 0", "--tables a --duration 0.01 --warmup 0 --unpaced"};
    for (unsigned i = 0; i < 2; i++) {
        (void)setup(NULL);
        free(run_load(words[i]));
        assert_int_equal(fake.is_unpaced, i);
    }
}

static void waits_between_failures_when_closed(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        (void)setup(NULL);
        fake.refuses = i == 1;
        fake.fail_until_ms = 1000000;
        struct eb_load_result *result =
            run_load("--tables a --in-flight 2 --duration 0.2 --warmup 0");
        assert_int_equal(result->stats.by_status[0], 0);
        assert_true(eb_load_stats_errors(&result->stats) > 0);
        assert_int_equal(result->stats.unsent_count, 0);
        /* Two requests every 10 ms. */
        assert_in_range(fake.submitted, 2, 2 * 23);
        free(result);
    }
}

static void forgets_what_was_due_in_the_warmup(void **state)
{
    (void)state;
    static const char *const words[] = {"--tables a --in-flight 2 --duration 0.1 --warmup 0.1",
        "--tables a --rate 2000 --duration 0.1 --warmup 0.1"};
    for (unsigned i = 0; i < 2; i++) {
        (void)setup(NULL);
        fake.fail_until_ms = 50;
        struct eb_load_result *result = run_load(words[i]);
        assert_int_equal(eb_load_stats_errors(&result->stats), 0);
        assert_true(result->stats.by_status[0] > 0);
        assert_true(fake.submitted > result->stats.by_status[0]);
        free(result);
    }
}

/* Reads the counts at the end of the warm-up and at the end of the measured time. */
static void counts_servers_in_the_measured_time_only(void **state)
{
    (void)state;
    static const char *const words[] = {"--tables a --in-flight 3 --duration 0.05 --warmup 0.1",
        "--tables a --rate 2000 --duration 0.05 --warmup 0.1"};
    for (unsigned i = 0; i < 2; i++) {
        (void)setup(NULL);
        struct eb_load_result *result = run_load(words[i]);
        const struct eb_load_servers *servers = &result->servers;
        assert_int_equal(fake.read_count, 2);
        assert_true(fake.read_ms[0] >= 100);
        assert_true(fake.read_ms[1] >= 150);
        assert_int_equal(servers->count, 1);
        assert_string_equal(servers->items[0].address, "fake");
        assert_int_equal(servers->items[0].sent, fake.read_sent[1] - fake.read_sent[0]);
        /* All of these were counted before the run. */
        assert_int_equal(servers->resends, 0);
        free(result);
    }
}

static void counts_servers_from_the_start_without_a_warmup(void **state)
{
    (void)state;
    static const char *const words[] = {"--tables a --in-flight 3 --duration 0.05 --warmup 0",
        "--tables a --rate 2000 --duration 0.05 --warmup 0"};
    for (unsigned i = 0; i < 2; i++) {
        (void)setup(NULL);
        struct eb_load_result *result = run_load(words[i]);
        /* A closed load may send a request per slot while its time ends. */
        assert_in_range(result->servers.items[0].sent, fake.submitted - 3, fake.submitted);
        free(result);
    }
}

static void lets_the_client_send_again_and_hedge_if_told_to(void **state)
{
    (void)state;
    free(run_load("--tables a --duration 0.01 --warmup 0"));
    assert_int_equal(fake.retries_max, -1);
    assert_int_equal(fake.hedge_percent, 0);
    (void)setup(NULL);
    free(run_load("--tables a --duration 0.01 --warmup 0 --retries 2 --hedge 5"));
    assert_int_equal(fake.retries_max, 2);
    assert_int_equal(fake.hedge_percent, 5);
}

static void waits_for_servers_until_the_deadline(void **state)
{
    (void)state;
    struct eb_load_options options;
    struct eb_load_connection connection;
    struct embag_error error;
    assert_int_equal(load_fixture_read(&options, "--tables a"), EB_ARGUMENTS_READ);
    assert_true(eb_load_connection_open(&connection, &options, 0, 1));
    uint64_t now_ns = eb_load_clock_read_ns();
    assert_true(eb_load_connection_await_servers(&connection, now_ns + 5000 * NS_PER_MS, &error));
    assert_in_range(fake.wait_us, 1, 5000000);
    fake.is_partial = true;
    /* A timeout of 0 would be the client's own. */
    assert_false(eb_load_connection_await_servers(&connection, now_ns, &error));
    assert_int_equal(fake.wait_us, 1);
    eb_load_connection_close(&connection);
}

EB_TEST_GROUP(load_run)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(keeps_so_many_in_flight_when_closed, setup),
        cmocka_unit_test_setup(charges_a_stall_to_all_that_were_due_in_it, setup),
        cmocka_unit_test_setup(counts_what_was_due_and_never_sent, setup),
        cmocka_unit_test_setup(sends_nothing_whose_time_is_over, setup),
        cmocka_unit_test_setup(tells_what_was_withheld_from_what_was_not_answered, setup),
        cmocka_unit_test_setup(lets_the_client_withhold_requests_unless_told_otherwise, setup),
        cmocka_unit_test_setup(waits_between_failures_when_closed, setup),
        cmocka_unit_test_setup(forgets_what_was_due_in_the_warmup, setup),
        cmocka_unit_test_setup(counts_servers_in_the_measured_time_only, setup),
        cmocka_unit_test_setup(counts_servers_from_the_start_without_a_warmup, setup),
        cmocka_unit_test_setup(lets_the_client_send_again_and_hedge_if_told_to, setup),
        cmocka_unit_test_setup(waits_for_servers_until_the_deadline, setup),
    };
    return cmocka_run_group_tests_name("load_run", tests, NULL, NULL);
}
