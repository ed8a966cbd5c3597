/* Memory of the benchmark's own: what cannot be had ends it.
 * Thread: any. Memory: heap, given back by free(). */
#pragma once

#include <stddef.h>

/* `bytes` zeroed bytes, aligned to 64. Without them the process says so and ends: there is nothing
 * to measure. */
void *eb_bench_memory_take(size_t bytes);
