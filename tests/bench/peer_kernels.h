/* C++ interface of our kernels, for a server that is not ours.
 * Thread: one each. Memory: heap, until destroyed; arrays of a query are borrowed for the call. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A query for sums of rows of one f32 table. */
struct eb_peer_query {
    const float *rows; /* [row_count, dim] */
    uint64_t row_count;
    uint32_t dim;
    const void *indices; /* int64, any alignment */
    uint64_t indices_bytes;
    const void *offsets; /* int64, one for each bag, any alignment */
    uint64_t offsets_bytes;
    float *out; /* [bags, dim] */
};

struct eb_peer_kernels;

/* Chooses functions and schedules for this machine. Returns NULL if out of memory. */
struct eb_peer_kernels *eb_peer_kernels_create(void);
/* Destroys the kernels. NULL is allowed. */
void eb_peer_kernels_destroy(struct eb_peer_kernels *kernels);

/* Checks and pools the queries of one request. Returns false if one of them is invalid, or if out
 * of memory. */
bool eb_peer_kernels_run(
    struct eb_peer_kernels *kernels, const struct eb_peer_query *queries, uint32_t count);

#ifdef __cplusplus
}
#endif
