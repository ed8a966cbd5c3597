#include "tests/bench/redis_run.h"

#include "client/cli/load_clock.h"
#include "client/cli/load_run.h"
#include "client/cli/sampler.h"
#include "tests/bench/redis_link.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_US 1000
#define TICK_NS (10 * UINT64_C(1000000))
/* Time beyond their timeout after which answers are given up. */
#define DRAIN_SPARE_NS NS_PER_S
#define TIMER_SLACK_NS 1000
#define RECEIVE_BYTES (512 * 1024)

/* A request in flight. */
struct place {
    uint64_t position; /* position in the pool */
    uint64_t due_ns;
    uint64_t sent_ns;
};

struct wire {
    char *bytes;
    size_t count;
};

struct course {
    const struct eb_redis_run *run;
    struct eb_load_result *result;
    struct eb_load_window window;
    struct eb_load_arrival arrival;
    uint64_t start_ns;
    uint64_t due_ns;       /* open load: due time of the next request */
    struct wire *commands; /* [pool->count], an MGET for each request */
    struct place *places;  /* [in_flight], a ring: answers come in the order of their requests */
    uint64_t first;
    uint64_t busy_count;
    uint64_t next_position;
    char *received;  /* [RECEIVE_BYTES] */
    float *pooled;   /* [bags, dim] */
    float *expected; /* [dim] */
    bool has_unsent; /* whether bytes wait to be sent */
    bool has_failed;
};

static bool fail(struct course *course, const char *why)
{
    fprintf(stderr, "embag-peer-redis: %s\n", why);
    course->has_failed = true;
    return false;
}

static const struct eb_load_table *find_table(const struct course *course)
{
    return &course->run->pool->target->tables[0];
}

static const int64_t *find_indices(const struct course *course, uint64_t position)
{
    const struct eb_load_pool *pool = course->run->pool;
    return pool->indices + position * pool->request_indices;
}

/* Formats the MGET of one request. Returns false if out of memory. */
static bool format_command(struct course *course, uint64_t position)
{
    int count = (int)course->run->pool->request_indices;
    const char **arguments = calloc((size_t)count + 1, sizeof *arguments);
    size_t *lengths = calloc((size_t)count + 1, sizeof *lengths);
    char(*keys)[EB_REDIS_KEY_BYTES] = calloc((size_t)count, sizeof *keys);
    int length = -1;
    if (arguments && lengths && keys) {
        arguments[0] = "MGET";
        lengths[0] = strlen("MGET");
        for (int i = 0; i < count; i++) {
            eb_redis_link_write_key((uint64_t)find_indices(course, position)[i], keys[i]);
            arguments[i + 1] = keys[i];
            lengths[i + 1] = EB_REDIS_KEY_BYTES;
        }
        struct wire *command = &course->commands[position];
        length = redisFormatCommandArgv(&command->bytes, count + 1, arguments, lengths);
        command->count = length > 0 ? (size_t)length : 0;
    }
    free(arguments);
    free(lengths);
    free(keys);
    return length > 0;
}

static bool take_memory(struct course *course)
{
    const struct eb_load_pool *pool = course->run->pool;
    uint32_t dim = find_table(course)->column_count;
    course->commands = calloc(pool->count, sizeof *course->commands);
    course->places = calloc(course->run->options->in_flight, sizeof *course->places);
    course->received = malloc(RECEIVE_BYTES);
    course->pooled = calloc((size_t)pool->bag_count * dim, sizeof *course->pooled);
    course->expected = calloc(dim, sizeof *course->expected);
    bool has_all = course->commands && course->places && course->received && course->pooled &&
                   course->expected;
    for (uint64_t i = 0; has_all && i < pool->count; i++) {
        has_all = format_command(course, i);
    }
    return has_all || fail(course, "not enough memory for the requests");
}

static void give_memory(struct course *course)
{
    for (uint64_t i = 0; course->commands && i < course->run->pool->count; i++) {
        redisFreeCommand(course->commands[i].bytes);
    }
    free(course->commands);
    free(course->places);
    free(course->received);
    free(course->pooled);
    free(course->expected);
}

static bool send_one(struct course *course, uint64_t due_ns, uint64_t now_ns)
{
    uint64_t in_flight = course->run->options->in_flight;
    uint64_t position = course->next_position++ % course->run->pool->count;
    const struct wire *command = &course->commands[position];
    course->places[(course->first + course->busy_count) % in_flight] =
        (struct place){position, due_ns, now_ns};
    course->busy_count++;
    course->has_unsent = true;
    return redisAppendFormattedCommand(course->run->link, command->bytes, command->count) ==
               REDIS_OK ||
           fail(course, course->run->link->errstr);
}

static void draw_due(struct course *course)
{
    course->due_ns = course->start_ns + eb_load_arrival_next_ns(&course->arrival);
}

static uint64_t find_timeout_ns(const struct course *course)
{
    return course->run->options->timeout_us * NS_PER_US;
}

/* Sends all requests that are due, within the limit on requests in flight. */
static bool send_all(struct course *course, uint64_t now_ns)
{
    while (course->busy_count < course->run->options->in_flight) {
        uint64_t due_ns = course->window.is_closed ? now_ns : course->due_ns;
        if (due_ns > now_ns || due_ns >= course->window.end_ns) {
            return true;
        }
        if (!course->window.is_closed) {
            draw_due(course);
        }
        if (now_ns > due_ns + find_timeout_ns(course)) {
            eb_load_stats_add_unsent(&course->result->stats, &course->window, due_ns, now_ns);
        } else if (!send_one(course, due_ns, now_ns)) {
            return false;
        }
    }
    return true;
}

/* Adds up the rows of each bag. Returns false if a row is missing or has the wrong length. */
static bool pool_rows(struct course *course, const redisReply *reply)
{
    const struct eb_load_pool *pool = course->run->pool;
    uint32_t dim = find_table(course)->column_count;
    uint64_t rows_per_bag = pool->request_indices / pool->bag_count;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != pool->request_indices) {
        return false;
    }
    memset(course->pooled, 0, (size_t)pool->bag_count * dim * sizeof *course->pooled);
    for (uint64_t i = 0; i < reply->elements; i++) {
        const redisReply *row = reply->element[i];
        float *out = course->pooled + i / rows_per_bag * dim;
        if (row->type != REDIS_REPLY_STRING || (size_t)row->len != dim * sizeof *out) {
            return false;
        }
        for (uint32_t column = 0; column < dim; column++) {
            float value;
            memcpy(&value, row->str + column * sizeof value, sizeof value);
            out[column] += value;
        }
    }
    return true;
}

/* Returns whether the rows of single-row bags have the expected values. */
static bool verify_rows(struct course *course, uint64_t position)
{
    const struct eb_load_pool *pool = course->run->pool;
    const struct eb_load_table *table = find_table(course);
    uint64_t seed = eb_workload_seed(table->name, 1);
    for (uint64_t bag = 0; bag < pool->bag_count; bag++) {
        const float *row = course->pooled + bag * table->column_count;
        eb_workload_fill_row(seed, (uint64_t)find_indices(course, position)[bag], course->expected,
            table->column_count);
        for (uint32_t column = 0; column < table->column_count; column++) {
            if (row[column] != course->expected[column]) {
                return false;
            }
        }
    }
    return true;
}

/* Handles the answer to the oldest request in flight. */
static void take_answer(struct course *course, const redisReply *reply)
{
    struct place place = course->places[course->first];
    struct embag_error error = {.status = EMBAG_OK};
    const struct eb_load_pool *pool = course->run->pool;
    course->first = (course->first + 1) % course->run->options->in_flight;
    course->busy_count--;
    bool is_whole = pool_rows(course, reply);
    struct eb_load_outcome outcome = {
        .due_ns = place.due_ns,
        .sent_ns = place.sent_ns,
        .done_ns = eb_load_clock_read_ns(),
        .error = &error,
        .answer_bytes =
            (uint64_t)pool->bag_count * find_table(course)->column_count * sizeof(float),
    };
    if (!is_whole) {
        error.status = EMBAG_NOT_FOUND;
        snprintf(error.text, sizeof error.text, "a row is missing or has the wrong length");
    } else if (outcome.done_ns > place.due_ns + find_timeout_ns(course)) {
        error.status = EMBAG_DEADLINE_EXCEEDED;
        snprintf(error.text, sizeof error.text, "the answer came after its timeout");
    } else if (course->run->options->is_verified) {
        outcome.is_wrong = !verify_rows(course, place.position);
    }
    eb_load_stats_add(&course->result->stats, &course->window, &outcome);
}

/* Receives everything available, with one large read if it fits: the more answers are handled at
 * once, the fewer writes follow. hiredis itself reads 16 KiB at a time. */
static bool receive(struct course *course)
{
    redisContext *link = course->run->link;
    void *reply = NULL;
    ssize_t count = recv(link->fd, course->received, RECEIVE_BYTES, 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
        return fail(course, count == 0 ? "the server closed the connection" : strerror(errno));
    }
    if (count > 0 && redisReaderFeed(link->reader, course->received, (size_t)count) != REDIS_OK) {
        return fail(course, link->reader->errstr);
    }
    for (;;) {
        if (redisGetReplyFromReader(link, &reply) != REDIS_OK) {
            return fail(course, link->errstr);
        }
        if (!reply) {
            return true;
        }
        if (course->busy_count == 0) {
            freeReplyObject(reply);
            return fail(course, "received an answer without a request");
        }
        take_answer(course, reply);
        freeReplyObject(reply);
    }
}

static bool flush(struct course *course)
{
    int is_done = 0;
    if (course->has_unsent && redisBufferWrite(course->run->link, &is_done) != REDIS_OK) {
        return fail(course, course->run->link->errstr);
    }
    course->has_unsent = course->has_unsent && !is_done;
    return true;
}

/* Waits until an answer has arrived, bytes can be sent or a request is due, and receives
 * answers. */
static bool wait_and_receive(struct course *course, uint64_t now_ns)
{
    struct pollfd poll_fd = {.fd = course->run->link->fd,
        .events = (short)(POLLIN | (course->has_unsent ? POLLOUT : 0))};
    uint64_t wait_ns = TICK_NS;
    if (!course->window.is_closed && course->busy_count < course->run->options->in_flight &&
        course->due_ns < now_ns + wait_ns) {
        wait_ns = course->due_ns > now_ns ? course->due_ns - now_ns : 0;
    }
    struct timespec timeout = {.tv_nsec = (long)wait_ns};
    int rc = ppoll(&poll_fd, 1, &timeout, NULL);
    if (rc < 0 && errno != EINTR) {
        return fail(course, strerror(errno));
    }
    return rc <= 0 || (poll_fd.revents & ~POLLOUT) == 0 || receive(course);
}

static void look_around(struct course *course, uint64_t now_ns)
{
    if (eb_load_interrupt_has_come() && !course->result->was_interrupted) {
        course->result->was_interrupted = true;
        course->window.end_ns = now_ns < course->window.end_ns ? now_ns : course->window.end_ns;
    }
}

static void go(struct course *course)
{
    uint64_t now_ns = eb_load_clock_read_ns();
    uint64_t spare_ns = find_timeout_ns(course) + DRAIN_SPARE_NS;
    while (now_ns < course->window.end_ns ||
           (course->busy_count > 0 && now_ns < course->window.end_ns + spare_ns)) {
        look_around(course, now_ns);
        if ((now_ns < course->window.end_ns && !send_all(course, now_ns)) || !flush(course) ||
            !wait_and_receive(course, now_ns)) {
            return;
        }
        now_ns = eb_load_clock_read_ns();
    }
    course->result->lost_count = course->busy_count;
    eb_load_stats_add_lost(&course->result->stats, &course->window, course->busy_count);
    /* Counts the requests that were due but never sent. */
    while (!course->window.is_closed && course->due_ns < course->window.end_ns) {
        eb_load_stats_add_unsent(&course->result->stats, &course->window, course->due_ns, now_ns);
        draw_due(course);
    }
}

bool eb_redis_run(const struct eb_redis_run *run, struct eb_load_result *result)
{
    const struct eb_load_options *options = run->options;
    *result = (struct eb_load_result){.rate = options->rate};
    struct course course = {.run = run, .result = result};
    if (take_memory(&course)) {
        course.start_ns = eb_load_clock_read_ns();
        course.window.begin_ns = course.start_ns;
        course.window.end_ns = course.start_ns + (uint64_t)(run->duration_s * NS_PER_S);
        course.window.deadline_ns = UINT64_MAX;
        course.window.unanswered_ns = find_timeout_ns(&course);
        course.window.is_closed = !options->is_open;
        if (options->is_open) {
            eb_load_arrival_init(&course.arrival, options->rate, options->seed);
            draw_due(&course);
        }
        (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
        go(&course);
        result->seconds = (double)(course.window.end_ns - course.window.begin_ns) / NS_PER_S;
    }
    give_memory(&course);
    return !course.has_failed;
}
