#include "client/cli/load_progress.h"

#include "client/cli/load_clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

void eb_load_progress_init(struct eb_load_progress *progress,
    struct eb_load_connection *connections, unsigned connection_count,
    const struct eb_load_window *window)
{
    uint64_t now_ns = eb_load_clock_read_ns();
    *progress = (struct eb_load_progress){
        .connections = connections,
        .connection_count = connection_count,
        .window = *window,
        .next_ns = now_ns + NS_PER_S,
        .last_ns = now_ns,
        .is_terminal = isatty(STDERR_FILENO) == 1,
    };
}

/* Before the window there are no figures to tell. */
static void show_warmup(const struct eb_load_progress *progress, uint64_t now_ns, unsigned busy)
{
    fprintf(stderr, "warm-up, %.1f s left: %u in flight%s",
        (double)(progress->window.begin_ns - now_ns) / (double)NS_PER_S, busy,
        progress->is_terminal ? "\033[K\r" : "\n");
}

static void show_window(const struct eb_load_progress *progress, uint64_t now_ns, unsigned busy,
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

void eb_load_progress_show(struct eb_load_progress *progress, uint64_t now_ns)
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

void eb_load_progress_end(struct eb_load_progress *progress)
{
    if (progress->is_line_open) {
        fputs("\033[K", stderr);
        progress->is_line_open = false;
    }
}
