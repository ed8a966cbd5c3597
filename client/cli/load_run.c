#include "client/cli/load_run.h"

#include "client/cli/load_clock.h"
#include "client/cli/sampler.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_US 1000
/* Interval at which the run checks for signals, prints progress and, in a closed load, reuses the
 * slots of failed requests. */
#define TICK_NS (10 * UINT64_C(1000000))
/* Time after the timeout of the last request during which answers are still awaited. */
#define DRAIN_SPARE_NS NS_PER_S
#define INTERRUPTED_DRAIN_NS NS_PER_S
#define TIMER_SLACK_NS 1000

/* ---- signals ---- */

static volatile sig_atomic_t interrupt_has_come;

static void on_interrupt_signal(int number)
{
    (void)number;
    interrupt_has_come = 1;
}

void eb_load_interrupt_init(void)
{
    /* SA_RESTART is not set, so that a signal ends a sleep. SA_RESETHAND is set, so that the next
     * signal has its default effect. */
    struct sigaction action = {.sa_handler = on_interrupt_signal, .sa_flags = (int)SA_RESETHAND};
    interrupt_has_come = 0;
    int rc = sigaction(SIGINT, &action, NULL);
    assert(rc == 0);
    rc = sigaction(SIGTERM, &action, NULL);
    assert(rc == 0);
}

bool eb_load_interrupt_has_come(void)
{
    return interrupt_has_come != 0;
}

/* ---- progress, on stderr ---- */

/* The progress lines. On a terminal each line overwrites the previous one; elsewhere each is
 * printed below it. */
struct progress {
    struct eb_load_connection *connections; /* [connection_count] */
    unsigned connection_count;
    struct eb_load_window window;
    uint64_t next_ns;      /* time of the next line */
    uint64_t last_ns;      /* time of the last line */
    uint64_t last_answers; /* number of answers at the last line */
    bool is_terminal;
    bool is_line_open;
};

/* Starts the progress lines at the current time. */
static void init_progress(struct progress *progress, struct eb_load_connection *connections,
    unsigned connection_count, const struct eb_load_window *window)
{
    uint64_t now_ns = eb_load_clock_read_ns();
    *progress = (struct progress){
        .connections = connections,
        .connection_count = connection_count,
        .window = *window,
        .next_ns = now_ns + NS_PER_S,
        .last_ns = now_ns,
        .is_terminal = isatty(STDERR_FILENO) == 1,
    };
}

/* Prints the warm-up line. There are no figures before the measured time. */
static void show_warmup(const struct progress *progress, uint64_t now_ns, unsigned busy)
{
    fprintf(stderr, "warm-up, %.1f s left: %u in flight%s",
        (double)(progress->window.begin_ns - now_ns) / (double)NS_PER_S, busy,
        progress->is_terminal ? "\033[K\r" : "\n");
}

static void show_window(const struct progress *progress, uint64_t now_ns, unsigned busy,
    const struct eb_load_stats *stats)
{
    uint64_t from_ns = progress->last_ns > progress->window.begin_ns ? progress->last_ns
                                                                     : progress->window.begin_ns;
    double seconds = (double)(now_ns - from_ns) / (double)NS_PER_S;
    double answers = (double)(stats->window_answers - progress->last_answers);
    fprintf(stderr,
        "%.1f of %g s: %.0f/s, p50 %.0f us, p99 %.0f us, %" PRIu64 " errors, %" PRIu64
        " unsent, %u in flight%s",
        (double)(now_ns - progress->window.begin_ns) / (double)NS_PER_S,
        (double)(progress->window.end_ns - progress->window.begin_ns) / (double)NS_PER_S,
        seconds > 0 ? answers / seconds : 0, eb_load_stats_quantile_us(stats, 0.5),
        eb_load_stats_quantile_us(stats, 0.99), eb_load_stats_errors(stats), stats->unsent_count,
        busy, progress->is_terminal ? "\033[K\r" : "\n");
}

/* Prints a line if a second has passed. */
static void show_progress(struct progress *progress, uint64_t now_ns)
{
    if (now_ns < progress->next_ns || now_ns >= progress->window.end_ns) {
        return;
    }
    struct eb_load_stats stats = {0};
    unsigned busy = 0;
    for (unsigned i = 0; i < progress->connection_count; i++) {
        busy += eb_load_connection_report(&progress->connections[i], &stats);
    }
    if (now_ns < progress->window.begin_ns) {
        show_warmup(progress, now_ns, busy);
    } else {
        show_window(progress, now_ns, busy, &stats);
    }
    progress->is_line_open = progress->is_terminal;
    progress->last_ns = now_ns;
    progress->last_answers = stats.window_answers;
    progress->next_ns = now_ns + NS_PER_S;
}

/* Clears the line. */
static void end_progress(struct progress *progress)
{
    if (progress->is_line_open) {
        fputs("\033[K", stderr);
        progress->is_line_open = false;
    }
}

/* ---- the run ---- */

struct course {
    const struct eb_load_run *run;
    struct eb_load_window window;
    struct progress progress;
    unsigned next_connection;
    uint64_t next_tick_ns;
    bool was_interrupted;
    bool is_marked; /* servers are being counted */
};

static void sleep_until(uint64_t ns)
{
    struct timespec until = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static uint64_t find_earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

static unsigned count_connections(const struct course *course)
{
    return course->run->options->thread_count;
}

/* Begins to count servers. */
static void mark_servers(struct course *course)
{
    course->is_marked = true;
    for (unsigned i = 0; i < count_connections(course); i++) {
        eb_load_connection_mark_servers(&course->run->connections[i]);
    }
}

/* Adds up what was counted per server within the measured time, which is over. */
static void collect_servers(struct course *course, struct eb_load_servers *servers)
{
    if (!course->is_marked) {
        mark_servers(course); /* The run was interrupted before the measured time. */
    }
    for (unsigned i = 0; i < count_connections(course); i++) {
        eb_load_connection_report_servers(&course->run->connections[i], servers);
    }
}

/* Handles signals, progress and the beginning of the measured time. Returns whether the run
 * continues. */
static bool tick_run(struct course *course, uint64_t now_ns)
{
    if (eb_load_interrupt_has_come() && !course->was_interrupted) {
        course->was_interrupted = true;
        course->window.end_ns = find_earlier(now_ns, course->window.end_ns);
        for (unsigned i = 0; i < count_connections(course); i++) {
            eb_load_connection_shorten(&course->run->connections[i], course->window.end_ns);
        }
    }
    if (!course->is_marked && now_ns >= course->window.begin_ns) {
        mark_servers(course);
    }
    course->next_tick_ns = now_ns < course->window.begin_ns
                               ? find_earlier(now_ns + TICK_NS, course->window.begin_ns)
                               : now_ns + TICK_NS;
    show_progress(&course->progress, now_ns);
    return now_ns < course->window.end_ns;
}

/* Sends a request on the next connection that has room. Returns false if none has. */
static bool send_next(struct course *course, uint64_t due_ns)
{
    for (unsigned i = 0; i < count_connections(course); i++) {
        unsigned connection = (course->next_connection + i) % count_connections(course);
        if (eb_load_connection_send(&course->run->connections[connection], due_ns)) {
            course->next_connection = connection + 1;
            return true;
        }
    }
    return false;
}

/* Sends at most one request per slot. A slot whose request fails at once waits for the next
 * tick. */
static void fill_connection(struct eb_load_connection *connection)
{
    unsigned sent_count = 0;
    while (sent_count < connection->slot_count &&
           eb_load_connection_send(connection, eb_load_clock_read_ns())) {
        sent_count++;
    }
}

/* Runs a closed load. The client's thread sends the next request after every answer; this thread
 * sends only the first requests, and those after a failure. */
static void run_closed(struct course *course)
{
    uint64_t now_ns = eb_load_clock_read_ns();
    while (tick_run(course, now_ns)) {
        for (unsigned i = 0; i < count_connections(course); i++) {
            fill_connection(&course->run->connections[i]);
        }
        sleep_until(find_earlier(course->next_tick_ns, course->window.end_ns));
        now_ns = eb_load_clock_read_ns();
    }
}

/* Returns whether the timeout of a request has passed, so that nobody waits for it any more. */
static bool has_expired(const struct course *course, uint64_t due_ns, uint64_t now_ns)
{
    return now_ns > due_ns + course->run->options->timeout_us * NS_PER_US;
}

/* Sleeps until the request is due, then waits until there is room for it. Returns false if the run
 * is over. */
static bool send_when_due(struct course *course, uint64_t due_ns)
{
    for (;;) {
        uint64_t now_ns = eb_load_clock_read_ns();
        unsigned connection = course->next_connection % count_connections(course);
        if (now_ns >= course->next_tick_ns && !tick_run(course, now_ns)) {
            return false;
        }
        if (has_expired(course, due_ns, now_ns)) {
            eb_load_connection_skip(&course->run->connections[connection], due_ns);
            return true;
        }
        if (now_ns < due_ns) {
            sleep_until(find_earlier(due_ns, course->next_tick_ns));
        } else if (send_next(course, due_ns)) {
            return true;
        } else {
            (void)eb_load_connection_wait(
                &course->run->connections[connection], course->next_tick_ns);
        }
    }
}

/* Handles a request that was due before the end but could not be handled in time. Sends it if there
 * is room and its timeout has not passed; otherwise counts it as never sent. */
static void send_rest(struct course *course, uint64_t due_ns)
{
    if (has_expired(course, due_ns, eb_load_clock_read_ns()) || !send_next(course, due_ns)) {
        eb_load_connection_skip(&course->run->connections[0], due_ns);
    }
}

static void run_open(struct course *course, uint64_t start_ns)
{
    struct eb_load_arrival arrival;
    eb_load_arrival_init(&arrival, course->run->rate, course->run->seed);
    uint64_t due_ns = start_ns + eb_load_arrival_next_ns(&arrival);
    while (due_ns < course->window.end_ns && send_when_due(course, due_ns)) {
        due_ns = start_ns + eb_load_arrival_next_ns(&arrival);
    }
    while (due_ns < course->window.end_ns) {
        send_rest(course, due_ns);
        due_ns = start_ns + eb_load_arrival_next_ns(&arrival);
    }
}

/* Waits for the end of the measured time, when no more requests are due before it. */
static void await_end(struct course *course)
{
    uint64_t now_ns = eb_load_clock_read_ns();
    while (tick_run(course, now_ns)) {
        sleep_until(find_earlier(course->next_tick_ns, course->window.end_ns));
        now_ns = eb_load_clock_read_ns();
    }
}

static void drain_run(struct course *course)
{
    uint64_t now_ns = eb_load_clock_read_ns();
    uint64_t wait_ns = course->run->options->timeout_us * NS_PER_US + DRAIN_SPARE_NS;
    uint64_t until_ns =
        now_ns + (course->was_interrupted ? find_earlier(wait_ns, INTERRUPTED_DRAIN_NS) : wait_ns);
    for (unsigned i = 0; i < count_connections(course); i++) {
        (void)eb_load_connection_drain(&course->run->connections[i], until_ns);
    }
}

static void collect(const struct course *course, struct eb_load_result *result)
{
    uint64_t begin_ns = course->window.begin_ns;
    uint64_t end_ns = course->window.end_ns;
    result->rate = course->run->rate;
    result->seconds = end_ns > begin_ns ? (double)(end_ns - begin_ns) / (double)NS_PER_S : 0;
    result->was_interrupted = course->was_interrupted;
    for (unsigned i = 0; i < count_connections(course); i++) {
        unsigned lost = eb_load_connection_report(&course->run->connections[i], &result->stats);
        result->lost_count += lost;
    }
    eb_load_stats_add_lost(&result->stats, &course->window, result->lost_count);
}

void eb_load_run(const struct eb_load_run *run, struct eb_load_result *result)
{
    const struct eb_load_options *options = run->options;
    uint64_t start_ns = eb_load_clock_read_ns();
    uint64_t begin_ns = start_ns + (uint64_t)(options->warmup_s * (double)NS_PER_S);
    struct course course = {
        .run = run,
        .window =
            {
                .begin_ns = begin_ns,
                .end_ns = begin_ns + (uint64_t)(options->duration_s * (double)NS_PER_S),
                .deadline_ns =
                    options->deadline_us != 0 ? options->deadline_us * NS_PER_US : UINT64_MAX,
                .unanswered_ns = eb_load_options_unanswered_us(options) * NS_PER_US,
                .is_closed = run->rate <= 0,
            },
    };
    memset(result, 0, sizeof *result);
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    for (unsigned i = 0; i < count_connections(&course); i++) {
        eb_load_connection_begin(&run->connections[i], &course.window);
    }
    init_progress(&course.progress, run->connections, count_connections(&course), &course.window);
    if (course.window.is_closed) {
        run_closed(&course);
    } else {
        run_open(&course, start_ns);
    }
    await_end(&course);
    collect_servers(&course, &result->servers);
    drain_run(&course);
    end_progress(&course.progress);
    collect(&course, result);
}

static double per_second(uint64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

double eb_load_run_answers_per_s(const struct eb_load_result *result)
{
    return per_second(result->stats.window_answers, result->seconds);
}

double eb_load_run_good_per_s(const struct eb_load_result *result)
{
    return per_second(result->stats.window_good, result->seconds);
}
