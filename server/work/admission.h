/* Whether a work is taken into the queue: not where it does not fit, nor where it cannot meet its
 * deadline.
 * Thread: whoever holds the lock of the queue. Memory: none. */
#pragma once

#include "server/work/queue.h"

/* Batch works may fill this part of queue_bytes_max: 1 / EB_ADMISSION_BATCH_PART. */
#define EB_ADMISSION_BATCH_PART 2
/* A source may hold this many times what is free, so that one that floods leaves room for others:
 * alone it fills 4/5 of the queue, two fill 4/9 each, and so on. */
#define EB_ADMISSION_SOURCE_SHARE 4

enum eb_admit {
    EB_ADMIT_TAKEN,
    EB_ADMIT_FULL, /* the queue, or the part of it that is open to such a work, would overflow */
    EB_ADMIT_LATE, /* what must be computed before it takes longer than its deadline allows */
};

/* What a refused submitter is told. */
struct eb_admission {
    uint32_t retry_after_ms; /* about when the queue will be empty, at least 1; 0: taken */
};

struct eb_admission_terms {
    uint64_t queue_bytes_max;
    uint64_t bytes_per_us; /* of all threads; at least 1 */
    uint64_t now_ns;
};

/* About when all that waits will be computed, at least 1 ms. */
uint32_t eb_admission_retry_after_ms(
    const struct eb_queue *queue, const struct eb_admission_terms *terms, unsigned priority);

/* The queue's limits, in order of what is asked:
 * - A work is taken, however large, where nothing of its priority or above waits.
 * - It is FULL where with it more than queue_bytes_max waited; of batch works more than their part
 *   of it; or, where the work has a source, of that more than its share of what is free.
 * - It is LATE where the bytes of eb_queue_bytes_before, at that speed, last beyond its deadline.
 *   Its own bytes and the tiles that are being computed are not counted: in doubt it is taken,
 *   also where there are more sources than are asked. */
enum eb_admit eb_admission_judge(const struct eb_queue *queue,
    const struct eb_admission_terms *terms, const struct eb_work *work, struct eb_admission *out);
