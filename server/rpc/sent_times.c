#include "server/rpc/sent_times.h"

void eb_sent_times_settle(struct eb_sent_times *sent, uint64_t now_ns)
{
    struct eb_histogram *stages = sent->counters->stages;
    for (size_t i = 0; i < sent->count; i++) {
        const struct eb_answer_times *times = &sent->samples[i].times;
        uint64_t answers = sent->samples[i].answers;
        uint64_t send_ns = eb_passed_ns(times->ended_ns, now_ns);
        uint64_t total_ns = times->queue_ns + times->compute_ns + send_ns;
        eb_histogram_add_some(&stages[EB_STAGE_QUEUE], times->queue_ns, answers);
        eb_histogram_add_some(&stages[EB_STAGE_COMPUTE], times->compute_ns, answers);
        eb_histogram_add_some(&stages[EB_STAGE_SEND], send_ns, answers);
        eb_histogram_add_some(&stages[EB_STAGE_TOTAL], total_ns, answers);
    }
    sent->count = 0;
}

/* Counts one more answer in the last sample, if that sample may represent more. Returns whether it
 * may. */
static bool share_sample(struct eb_sent_times *sent)
{
    if (sent->count < EB_SENT_TIMES_EACH_MAX ||
        sent->samples[sent->count - 1].answers == EB_SENT_TIMES_SHARE) {
        return false;
    }
    sent->samples[sent->count - 1].answers++;
    return true;
}

bool eb_sent_times_add(struct eb_sent_times *sent, const struct eb_answer_times *times)
{
    if (share_sample(sent)) {
        return true;
    }
    if (sent->count == EB_SENT_TIMES_SAMPLES_MAX) {
        return false;
    }
    sent->samples[sent->count++] = (struct eb_sent_sample){*times, 1};
    return true;
}
