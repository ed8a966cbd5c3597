/* The memory that the loads under way will need. Two loads that run at the same time must not both
 * count on the same free memory: each claims the memory that it needs before it takes it, and the
 * claimed memory is not available to the other. Thread: any. Memory: the owner's. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct eb_memory_claims {
    pthread_mutex_t mutex;
    uint64_t bytes; /* sum of all claims */
};

/* Returns 0 or a positive errno. */
int eb_memory_claims_init(struct eb_memory_claims *claims);
/* No load may be under way. */
void eb_memory_claims_deinit(struct eb_memory_claims *claims);

/* Replaces the claim of *held bytes, which may be 0, by one of `bytes` bytes. Returns false, with
 * *held unchanged, if less is available: *available is then what the machine has available, minus
 * the claims of others. The whole claim counts until it is given back, even when its memory has
 * already been taken, so a claim may be refused although there is enough memory, but is never
 * granted without enough. If `claims` is NULL, only compares. */
bool eb_memory_claims_take(
    struct eb_memory_claims *claims, uint64_t bytes, uint64_t *held, uint64_t *available);
/* Gives back a claim of `held` bytes. `claims` may be NULL. */
void eb_memory_claims_give(struct eb_memory_claims *claims, uint64_t held);
