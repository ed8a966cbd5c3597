/* Memory with pages before and behind it that cannot be touched.
 * Thread: any, one at a time. Memory: a mapping of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guarded {
    uint8_t *begin;
    uint8_t *end;
};

/* Maps at least `bytes`, zeroes, of which untouched pages cost nothing. false: the system refuses;
 * *guarded is zero. */
bool guarded_map(struct guarded *guarded, size_t bytes);
/* Accepts a zeroed one. */
void guarded_unmap(struct guarded *guarded);

/* Where `bytes` end at the page that would be read past them, or sometimes begin at the other. */
uint8_t *guarded_place(const struct guarded *guarded, size_t bytes);
