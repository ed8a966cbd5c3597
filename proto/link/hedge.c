#include "proto/link/hedge.h"

#define TOKEN 100u /* hundredths */

void eb_hedge_init(struct eb_hedge *hedge, uint32_t percent, uint64_t delay_min_ns)
{
    *hedge = (struct eb_hedge){.percent = percent, .delay_min_ns = delay_min_ns};
}

/* Classes are powers of four. */
static struct eb_hedge_class *find_class(struct eb_hedge *hedge, uint64_t bytes)
{
    uint64_t above = bytes > 0 ? (bytes - 1) >> EB_HEDGE_SMALLEST_BITS : 0;
    unsigned bits = above > 0 ? 64 - (unsigned)__builtin_clzll(above) : 0;
    unsigned number = (bits + 1) / 2;
    return &hedge->classes[number < EB_HEDGE_CLASSES ? number : EB_HEDGE_CLASSES - 1];
}

static const struct eb_latency_summary *refresh_summary(
    struct eb_hedge_class *class, uint64_t now_ns)
{
    if (class->summary_ns == 0 || now_ns - class->summary_ns >= EB_HEDGE_SUMMARY_NS) {
        eb_latency_window_summarise(&class->window, now_ns, &class->summary);
        class->summary_ns = now_ns;
    }
    return &class->summary;
}

static uint64_t delay_ns(const struct eb_hedge *hedge, const struct eb_latency_summary *summary)
{
    return summary->p98_ns > hedge->delay_min_ns ? summary->p98_ns : hedge->delay_min_ns;
}

/* Returns whether a hedge of the call is worth its cost if it is sent at at_ns. */
static bool is_worth(
    const struct eb_latency_summary *summary, const struct eb_hedge_call *call, uint64_t at_ns)
{
    bool are_all_slow = summary->p50_ns > EB_HEDGE_SLOW_FACTOR * summary->minute_p50_ns;
    bool is_in_time = at_ns < call->deadline_ns && call->deadline_ns - at_ns >= summary->p50_ns;
    return summary->samples >= EB_HEDGE_SAMPLES_MIN && !are_all_slow && is_in_time;
}

uint64_t eb_hedge_begin(struct eb_hedge *hedge, const struct eb_hedge_call *call, uint64_t now_ns)
{
    if (call->is_batch || hedge->percent == 0) {
        return EB_HEDGE_NEVER;
    }
    hedge->saved += hedge->percent;
    if (hedge->saved > EB_HEDGE_TOKENS_MAX * TOKEN) {
        hedge->saved = EB_HEDGE_TOKENS_MAX * TOKEN;
    }
    const struct eb_latency_summary *summary =
        refresh_summary(find_class(hedge, call->bytes), now_ns);
    uint64_t at_ns = now_ns + delay_ns(hedge, summary);
    return is_worth(summary, call, at_ns) ? at_ns : EB_HEDGE_NEVER;
}

bool eb_hedge_take(struct eb_hedge *hedge, const struct eb_hedge_call *call, uint64_t now_ns)
{
    if (call->is_batch || hedge->saved < TOKEN || now_ns < hedge->pushback_until_ns ||
        !is_worth(refresh_summary(find_class(hedge, call->bytes), now_ns), call, now_ns)) {
        return false;
    }
    hedge->saved -= TOKEN;
    return true;
}

void eb_hedge_note_latency(
    struct eb_hedge *hedge, uint64_t bytes, uint64_t latency_ns, uint64_t now_ns)
{
    eb_latency_window_add(&find_class(hedge, bytes)->window, latency_ns, now_ns);
}

void eb_hedge_note_pushback(struct eb_hedge *hedge, uint64_t now_ns)
{
    hedge->pushback_until_ns = now_ns + EB_HEDGE_PUSHBACK_NS;
}

uint64_t eb_hedge_delay_max_ns(const struct eb_hedge *hedge, uint64_t now_ns)
{
    uint64_t longest_ns = 0;
    for (unsigned i = 0; i < EB_HEDGE_CLASSES; i++) {
        const struct eb_hedge_class *class = &hedge->classes[i];
        bool is_known = class->summary.samples >= EB_HEDGE_SAMPLES_MIN &&
                        now_ns - class->summary_ns < EB_LATENCY_SLICES * EB_LATENCY_SLICE_NS;
        uint64_t this_ns = delay_ns(hedge, &class->summary);
        if (is_known && this_ns > longest_ns) {
            longest_ns = this_ns;
        }
    }
    return longest_ns;
}
