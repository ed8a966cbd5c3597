/* A client of the server at the given address that executes the commands of its input, one a line,
 * and answers each with one line. Meanwhile test_submit.py stops, ends and restarts the server,
 * and test_renewal.py changes the client's files.
 *   submit COUNT TIMEOUT_US   starts this many lookups of one bag each
 *   cancel                    cancels the lookups of the last `submit`
 *   take COUNT                takes completions, and prints how they ended
 *   crowd COUNT               runs lookups from several threads until this many were answered;
 *                             also prints a line after each of the first three quarters
 * Every value of row n of the server's table is n. A wrong answer ends the program. */
#include <embag_async.h>
#include <err.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 5
#define INDICES_MAX 1024
#define SUBMIT_MAX 1024
#define THREADS 8
#define CALLS_EACH 16 /* calls in flight per thread of the `crowd` command */
#define PATIENCE_US 120000000
#define STATUSES 17

struct probe {
    struct embag_client *client;
    unsigned index_count; /* of each lookup */
    int64_t indices[ROWS][INDICES_MAX];
    uint64_t ids[SUBMIT_MAX]; /* of the lookups of the last `submit` */
    unsigned id_count;
    atomic_uint answered_count; /* answered lookups of the `crowd` command */
    unsigned answered_max;
};

/* How a number of lookups ended. */
struct counters {
    unsigned counts[STATUSES];
    uint32_t attempts_max;
};

static enum embag_status submit_row(
    struct probe *probe, size_t row, uint64_t timeout_us, uint64_t *id)
{
    struct embag_query query = {.table = "emb_table",
        .reduction = EMBAG_SUM,
        .indices = {probe->indices[row], probe->index_count, 8},
        .indices_per_bag = probe->index_count};
    struct embag_request request = {
        .model = "spec", .queries = &query, .query_count = 1, .timeout_us = timeout_us};
    struct embag_call how = {.context = probe->indices[row]};
    return embag_submit(probe->client, &request, &how, id, NULL);
}

static void check_answer(const struct probe *probe, const struct embag_completion *completion)
{
    const struct embag_answer *answer = completion->answer;
    const int64_t *row = completion->context;
    float expected = (float)*row * (float)probe->index_count;
    if (!!answer != (completion->error.status == EMBAG_OK)) {
        errx(1, "a completion must have an answer or an error");
    }
    if (answer && (answer->result_count != 1 || answer->results[0].values_bytes < 8)) {
        errx(1, "an answer without a result");
    }
    size_t count = answer ? answer->results[0].values_bytes / sizeof expected : 0;
    for (size_t i = 0; i < count; i++) {
        if (((const float *)answer->results[0].values)[i] != expected) {
            errx(1, "a wrong answer");
        }
    }
}

static void take_one(struct probe *probe, struct counters *counters)
{
    struct embag_completion completion;
    if (!embag_next(probe->client, PATIENCE_US, &completion)) {
        errx(1, "a lookup did not complete");
    }
    check_answer(probe, &completion);
    embag_answer_free(completion.answer);
    counters->counts[completion.error.status]++;
    if (completion.attempts > counters->attempts_max) {
        counters->attempts_max = completion.attempts;
    }
}

static void submit(struct probe *probe, unsigned count, uint64_t timeout_us)
{
    probe->id_count = count < SUBMIT_MAX ? count : SUBMIT_MAX;
    for (unsigned i = 0; i < probe->id_count; i++) {
        if (submit_row(probe, i % ROWS, timeout_us, &probe->ids[i]) != EMBAG_OK) {
            errx(1, "a lookup was not accepted");
        }
    }
    printf("submitted %u\n", probe->id_count);
}

static void cancel(struct probe *probe)
{
    for (unsigned i = 0; i < probe->id_count; i++) {
        embag_cancel(probe->client, probe->ids[i]);
    }
    printf("cancelled %u\n", probe->id_count);
}

static void take(struct probe *probe, unsigned count)
{
    struct counters counters = {{0}, 0};
    struct embag_completion extra;
    for (unsigned i = 0; i < count; i++) {
        take_one(probe, &counters);
    }
    if (embag_next(probe->client, 0, &extra)) {
        errx(1, "a lookup completed twice");
    }
    printf("attempts %" PRIu32, counters.attempts_max);
    for (unsigned status = 0; status < STATUSES; status++) {
        if (counters.counts[status] > 0) {
            printf(" %s %u", embag_status_name((enum embag_status)status), counters.counts[status]);
        }
    }
    printf("\n");
}

static void count_answered(struct probe *probe)
{
    unsigned quarter = probe->answered_max / 4;
    unsigned before = atomic_fetch_add(&probe->answered_count, CALLS_EACH);
    unsigned after = before + CALLS_EACH;
    if (after < probe->answered_max && after / quarter != before / quarter) {
        printf("a quarter answered\n");
        fflush(stdout);
    }
}

/* Each thread takes as many completions as it has started lookups, whoever started them. */
static void *run_thread(void *context)
{
    struct probe *probe = context;
    while (atomic_load(&probe->answered_count) < probe->answered_max) {
        struct counters counters = {{0}, 0};
        for (unsigned i = 0; i < CALLS_EACH; i++) {
            if (submit_row(probe, i % ROWS, PATIENCE_US, NULL) != EMBAG_OK) {
                errx(1, "a lookup was not accepted");
            }
        }
        for (unsigned i = 0; i < CALLS_EACH; i++) {
            take_one(probe, &counters);
        }
        if (counters.counts[EMBAG_OK] != CALLS_EACH) {
            errx(1, "a lookup failed");
        }
        count_answered(probe);
    }
    return NULL;
}

static void run_many(struct probe *probe, unsigned count)
{
    pthread_t threads[THREADS];
    probe->answered_max = count;
    atomic_store(&probe->answered_count, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, run_thread, probe) != 0) {
            errx(1, "cannot create a thread");
        }
    }
    for (unsigned i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    printf("all answered\n");
}

static void obey(struct probe *probe, const char *line)
{
    unsigned count = 0;
    uint64_t timeout_us = 0;
    if (sscanf(line, "submit %u %" SCNu64, &count, &timeout_us) == 2) {
        submit(probe, count, timeout_us);
    } else if (strcmp(line, "cancel\n") == 0) {
        cancel(probe);
    } else if (sscanf(line, "take %u", &count) == 1) {
        take(probe, count);
    } else if (sscanf(line, "crowd %u", &count) == 1) {
        run_many(probe, count);
    } else {
        errx(1, "unknown command: %s", line);
    }
    fflush(stdout);
}

static void fill_indices(struct probe *probe, int index_count)
{
    if (index_count < 1 || index_count > INDICES_MAX) {
        errx(1, "INDICES %d: expected 1 to %d", index_count, INDICES_MAX);
    }
    probe->index_count = (unsigned)index_count;
    for (int64_t row = 0; row < ROWS; row++) {
        for (size_t i = 0; i < INDICES_MAX; i++) {
            probe->indices[row][i] = row;
        }
    }
}

/* Returns an optional argument; NULL if it is missing or "-". */
static const char *find_file(int argument_count, char **arguments, int index)
{
    return index < argument_count && strcmp(arguments[index], "-") != 0 ? arguments[index] : NULL;
}

/* Arguments: ADDRESS stream|unary RETRIES_MAX INDICES [TOKEN_FILE [CA [CERT [KEY]]]] */
int main(int argument_count, char **arguments)
{
    static struct probe probe;
    struct embag_error error;
    char line[64];
    if (argument_count < 5 || argument_count > 9) {
        errx(
            1, "expected: ADDRESS stream|unary RETRIES_MAX INDICES [TOKEN_FILE [CA [CERT [KEY]]]]");
    }
    struct embag_options options = {.timeout_us = PATIENCE_US,
        .connections = 2,
        .mode = strcmp(arguments[2], "unary") == 0 ? EMBAG_MODE_UNARY : EMBAG_MODE_STREAM,
        .retries_max = atoi(arguments[3]),
        .access = {.token_file = find_file(argument_count, arguments, 5),
            .tls_ca = find_file(argument_count, arguments, 6),
            .tls_cert = find_file(argument_count, arguments, 7),
            .tls_key = find_file(argument_count, arguments, 8)}};
    fill_indices(&probe, atoi(arguments[4]));
    if (embag_open(arguments[1], &options, &probe.client, &error) != EMBAG_OK) {
        errx(1, "%s", error.text);
    }
    printf("open\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        obey(&probe, line);
    }
    embag_close(probe.client);
    return 0;
}
