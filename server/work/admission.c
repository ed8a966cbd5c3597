#include "server/work/admission.h"

static uint64_t bytes_left(uint64_t bytes_max, uint64_t bytes)
{
    return bytes < bytes_max ? bytes_max - bytes : 0;
}

/* What the queue has room for, of the work's priority. */
static uint64_t free_bytes(const struct eb_queue *queue, uint64_t bytes_max, unsigned priority)
{
    uint64_t all = bytes_left(bytes_max, eb_queue_bytes(queue, EB_WORK_BATCH));
    if (priority == EB_WORK_INTERACTIVE) {
        return all;
    }
    uint64_t batch =
        bytes_left(bytes_max / EB_ADMISSION_BATCH_PART, queue->levels[EB_WORK_BATCH].bytes);
    return batch < all ? batch : all;
}

static bool is_full(const struct eb_queue *queue, uint64_t bytes_max, const struct eb_work *work)
{
    uint64_t room = free_bytes(queue, bytes_max, work->priority);
    if (eb_queue_bytes(queue, work->priority) == 0) {
        return false;
    }
    return work->weight_bytes > room ||
           (work->source && eb_queue_source_bytes(queue, work) + work->weight_bytes >
                                room * EB_ADMISSION_SOURCE_SHARE);
}

/* How much must come before a work for its deadline to pass; at least 1. */
static uint64_t find_late_bytes(const struct eb_admission_terms *terms, const struct eb_work *work)
{
    if (work->deadline_ns <= terms->now_ns) {
        return 1;
    }
    uint64_t us = (work->deadline_ns - terms->now_ns - 1) / 1000 + 1;
    return us < UINT64_MAX / terms->bytes_per_us ? us * terms->bytes_per_us : UINT64_MAX;
}

static bool is_late(const struct eb_queue *queue, const struct eb_admission_terms *terms,
    const struct eb_work *work)
{
    /* Only where all that waits lasts too long is it worth asking how much of it comes first. */
    uint64_t late_bytes = find_late_bytes(terms, work);
    return work->deadline_ns != 0 && eb_queue_bytes(queue, work->priority) >= late_bytes &&
           eb_queue_bytes_before(queue, work, late_bytes) >= late_bytes;
}

uint32_t eb_admission_retry_after_ms(
    const struct eb_queue *queue, const struct eb_admission_terms *terms, unsigned priority)
{
    uint64_t ms = eb_queue_bytes(queue, priority) / terms->bytes_per_us / 1000 + 1;
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

enum eb_admit eb_admission_judge(const struct eb_queue *queue,
    const struct eb_admission_terms *terms, const struct eb_work *work, struct eb_admission *out)
{
    enum eb_admit verdict = EB_ADMIT_TAKEN;
    *out = (struct eb_admission){0};
    if (is_full(queue, terms->queue_bytes_max, work)) {
        verdict = EB_ADMIT_FULL;
    } else if (is_late(queue, terms, work)) {
        verdict = EB_ADMIT_LATE;
    }
    if (verdict != EB_ADMIT_TAKEN) {
        out->retry_after_ms = eb_admission_retry_after_ms(queue, terms, work->priority);
    }
    return verdict;
}
