#include "client/pace.h"

void eb_pace_begin(struct eb_pace *pace, uint64_t now_ns)
{
    pace->since_ns = now_ns;
}

void eb_pace_answer(struct eb_pace *pace, uint32_t sent_count, uint64_t now_ns)
{
    if (now_ns > pace->since_ns) {
        /* Not amid answers that have come together: all but the first take no time. */
        if (pace->answers >= EB_PACE_ANSWERS_MIN && pace->answers / 2 >= sent_count) {
            pace->answers /= 2;
            pace->busy_ns /= 2;
        }
        pace->busy_ns += now_ns - pace->since_ns;
        pace->since_ns = now_ns;
    }
    pace->answers++;
}

bool eb_pace_is_in_time(const struct eb_pace *pace, uint32_t sent_count, uint64_t left_ns)
{
    if (sent_count == 0) {
        return true;
    }
    if (pace->answers == 0) {
        return sent_count < EB_PACE_UNKNOWN_MAX;
    }
    uint64_t answer_ns = pace->busy_ns / pace->answers;
    return answer_ns * (sent_count + UINT64_C(1)) <= left_ns / EB_PACE_SPARE;
}
