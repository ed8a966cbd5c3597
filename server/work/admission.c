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

static bool ends_late(
    const struct eb_admission_terms *terms, const struct eb_work *work, uint64_t bytes)
{
    return bytes > 0 && terms->now_ns + bytes / terms->bytes_per_us * 1000 >= work->deadline_ns;
}

static bool is_late(const struct eb_queue *queue, const struct eb_admission_terms *terms,
    const struct eb_work *work)
{
    /* Only where all that waits lasts too long is it worth asking how much of it comes first. */
    return work->deadline_ns != 0 &&
           ends_late(terms, work, eb_queue_bytes(queue, work->priority)) &&
           ends_late(terms, work, eb_queue_bytes_before(queue, work));
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
