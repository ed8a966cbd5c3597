/* Memory between two inaccessible guard pages.
 * Thread: any, one at a time. Memory: each has its own mapping. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guarded {
    uint8_t *begin;
    uint8_t *end;
};

/* Maps at least `bytes` of zeroed memory, whose untouched pages use no memory. Returns false, with
 * *guarded zeroed, if the system refuses. */
bool guarded_map(struct guarded *guarded, size_t bytes);
/* Unmaps the memory. Accepts a zeroed struct. */
void guarded_unmap(struct guarded *guarded);

/* Returns an address for `bytes`: usually they end at the guard page after the memory, and
 * sometimes they begin at the guard page before it. */
uint8_t *guarded_place(const struct guarded *guarded, size_t bytes);
