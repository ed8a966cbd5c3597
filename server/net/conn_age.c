#include "server/net/conn_age.h"

/* A connection's age limit differs from age_max_ms by at most 1 / AGE_PART of it. */
#define AGE_PART 10

void eb_conn_age_init(struct eb_conn_age *age, const struct eb_conn_age_limits *limits,
    uint64_t now_ms, uint64_t chance)
{
    uint64_t spread_ms = limits->age_max_ms / AGE_PART;
    /* Multiplying by the golden ratio spreads numbers that are close to each other. */
    uint64_t spread = chance * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    *age = (struct eb_conn_age){
        .old_ms = limits->age_max_ms == 0
                      ? UINT64_MAX
                      : now_ms + limits->age_max_ms - spread_ms + spread % (2 * spread_ms + 1),
        .opened_ms = now_ms,
        .heard_ms = now_ms,
        .busy_ms = now_ms,
    };
}

/* Decides whether to ping a silent peer or to give it up. */
static enum eb_conn_age_step look_at_silence(
    struct eb_conn_age *age, const struct eb_conn_age_limits *limits, uint64_t now_ms)
{
    if (age->heard_ms >= age->pinged_ms) {
        age->pinged_ms = 0;
    }
    if (age->pinged_ms != 0) {
        return now_ms - age->pinged_ms >= limits->silence_more_ms ? EB_CONN_AGE_DEAD
                                                                  : EB_CONN_AGE_NOTHING;
    }
    if (limits->silence_ms > 0 && now_ms - age->heard_ms >= limits->silence_ms) {
        age->pinged_ms = now_ms;
        return EB_CONN_AGE_PING;
    }
    return EB_CONN_AGE_NOTHING;
}

/* Returns whether the step that follows the last one is due. */
static bool is_due(
    const struct eb_conn_age *age, const struct eb_conn_age_limits *limits, uint64_t now_ms)
{
    switch (age->step) {
    case EB_CONN_AGE_NOTHING:
        return now_ms >= age->old_ms ||
               (limits->unknown_max_ms > 0 && !age->is_known &&
                   now_ms - age->opened_ms >= limits->unknown_max_ms) ||
               (limits->idle_max_ms > 0 && now_ms - age->busy_ms >= limits->idle_max_ms);
    case EB_CONN_AGE_RETIRE: return now_ms - age->step_ms >= limits->grace_ms;
    case EB_CONN_AGE_FINISH: return now_ms - age->step_ms >= limits->end_ms;
    case EB_CONN_AGE_CUT:
    case EB_CONN_AGE_PING:
    case EB_CONN_AGE_DEAD: break;
    }
    return false;
}

static enum eb_conn_age_step follow(enum eb_conn_age_step step)
{
    if (step == EB_CONN_AGE_NOTHING) {
        return EB_CONN_AGE_RETIRE;
    }
    return step == EB_CONN_AGE_RETIRE ? EB_CONN_AGE_FINISH : EB_CONN_AGE_CUT;
}

static uint64_t find_age_later(uint64_t since_ms, uint64_t by_ms, uint64_t now_ms)
{
    return since_ms + by_ms < now_ms ? since_ms + by_ms : now_ms;
}

void eb_conn_age_postpone(struct eb_conn_age *age, uint64_t unread_ms, uint64_t now_ms)
{
    if (unread_ms > 0) {
        age->opened_ms = find_age_later(age->opened_ms, unread_ms, now_ms);
        age->busy_ms = find_age_later(age->busy_ms, unread_ms, now_ms);
        age->heard_ms = now_ms;
    }
}

enum eb_conn_age_step eb_conn_age_look(struct eb_conn_age *age,
    const struct eb_conn_age_limits *limits, uint64_t now_ms, uint64_t calls, uint64_t calls_begun)
{
    if (calls > 0 || calls_begun != age->seen_calls) {
        age->busy_ms = now_ms;
        age->seen_calls = calls_begun;
    }
    if (is_due(age, limits, now_ms)) {
        age->step = follow(age->step);
        age->step_ms = now_ms;
        return age->step;
    }
    return look_at_silence(age, limits, now_ms);
}
