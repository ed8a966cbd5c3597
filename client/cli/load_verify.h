/* Whether answers are right, to the bit: the rows of a request are made from the published hash
 * (client/cli/workload.h) and pooled by the reference of the kernels.
 * Thread: any number may compare answers at once, one at a time those of versions other than the
 * kept ones. Memory: what the answers should be of the version that is served at the start, and of
 * those behind it that the pool asks for, is computed once per request and kept, and so much again
 * as one version takes for those of the other version that a request was answered by last; the pool
 * has no more requests than that allows. */
#pragma once

#include "client/cli/load_pool.h"

#include <pthread.h>

/* All zero is one that cannot compare. */
struct eb_load_verify {
    const struct eb_load_pool *pool; /* NULL: it was not initialised */
    uint64_t version;                /* the first whose answers are kept */
    uint8_t *kept;                   /* [pool->kept_versions][pool->count][pool->answer_bytes] */
    pthread_mutex_t lock;            /* of what follows */
    uint64_t *later_versions;        /* [pool->count]; version: nothing there yet */
    uint8_t *later;                  /* as kept, each of its own version */
};

/* Computes the answers that are kept. false: no memory, said on stderr. */
bool eb_load_verify_init(struct eb_load_verify *verify, const struct eb_load_pool *pool);
void eb_load_verify_deinit(struct eb_load_verify *verify);

/* Whether it is the right answer to the request at `position` of the pool, of whatever version it
 * says it is. */
bool eb_load_verify_answer(
    struct eb_load_verify *verify, uint64_t position, const struct embag_answer *answer);
