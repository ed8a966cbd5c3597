#include "client/cli/progress_bar.h"

#include "client/cli/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define WIDTH 40
#define BYTES_PER_MIB (1024 * 1024)
/* Without a terminal, lines are printed only for long tasks. */
#define PERCENT_PER_LINE 10
#define LINES_FROM_BYTES (UINT64_C(256) << 20)

void eb_progress_bar_init(struct eb_progress_bar *bar, const char *name, uint64_t total_bytes)
{
    *bar = (struct eb_progress_bar){
        .name = name, .total_bytes = total_bytes, .is_terminal = isatty(STDERR_FILENO) == 1};
}

static void draw_bar(struct eb_progress_bar *bar)
{
    int filled = (int)bar->shown_percent * WIDTH / 100;
    bar->is_line_open = bar->shown_percent < 100;
    fprintf(stderr, "\r%s [%.*s%*s] %3u %%%s", eb_output_printable(bar->name).bytes, filled,
        "########################################", WIDTH - filled, "", bar->shown_percent,
        bar->is_line_open ? "" : "\n");
}

void eb_progress_bar_advance(struct eb_progress_bar *bar, uint64_t bytes)
{
    bar->done_bytes += bytes;
    if (bar->total_bytes == 0 || (!bar->is_terminal && bar->total_bytes < LINES_FROM_BYTES)) {
        return;
    }
    unsigned percent = (unsigned)((double)bar->done_bytes / (double)bar->total_bytes * 100);
    unsigned step = bar->is_terminal ? 1 : PERCENT_PER_LINE;
    if (percent / step == bar->shown_percent / step) {
        return;
    }
    bar->shown_percent = percent;
    if (bar->is_terminal) {
        draw_bar(bar);
    } else {
        fprintf(stderr, "embag: %s: %u %% of %" PRIu64 " MiB\n",
            eb_output_printable(bar->name).bytes, percent, bar->total_bytes / BYTES_PER_MIB);
    }
}

void eb_progress_bar_end(struct eb_progress_bar *bar)
{
    if (bar->is_line_open) {
        fputc('\n', stderr);
        bar->is_line_open = false;
    }
}
