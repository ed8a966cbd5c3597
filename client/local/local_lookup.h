/* One reader's lookups: checks a request and pools its bags with the kernels.
 * Thread: one at a time. Memory: a work keeps its memory for the next lookup. */
#pragma once

#include "client/embag_local.h"
#include "client/local/local_snapshot.h"
#include "kernels/bag_ops.h"

struct eb_local_query;

struct eb_local_work {
    const struct eb_bag_ops *ops;
    const struct eb_bag_schedules *schedules;
    size_t query_max; /* elements that each of the next three arrays has room for */
    struct eb_local_query *queries;
    struct eb_bag_job *jobs;
    struct embag_result *results;
    uint8_t *bytes; /* scratch of the kernels, values, and the model's name; aligned to 64 */
    size_t bytes_max;
    uint32_t *positions; /* of missing indices */
    size_t positions_max;
    struct embag_answer answer;
};

/* Accepts a zeroed work. */
void eb_local_work_deinit(struct eb_local_work *work);

/* Does a lookup in the snapshot, which is borrowed for the call. Returns false with
 * *error set if that fails. Otherwise work->answer is set, and valid until the next lookup. */
bool eb_local_work_look_up(struct eb_local_work *work, const struct eb_local_snapshot *snapshot,
    const struct embag_request *request, struct embag_error *error);
