#include "tests/bench/bench_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64

void *eb_bench_memory_take(size_t bytes)
{
    size_t room = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, room);
    if (!memory) {
        fprintf(stderr, "embag-bench: out of memory: cannot allocate %zu bytes\n", bytes);
        exit(1);
    }
    return memset(memory, 0, room);
}
