#include "proto/grpc_budget.h"

#include <nghttp2/nghttp2.h>

/* Honest clients ping about once per call, or every ten seconds. A burst of so many passes, and ten
 * a second for ever. */
#define NOISE_MAX 1000u
#define NOISE_REFILL_MS 100u
/* As many of a peer's pings may come too soon: clocks and networks are not exact. */
#define STRIKES_MAX 2u
/* A client that takes a large answer sends two for each of its frames, and may do so when all of
 * the answer has left and nothing calms any more. */
#define WINDOW_UPDATES_PER_NOISE 16u
/* A client that hedges cancels one call of each pair that it begins, and never stops. */
#define RESETS_PER_MS 1u
/* Blocks may together exceed their limits by this many limits at once. */
#define EXCESS_LIMITS 3u
#define MS_PER_S 1000u

void eb_grpc_budget_init(
    struct eb_grpc_budget *budget, uint32_t resets_max, uint32_t header_bytes_max)
{
    const uint32_t excess_max = EXCESS_LIMITS * header_bytes_max;
    *budget = (struct eb_grpc_budget){.resets_max = resets_max,
        .resets_left = resets_max,
        .noise_left = NOISE_MAX,
        .excess_max = excess_max,
        .excess_left = excess_max,
        .excess_per_s = header_bytes_max};
}

static void refill_resets(struct eb_grpc_budget *budget, uint64_t now_ms)
{
    uint64_t passed_ms = now_ms - budget->resets_ms;
    uint64_t room = budget->resets_max - budget->resets_left;
    budget->resets_ms = now_ms;
    budget->resets_left +=
        (uint32_t)(passed_ms < room / RESETS_PER_MS ? passed_ms * RESETS_PER_MS : room);
}

/* Refills excess_left. Does nothing while it is full, so this costs most connections nothing. */
static void refill_excess(struct eb_grpc_budget *budget, uint64_t now_ms)
{
    if (budget->excess_left == budget->excess_max) {
        budget->excess_ms = now_ms;
        return;
    }
    const uint64_t full_ms = (uint64_t)(EXCESS_LIMITS + 1) * MS_PER_S;
    const uint64_t passed_ms = now_ms - budget->excess_ms;
    const uint64_t room = budget->excess_max - budget->excess_left;
    const uint64_t earned =
        (passed_ms < full_ms ? passed_ms : full_ms) * budget->excess_per_s / MS_PER_S;
    if (earned > 0) {
        budget->excess_ms = now_ms;
        budget->excess_left += (uint32_t)(earned < room ? earned : room);
    }
}

void eb_grpc_budget_refill(struct eb_grpc_budget *budget, uint64_t now_ms)
{
    if (budget->noise_ms == 0) {
        budget->noise_ms = now_ms;
        budget->resets_ms = now_ms;
        budget->excess_ms = now_ms;
    }
    refill_resets(budget, now_ms);
    refill_excess(budget, now_ms);
    uint64_t steps = (now_ms - budget->noise_ms) / NOISE_REFILL_MS;
    uint64_t room = NOISE_MAX - budget->noise_left;
    budget->noise_ms += steps * NOISE_REFILL_MS;
    budget->noise_left += (uint32_t)(steps < room ? steps : room);
}

bool eb_grpc_budget_spend_noise(struct eb_grpc_budget *budget)
{
    if (budget->noise_left == 0) {
        return false;
    }
    budget->noise_left--;
    return true;
}

bool eb_grpc_budget_spend_ping(struct eb_grpc_budget *budget, uint64_t now_ms, uint64_t interval_ms)
{
    const bool is_early = budget->pinged_ms != 0 && now_ms - budget->pinged_ms < interval_ms;
    budget->pinged_ms = now_ms;
    budget->strikes += is_early;
    return budget->strikes <= STRIKES_MAX;
}

static bool spend_window_update(struct eb_grpc_budget *budget)
{
    if (++budget->window_updates < WINDOW_UPDATES_PER_NOISE) {
        return true;
    }
    budget->window_updates = 0;
    return eb_grpc_budget_spend_noise(budget);
}

bool eb_grpc_budget_spend_frame(
    struct eb_grpc_budget *budget, uint8_t type, uint8_t flags, size_t length)
{
    switch (type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_CONTINUATION:
    case NGHTTP2_RST_STREAM: return true;
    case NGHTTP2_WINDOW_UPDATE: return spend_window_update(budget);
    case NGHTTP2_DATA:
        return length > 0 || (flags & NGHTTP2_FLAG_END_STREAM) ||
               eb_grpc_budget_spend_noise(budget);
    case NGHTTP2_PING:
    case NGHTTP2_SETTINGS: return (flags & NGHTTP2_FLAG_ACK) || eb_grpc_budget_spend_noise(budget);
    default: return eb_grpc_budget_spend_noise(budget);
    }
}

void eb_grpc_budget_calm(struct eb_grpc_budget *budget)
{
    budget->noise_left = NOISE_MAX;
    budget->strikes = 0;
    budget->pinged_ms = 0;
}

bool eb_grpc_budget_spend_reset(struct eb_grpc_budget *budget)
{
    if (budget->resets_left == 0) {
        return false;
    }
    budget->resets_left--;
    return true;
}

void eb_grpc_budget_earn_reset(struct eb_grpc_budget *budget)
{
    if (budget->resets_left < budget->resets_max) {
        budget->resets_left++;
    }
}

bool eb_grpc_budget_spend_excess(struct eb_grpc_budget *budget, size_t bytes)
{
    if (bytes > budget->excess_left) {
        budget->excess_left = 0;
        return false;
    }
    budget->excess_left -= (uint32_t)bytes;
    return true;
}
