#include "tests/bench/cpu_figures.h"

#include <stdlib.h>
#include <time.h>

double eb_cpu_figures_read_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare_figures(const void *left, const void *right)
{
    const double *a = left;
    const double *b = right;
    return (*a > *b) - (*a < *b);
}

double eb_cpu_figures_median(double *figures, size_t count)
{
    qsort(figures, count, sizeof *figures, compare_figures);
    return figures[count / 2];
}
