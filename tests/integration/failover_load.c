/* A load of lookups on several servers, at a given rate: lookups are sent when they are due,
 * however late the answers of earlier ones are. test_failover.py and tests/bench/failover.py run it
 * and disturb the servers meanwhile. Every value of row n of the table is n. A wrong answer ends
 * the program.
 *
 * It prints one JSON object for each line of its input: how lookups have ended so far, and the
 * client's figures. The load ends after its last lookup, or at the end of the input. The last
 * object has the latencies as well. They count from when a lookup was due. */
#include <embag_async.h>
#include <embag_servers.h>
#include <err.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_US 1000
#define NS_PER_S INT64_C(1000000000)
#define STATUSES 17
#define SERVERS_MAX 16
#define INDICES_MAX 65536 /* of one lookup */
#define IN_FLIGHT_MAX 65536
#define INPUT_BYTES 256

static const char usage[] =
    "usage: embag-failover-load --server ADDRESS [OPTION]...\n"
    "  --rate N          lookups per second (default 100)\n"
    "  --lookups N       most lookups (default 100000)\n"
    "  --hedge N         hedges per hundred lookups (default 0)\n"
    "  --retries N       times that a lookup is sent again (default: the client's)\n"
    "  --timeout-us N    of a lookup (default 20 s)\n"
    "  --connect-us N    time to connect (default: the client's)\n"
    "  --wait N          begin when N servers are connected (default 0: the first)\n"
    "  --rows N          of the table (default 1000)\n"
    "  --bags N          of a lookup (default 4)\n"
    "  --indices N       of a bag (default 4)\n"
    "  --latencies FILE  write three int64 of the host for each lookup: when it was due, by\n"
    "                    CLOCK_MONOTONIC, its latency, and the server's own time for it, all\n"
    "                    in ns; -1: it failed\n";

struct load {
    const char *address;
    const char *latencies_path;
    uint64_t rate;
    uint64_t lookups_max;
    uint64_t timeout_us;
    uint64_t rows, bags, indices;
    uint32_t wait_count;
    struct embag_options options;

    struct embag_client *client;
    struct lookup *lookups; /* [lookups_max] */
    uint64_t begun;
    uint64_t unsent; /* refused by the client at once */
    int64_t begin_ns;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t is_done;
    uint64_t done;
    uint64_t counts[STATUSES]; /* by status */
};

struct lookup {
    struct load *load;
    int64_t due_ns;
    int64_t latency_ns; /* -1: it failed */
    int64_t server_ns;  /* the server's own time; -1: it failed */
};

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* ---- lookups ---- */

/* Returns the index at a position of a lookup. */
static int64_t index_at(const struct load *load, uint64_t lookup, uint64_t position)
{
    return (int64_t)((lookup * 7919 + position * 31) % load->rows);
}

static float expected_sum(const struct load *load, uint64_t lookup, uint64_t bag)
{
    int64_t sum = 0;
    for (uint64_t i = 0; i < load->indices; i++) {
        sum += index_at(load, lookup, bag * load->indices + i);
    }
    return (float)sum;
}

static void check_values(
    const struct load *load, uint64_t number, const struct embag_answer *answer)
{
    const struct embag_result *result = &answer->results[0];
    if (result->rank != 2 || result->shape[0] != load->bags || result->type != EMBAG_F32) {
        errx(1, "an answer of another shape");
    }
    const float *values = result->values;
    for (uint64_t bag = 0; bag < load->bags; bag++) {
        float expected = expected_sum(load, number, bag);
        for (uint64_t column = 0; column < result->shape[1]; column++) {
            float value = values[bag * result->shape[1] + column];
            if (value != expected) {
                errx(1, "lookup %" PRIu64 ", bag %" PRIu64 ": %g, expected %g", number, bag,
                    (double)value, (double)expected);
            }
        }
    }
}

static void on_answer(const struct embag_completion *completion)
{
    struct lookup *lookup = completion->context;
    struct load *load = lookup->load;
    int64_t latency_ns = now_ns() - lookup->due_ns;
    enum embag_status status = completion->error.status;
    if (status == EMBAG_OK) {
        lookup->latency_ns = latency_ns;
        lookup->server_ns =
            (int64_t)(completion->answer->queue_us + completion->answer->compute_us) * NS_PER_US;
        check_values(load, (uint64_t)(lookup - load->lookups), completion->answer);
    } else {
        warnx("%s: %s", embag_status_name(status), completion->error.text);
    }
    embag_answer_free(completion->answer);
    (void)pthread_mutex_lock(&load->lock);
    load->counts[status]++;
    load->done++;
    (void)pthread_cond_signal(&load->is_done);
    (void)pthread_mutex_unlock(&load->lock);
}

static void send_lookup(struct load *load, int64_t due_ns)
{
    static int64_t indices[INDICES_MAX];
    uint64_t number = load->begun++;
    uint64_t count = load->bags * load->indices;
    for (uint64_t i = 0; i < count; i++) {
        indices[i] = index_at(load, number, i);
    }
    struct lookup *lookup = &load->lookups[number];
    *lookup = (struct lookup){.load = load, .due_ns = due_ns, .latency_ns = -1, .server_ns = -1};
    struct embag_query query = {.table = "t",
        .reduction = EMBAG_SUM,
        .indices = {indices, count, 8},
        .indices_per_bag = (uint32_t)load->indices};
    struct embag_request request = {.model = "m", .queries = &query, .query_count = 1};
    struct embag_call how = {.on_done = on_answer, .context = lookup};
    if (embag_submit(load->client, &request, &how, NULL, NULL) != EMBAG_OK) {
        load->unsent++;
        (void)pthread_mutex_lock(&load->lock);
        load->done++;
        (void)pthread_mutex_unlock(&load->lock);
    }
}

/* ---- reports ---- */

static void print_servers(const struct embag_server_stats *servers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct embag_server_stats *server = &servers[i];
        printf(
            "%s{\"address\": \"%s\", \"connected\": %s, \"left_out\": %s, \"in_flight\": %" PRIu32
            ", \"sent\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"ejected\": %" PRIu64
            ", \"latency_us\": %" PRIu64 "}",
            i > 0 ? ", " : "", server->address, server->is_connected ? "true" : "false",
            server->is_left_out ? "true" : "false", server->in_flight, server->sent, server->failed,
            server->left_out, server->latency_us);
    }
}

/* Prints all but the end of a report. */
static void print_report(struct load *load)
{
    struct embag_stats stats;
    struct embag_server_stats servers[SERVERS_MAX];
    if (embag_get_stats(load->client, &stats, servers, SERVERS_MAX) != EMBAG_OK) {
        errx(1, "no figures of the client");
    }
    printf("{\"begun\": %" PRIu64 ", \"unsent\": %" PRIu64, load->begun, load->unsent);
    (void)pthread_mutex_lock(&load->lock);
    printf(", \"done\": %" PRIu64 ", \"statuses\": {", load->done);
    const char *comma = "";
    for (unsigned i = 0; i < STATUSES; i++) {
        if (load->counts[i] > 0) {
            printf("%s\"%s\": %" PRIu64, comma, embag_status_name((enum embag_status)i),
                load->counts[i]);
            comma = ", ";
        }
    }
    (void)pthread_mutex_unlock(&load->lock);
    printf("}, \"lookups\": %" PRIu64 ", \"resends\": %" PRIu64 ", \"hedges\": %" PRIu64
           ", \"hedges_won\": %" PRIu64 ", \"known\": %" PRIu32 ", \"servers\": [",
        stats.lookups, stats.resends, stats.hedges, stats.hedges_won, stats.servers);
    print_servers(servers, stats.servers < SERVERS_MAX ? stats.servers : SERVERS_MAX);
    printf("]");
}

static int compare_latencies(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_percentiles(const struct load *load)
{
    static const struct {
        const char *name;
        double share;
    } percentiles[] = {{"p50_us", 0.5}, {"p99_us", 0.99}, {"p999_us", 0.999}, {"max_us", 1}};
    int64_t *sorted = calloc(load->begun + 1, sizeof *sorted);
    size_t count = 0;
    if (!sorted) {
        errx(1, "out of memory");
    }
    for (uint64_t i = 0; i < load->begun; i++) {
        if (load->lookups[i].latency_ns >= 0) {
            sorted[count++] = load->lookups[i].latency_ns;
        }
    }
    qsort(sorted, count, sizeof *sorted, compare_latencies);
    for (size_t i = 0; count > 0 && i < sizeof percentiles / sizeof percentiles[0]; i++) {
        size_t rank = (size_t)(percentiles[i].share * (double)(count - 1) + 0.5);
        printf(", \"%s\": %.1f", percentiles[i].name, (double)sorted[rank] / NS_PER_US);
    }
    free(sorted);
}

static void write_latencies(const struct load *load)
{
    FILE *file = fopen(load->latencies_path, "wb");
    if (!file) {
        err(1, "%s", load->latencies_path);
    }
    for (uint64_t i = 0; i < load->begun; i++) {
        const struct lookup *lookup = &load->lookups[i];
        int64_t times[] = {lookup->due_ns, lookup->latency_ns, lookup->server_ns};
        (void)fwrite(times, sizeof times, 1, file);
    }
    if (fclose(file) != 0) {
        err(1, "%s", load->latencies_path);
    }
}

/* ---- the load ---- */

/* Waits for input until a time. Returns false at its end; prints a report for each line. */
static bool serve_input(struct load *load, int64_t until_ns)
{
    char input[INPUT_BYTES];
    struct pollfd waited = {.fd = STDIN_FILENO, .events = POLLIN};
    int64_t left_ns = until_ns - now_ns();
    struct timespec left = {.tv_nsec = 0};
    if (left_ns > 0) {
        left = (struct timespec){left_ns / NS_PER_S, left_ns % NS_PER_S};
    }
    if (ppoll(&waited, 1, &left, NULL) <= 0) {
        return true;
    }
    ssize_t size = read(STDIN_FILENO, input, sizeof input);
    for (ssize_t i = 0; i < size; i++) {
        if (input[i] == '\n') {
            print_report(load);
            printf("}\n");
            (void)fflush(stdout);
        }
    }
    return size > 0;
}

/* Sends lookups when they are due until they are all sent, or the input ends. */
static void run_load(struct load *load)
{
    load->begin_ns = now_ns();
    bool may_continue = true;
    while (may_continue && load->begun < load->lookups_max) {
        int64_t due_ns = load->begin_ns + (int64_t)(load->begun * (uint64_t)NS_PER_S / load->rate);
        may_continue = serve_input(load, due_ns);
        if (may_continue && due_ns <= now_ns()) {
            send_lookup(load, due_ns);
        }
    }
    (void)pthread_mutex_lock(&load->lock);
    while (load->done < load->begun) {
        (void)pthread_cond_wait(&load->is_done, &load->lock);
    }
    (void)pthread_mutex_unlock(&load->lock);
}

static void end_load(struct load *load)
{
    print_report(load);
    print_percentiles(load);
    int64_t closing_ns = now_ns();
    embag_close(load->client);
    printf(", \"close_ms\": %" PRId64 "}\n", (now_ns() - closing_ns) / (NS_PER_US * 1000));
    if (load->latencies_path) {
        write_latencies(load);
    }
    free(load->lookups);
}

static void open_client(struct load *load)
{
    struct embag_error error;
    load->options.in_flight_max = IN_FLIGHT_MAX;
    load->options.timeout_us = load->timeout_us;
    if (embag_open(load->address, &load->options, &load->client, &error) != EMBAG_OK ||
        (load->wait_count > 0 && embag_wait_ready(load->client, load->wait_count, load->timeout_us,
                                     &error) != EMBAG_OK)) {
        errx(1, "%s: %s", embag_status_name(error.status), error.text);
    }
}

/* ---- the command line ---- */

static uint64_t read_number(const char *name, const char *text)
{
    char *end;
    uint64_t number = strtoull(text, &end, 10);
    if (*end || end == text) {
        errx(2, "%s \"%s\": expected a whole number", name, text);
    }
    return number;
}

/* Reads an option and its value. Returns false if there is no such option. */
static bool read_option(struct load *load, const char *name, const char *text)
{
    struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"--rate", &load->rate}, {"--lookups", &load->lookups_max},
        {"--timeout-us", &load->timeout_us}, {"--connect-us", &load->options.connect_timeout_us},
        {"--rows", &load->rows}, {"--bags", &load->bags}, {"--indices", &load->indices}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].value = read_number(name, text);
            return true;
        }
    }
    if (strcmp(name, "--server") == 0) {
        load->address = text;
    } else if (strcmp(name, "--latencies") == 0) {
        load->latencies_path = text;
    } else if (strcmp(name, "--hedge") == 0) {
        load->options.hedge_percent = (uint32_t)read_number(name, text);
    } else if (strcmp(name, "--retries") == 0) {
        load->options.retries_max = (int32_t)read_number(name, text);
    } else if (strcmp(name, "--wait") == 0) {
        load->wait_count = (uint32_t)read_number(name, text);
    } else {
        return false;
    }
    return true;
}

static void read_options(struct load *load, int argument_count, char **arguments)
{
    int i = 1;
    while (i + 1 < argument_count && read_option(load, arguments[i], arguments[i + 1])) {
        i += 2;
    }
    if (i < argument_count || !load->address) {
        (void)fputs(usage, stderr);
        exit(2);
    }
    if (load->rate == 0 || load->rows == 0 || load->lookups_max == 0 || load->bags == 0 ||
        load->indices == 0 || load->bags * load->indices > INDICES_MAX) {
        errx(2, "numbers must be above 0, and a lookup has at most %d indices", INDICES_MAX);
    }
}

int main(int argument_count, char **arguments)
{
    static struct load load = {.rate = 100,
        .lookups_max = 100000,
        .timeout_us = 20000000,
        .rows = 1000,
        .bags = 4,
        .indices = 4,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .is_done = PTHREAD_COND_INITIALIZER};
    read_options(&load, argument_count, arguments);
    load.lookups = calloc(load.lookups_max, sizeof *load.lookups);
    if (!load.lookups) {
        errx(1, "out of memory");
    }
    open_client(&load);
    run_load(&load);
    end_load(&load);
    return 0;
}
