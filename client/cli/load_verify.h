/* Verifies answers to the bit. The rows of a request are made from the published hash
 * (client/cli/workload.h) and pooled by the kernels' reference implementation.
 * Thread: any number may compare answers of kept versions at once; answers of other versions are
 * compared one at a time. Memory: the expected answers of the version that is served at the start,
 * and of the versions after it that the pool asks for, are computed once per request and kept. For
 * all other versions together, there is room for one answer to each request: that of the version
 * that answered the request last. The memory for all of these limits the size of the pool. */
#pragma once

#include "client/cli/load_pool.h"

#include <pthread.h>

/* If zeroed, answers cannot be compared. */
struct eb_load_verify {
    const struct eb_load_pool *pool; /* NULL: not initialised */
    uint64_t version;                /* first version whose answers are kept */
    uint8_t *kept;                   /* [pool->kept_versions][pool->count][pool->answer_bytes] */
    pthread_mutex_t lock;            /* guards what follows */
    /* [pool->count] version of each answer in `later`; equal to `version` if there is no answer
     * yet. */
    uint64_t *later_versions;
    uint8_t *later; /* [pool->count][pool->answer_bytes] answers in later_versions */
};

/* Computes the answers that are kept. Returns false after printing an error to stderr if out of
 * memory. */
bool eb_load_verify_init(struct eb_load_verify *verify, const struct eb_load_pool *pool);
void eb_load_verify_deinit(struct eb_load_verify *verify);

/* Returns whether `answer` is right for the request at `position` of the pool, in the version that
 * the answer names. */
bool eb_load_verify_answer(
    struct eb_load_verify *verify, uint64_t position, const struct embag_answer *answer);
