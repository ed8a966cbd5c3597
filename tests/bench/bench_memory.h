/* Allocates memory for the benchmark, and ends the process if there is none.
 * Thread: any. Memory: heap, released by free(). */
#pragma once

#include <stddef.h>

/* Returns `bytes` zeroed bytes, aligned to 64. If there is not enough memory, it prints a message
 * on stderr and ends the process. */
void *eb_bench_memory_take(size_t bytes);
