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
struct sent {
    uint64_t position; /* position in the pool */
    uint64_t due_ns;
    uint64_t sent_ns;
    float *pooled;       /* [bags, dim]; NULL until the first rows come */
    unsigned awaited;    /* answers of nodes that are still to come */
    bool is_row_missing; /* or a row has the wrong length */
};

/* The rows of one request that one node holds. */
struct command {
    char *bytes; /* an MGET; NULL: the node has no row of this request */
    size_t count;
    const uint32_t *bags; /* [row_count] the bag of each row, counted over all tables */
    uint32_t row_count;
};

/* What was sent to a node. */
struct node {
    uint64_t next;   /* number of the first request that the node may have to answer */
    bool has_unsent; /* whether bytes wait to be sent */
};

struct course {
    const struct eb_redis_run *run;
    struct eb_load_result *result;
    struct eb_load_window window;
    struct eb_load_arrival arrival;
    uint64_t start_ns;
    uint64_t due_ns;          /* open load: due time of the next request */
    uint32_t dim;             /* of all tables */
    uint64_t bags_per_query;  /* bags of each table */
    uint64_t bag_count;       /* bags of a request */
    uint32_t *bags;           /* [pool->count][request_indices], grouped by node */
    struct command *commands; /* [pool->count][node_count] */
    struct node nodes[EB_REDIS_NODES_MAX];
    struct sent *sent;     /* [in_flight], a ring: request n is at n % in_flight */
    uint64_t first;        /* number of the oldest request in flight */
    uint64_t next;         /* number of the next request */
    uint64_t busy_count;   /* requests that nodes have yet to answer */
    float *pooled;         /* [in_flight][bag_count, dim] */
    float **spare;         /* [spare_count] results that no request uses, last used last */
    uint64_t spare_count;  /* at most in_flight */
    char *received;        /* [RECEIVE_BYTES] */
    float *expected, *row; /* [dim] */
    bool has_failed;
};

static bool fail(struct course *course, const char *why)
{
    fprintf(stderr, "embag-peer-redis: %s\n", why);
    course->has_failed = true;
    return false;
}

static unsigned count_nodes(const struct course *course)
{
    return course->run->link->node_count;
}

static struct command *find_command(const struct course *course, uint64_t position, unsigned node)
{
    return &course->commands[position * count_nodes(course) + node];
}

static struct sent *find_sent(const struct course *course, uint64_t number)
{
    return &course->sent[number % course->run->options->in_flight];
}

/* The arguments of an MGET while it is formatted. */
struct mget {
    char (*keys)[EB_REDIS_KEY_BYTES]; /* [request_indices] */
    const char **arguments;           /* [1 + request_indices] */
    size_t *lengths;                  /* [1 + request_indices] */
};

/* Formats the MGET of the rows of a request that a node holds. Writes their bags to `bags` and
 * returns their number, or -1 if out of memory. */
static int format_command(
    struct course *course, uint64_t position, unsigned node, struct mget *mget, uint32_t *bags)
{
    const struct eb_load_pool *pool = course->run->pool;
    struct command *command = find_command(course, position, node);
    const int64_t *index = pool->indices + position * pool->request_indices;
    uint32_t count = 0;
    for (uint32_t bag = 0; bag < course->bag_count; bag++) {
        uint32_t table = (uint32_t)(bag / course->bags_per_query);
        for (uint32_t i = 0; i < pool->target->tables[table].indices_per_bag; i++, index++) {
            if ((uint64_t)*index % count_nodes(course) == node) {
                eb_redis_link_write_key(
                    course->run->link, table, (uint64_t)*index, mget->keys[count]);
                mget->arguments[count + 1] = mget->keys[count];
                mget->lengths[count + 1] = EB_REDIS_KEY_BYTES;
                bags[count++] = bag;
            }
        }
    }
    int length = count > 0 ? redisFormatCommandArgv(
                                 &command->bytes, (int)count + 1, mget->arguments, mget->lengths)
                           : 0;
    command->count = length > 0 ? (size_t)length : 0;
    command->bags = bags;
    command->row_count = count;
    return length < 0 ? -1 : (int)count;
}

/* Formats the commands of all requests. Returns false if out of memory. */
static bool format_commands(struct course *course)
{
    const struct eb_load_pool *pool = course->run->pool;
    struct mget mget = {
        .keys = calloc(pool->request_indices, sizeof *mget.keys),
        .arguments = calloc(pool->request_indices + 1, sizeof *mget.arguments),
        .lengths = calloc(pool->request_indices + 1, sizeof *mget.lengths),
    };
    bool is_good = mget.keys && mget.arguments && mget.lengths;
    uint32_t *bags = course->bags;
    if (is_good) {
        mget.arguments[0] = "MGET";
        mget.lengths[0] = strlen("MGET");
    }
    for (uint64_t i = 0; is_good && i < pool->count; i++) {
        for (unsigned node = 0; is_good && node < count_nodes(course); node++) {
            int count = format_command(course, i, node, &mget, bags);
            is_good = count >= 0;
            bags += is_good ? count : 0;
        }
    }
    free(mget.keys);
    free(mget.arguments);
    free(mget.lengths);
    return is_good;
}

static bool take_memory(struct course *course)
{
    const struct eb_load_pool *pool = course->run->pool;
    uint64_t in_flight = course->run->options->in_flight;
    uint64_t pooled_count = course->bag_count * course->dim;
    course->bags = calloc(pool->count * pool->request_indices, sizeof *course->bags);
    course->commands = calloc(pool->count * count_nodes(course), sizeof *course->commands);
    course->sent = calloc(in_flight, sizeof *course->sent);
    course->pooled = calloc(in_flight * pooled_count, sizeof *course->pooled);
    course->spare = calloc(in_flight, sizeof *course->spare);
    course->received = malloc(RECEIVE_BYTES);
    course->expected = calloc(course->dim, sizeof *course->expected);
    course->row = calloc(course->dim, sizeof *course->row);
    bool has_all = course->bags && course->commands && course->sent && course->pooled &&
                   course->spare && course->received && course->expected && course->row &&
                   format_commands(course);
    for (uint64_t i = 0; has_all && i < in_flight; i++) {
        course->spare[course->spare_count++] = course->pooled + i * pooled_count;
    }
    return has_all || fail(course, "not enough memory for the requests");
}

static void give_memory(struct course *course)
{
    uint64_t count = course->run->pool->count * count_nodes(course);
    for (uint64_t i = 0; course->commands && i < count; i++) {
        redisFreeCommand(course->commands[i].bytes);
    }
    free(course->bags);
    free(course->commands);
    free(course->sent);
    free(course->pooled);
    free(course->spare);
    free(course->received);
    free(course->expected);
    free(course->row);
}

/* Sends the next request to all nodes that have rows of it. */
static bool send_one(struct course *course, uint64_t due_ns, uint64_t now_ns)
{
    uint64_t position = course->next % course->run->pool->count;
    struct sent *sent = find_sent(course, course->next++);
    *sent = (struct sent){.position = position, .due_ns = due_ns, .sent_ns = now_ns};
    course->busy_count++;
    for (unsigned node = 0; node < count_nodes(course); node++) {
        const struct command *command = find_command(course, position, node);
        redisContext *link = course->run->link->nodes[node];
        if (command->row_count == 0) {
            continue;
        }
        if (redisAppendFormattedCommand(link, command->bytes, command->count) != REDIS_OK) {
            return fail(course, link->errstr);
        }
        sent->awaited++;
        course->nodes[node].has_unsent = true;
    }
    return true;
}

static void draw_due(struct course *course)
{
    course->due_ns = course->start_ns + eb_load_arrival_next_ns(&course->arrival);
}

static uint64_t find_timeout_ns(const struct course *course)
{
    return course->run->options->timeout_us * NS_PER_US;
}

static bool has_room(const struct course *course)
{
    return course->next - course->first < course->run->options->in_flight;
}

/* Sends all requests that are due, within the limit on requests in flight. */
static bool send_all(struct course *course, uint64_t now_ns)
{
    while (has_room(course)) {
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

/* Adds the rows of a command to their bags. Returns false if a row is missing or has the wrong
 * length. */
static bool pool_rows(
    const struct course *course, const struct command *command, const redisReply *reply, float *out)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != command->row_count) {
        return false;
    }
    for (uint32_t i = 0; i < command->row_count; i++) {
        const redisReply *row = reply->element[i];
        const char *restrict values = row->str;
        float *restrict bag = out + (uint64_t)command->bags[i] * course->dim;
        if (row->type != REDIS_REPLY_STRING || (size_t)row->len != course->dim * sizeof *bag) {
            return false;
        }
        for (uint32_t column = 0; column < course->dim; column++) {
            float value;
            memcpy(&value, values + column * sizeof value, sizeof value);
            bag[column] += value;
        }
    }
    return true;
}

/* Returns whether a request's results are the sums of the published values, which are exact. */
static bool verify_bags(struct course *course, const struct sent *sent)
{
    const struct eb_load_pool *pool = course->run->pool;
    const int64_t *index = pool->indices + sent->position * pool->request_indices;
    for (uint64_t bag = 0; bag < course->bag_count; bag++) {
        const struct eb_load_table *table = &pool->target->tables[bag / course->bags_per_query];
        uint64_t seed = eb_workload_seed(table->name, 1);
        memset(course->expected, 0, course->dim * sizeof *course->expected);
        for (uint32_t i = 0; i < table->indices_per_bag; i++, index++) {
            eb_workload_fill_row(seed, (uint64_t)*index, course->row, course->dim);
            for (uint32_t column = 0; column < course->dim; column++) {
                course->expected[column] += course->row[column];
            }
        }
        for (uint32_t column = 0; column < course->dim; column++) {
            if (sent->pooled[bag * course->dim + column] != course->expected[column]) {
                return false;
            }
        }
    }
    return true;
}

/* Counts a request that all nodes have answered. */
static void finish(struct course *course, struct sent *sent)
{
    struct embag_error error = {.status = EMBAG_OK};
    struct eb_load_outcome outcome = {
        .due_ns = sent->due_ns,
        .sent_ns = sent->sent_ns,
        .done_ns = eb_load_clock_read_ns(),
        .error = &error,
        .answer_bytes = course->bag_count * course->dim * sizeof *sent->pooled,
    };
    if (sent->is_row_missing) {
        error.status = EMBAG_NOT_FOUND;
        snprintf(error.text, sizeof error.text, "a row is missing or has the wrong length");
    } else if (outcome.done_ns > sent->due_ns + find_timeout_ns(course)) {
        error.status = EMBAG_DEADLINE_EXCEEDED;
        snprintf(error.text, sizeof error.text, "the answer came after its timeout");
    } else if (course->run->options->is_verified) {
        outcome.is_wrong = !verify_bags(course, sent);
    }
    eb_load_stats_add(&course->result->stats, &course->window, &outcome);
    course->spare[course->spare_count++] = sent->pooled;
    course->busy_count--;
    while (course->first < course->next && find_sent(course, course->first)->awaited == 0) {
        course->first++;
    }
}

/* Handles a node's next answer. Returns false if it has none to give. */
static bool take_answer(struct course *course, unsigned node, const redisReply *reply)
{
    uint64_t *number = &course->nodes[node].next;
    const struct command *command = NULL;
    struct sent *sent = NULL;
    /* Requests before the first are answered, and their slots may have been used again. */
    *number = *number < course->first ? course->first : *number;
    do {
        if (*number == course->next) {
            return fail(course, "received an answer without a request");
        }
        sent = find_sent(course, (*number)++);
        command = find_command(course, sent->position, node);
    } while (command->row_count == 0);
    if (!sent->pooled) {
        sent->pooled = course->spare[--course->spare_count];
        memset(sent->pooled, 0, course->bag_count * course->dim * sizeof *sent->pooled);
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        return fail(course, reply->str);
    }
    sent->is_row_missing = !pool_rows(course, command, reply, sent->pooled) || sent->is_row_missing;
    if (--sent->awaited == 0) {
        finish(course, sent);
    }
    return true;
}

/* Receives everything available from a node, with one large read if it fits: the more answers are
 * handled at once, the fewer writes follow. hiredis itself reads 16 KiB at a time. */
static bool receive(struct course *course, unsigned node)
{
    redisContext *link = course->run->link->nodes[node];
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
        bool is_taken = take_answer(course, node, reply);
        freeReplyObject(reply);
        if (!is_taken) {
            return false;
        }
    }
}

static bool flush(struct course *course)
{
    for (unsigned node = 0; node < count_nodes(course); node++) {
        redisContext *link = course->run->link->nodes[node];
        bool *has_unsent = &course->nodes[node].has_unsent;
        int is_done = 0;
        if (*has_unsent && redisBufferWrite(link, &is_done) != REDIS_OK) {
            return fail(course, link->errstr);
        }
        *has_unsent = *has_unsent && !is_done;
    }
    return true;
}

/* Waits until an answer has arrived, bytes can be sent or a request is due, and receives
 * answers. */
static bool wait_and_receive(struct course *course, uint64_t now_ns)
{
    struct pollfd poll_fds[EB_REDIS_NODES_MAX];
    unsigned count = count_nodes(course);
    uint64_t wait_ns = TICK_NS;
    for (unsigned node = 0; node < count; node++) {
        bool has_unsent = course->nodes[node].has_unsent;
        poll_fds[node] = (struct pollfd){.fd = course->run->link->nodes[node]->fd,
            .events = (short)(POLLIN | (has_unsent ? POLLOUT : 0))};
    }
    if (!course->window.is_closed && has_room(course) && course->due_ns < now_ns + wait_ns) {
        wait_ns = course->due_ns > now_ns ? course->due_ns - now_ns : 0;
    }
    struct timespec timeout = {.tv_nsec = (long)wait_ns};
    int rc = ppoll(poll_fds, count, &timeout, NULL);
    if (rc < 0 && errno != EINTR) {
        return fail(course, strerror(errno));
    }
    bool is_good = true;
    for (unsigned node = 0; rc > 0 && is_good && node < count; node++) {
        is_good = (poll_fds[node].revents & ~POLLOUT) == 0 || receive(course, node);
    }
    return is_good;
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
    struct course course = {
        .run = run,
        .result = result,
        .dim = run->pool->target->tables[0].column_count,
        .bags_per_query = run->pool->bag_count,
        .bag_count = (uint64_t)run->pool->target->table_count * run->pool->bag_count,
    };
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
