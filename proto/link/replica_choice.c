#include "proto/link/replica_choice.h"

#include "proto/splitmix64.h"

/* Replicas without any sample have a latency of 0. With this one instead, the attempts in flight
 * still count. */
#define LATENCY_MIN_NS UINT64_C(1000)

/* Random numbers of this many bits are cut out of the 64 that `random` gives. */
#define DRAW_BITS 21
#define DRAW_MASK ((UINT64_C(1) << DRAW_BITS) - 1)

/* How well a replica suits. A worse one is chosen only if there is no better one. */
enum suitability { SUITS, IS_EJECTED, IS_SUSPECT, SUITS_NOT };

static bool was_tried(const struct eb_choice_terms *terms, const struct eb_replica *replica)
{
    for (uint32_t i = 0; i < terms->tried_count; i++) {
        if (terms->tried[i] == replica) {
            return true;
        }
    }
    return false;
}

static enum suitability find_suitability(const struct eb_replica_group *group,
    const struct eb_choice_terms *terms, struct eb_replica *replica)
{
    if (!replica->is_up || was_tried(terms, replica)) {
        return SUITS_NOT;
    }
    eb_replica_readmit(group, replica, terms->now_ns);
    if (replica->suspicion.is_suspect) {
        return IS_SUSPECT;
    }
    return replica->ejection.is_out ? IS_EJECTED : SUITS;
}

static bool takes_call(const struct eb_choice_terms *terms, const struct eb_replica *replica)
{
    return !terms->takes || terms->takes(terms->context, replica);
}

static uint64_t cost_of(const struct eb_replica *replica, uint64_t now_ns)
{
    uint64_t latency_ns = eb_peak_latency_now(&replica->latency, now_ns);
    uint64_t age_ns = now_ns > replica->oldest_ns ? now_ns - replica->oldest_ns : 0;
    latency_ns = latency_ns > age_ns ? latency_ns : age_ns;
    latency_ns = latency_ns > LATENCY_MIN_NS ? latency_ns : LATENCY_MIN_NS;
    return (replica->in_flight + UINT64_C(1)) * latency_ns;
}

/* Returns the better one of two. A new one has hardly any attempts in flight, so that it would be
 * the better one more often than not. It is passed over so often that it gets about its share even
 * if it always is. */
static struct eb_replica *choose_better(
    struct eb_replica *a, struct eb_replica *b, uint64_t draw, uint64_t now_ns)
{
    uint64_t share_a = eb_replica_share(a, now_ns);
    uint64_t share_b = eb_replica_share(b, now_ns);
    uint64_t less = share_a < share_b ? share_a : share_b;
    uint64_t more = share_a < share_b ? share_b : share_a;
    if (draw * (2 * more - less) >= less << DRAW_BITS) {
        return share_a < share_b ? b : a;
    }
    return cost_of(b, now_ns) < cost_of(a, now_ns) ? b : a;
}

/* Returns a random number below `count`, made of DRAW_BITS random bits. */
static uint32_t scale_draw(uint64_t bits, uint32_t count)
{
    return (uint32_t)((bits & DRAW_MASK) * count >> DRAW_BITS);
}

/* Looks at all replicas, and chooses among the best suited ones. */
static struct eb_replica *choose_of_all(
    const struct eb_replica_group *group, const struct eb_choice_terms *terms, uint64_t bits)
{
    uint16_t taking[EB_REPLICAS_MAX];
    uint32_t count = 0;
    enum suitability best = SUITS_NOT;
    for (uint32_t i = 0; i < group->count; i++) {
        struct eb_replica *replica = group->replicas[i];
        enum suitability suitability = find_suitability(group, terms, replica);
        if (suitability < best) {
            best = suitability;
            count = 0;
        }
        if (suitability == best && best != SUITS_NOT && takes_call(terms, replica)) {
            taking[count++] = (uint16_t)i;
        }
    }
    if (count == 0) {
        return NULL;
    }
    uint32_t first = scale_draw(bits, count);
    if (count == 1) {
        return group->replicas[taking[0]];
    }
    uint32_t second = (first + 1 + scale_draw(bits >> DRAW_BITS, count - 1)) % count;
    return choose_better(group->replicas[taking[first]], group->replicas[taking[second]],
        bits >> 2 * DRAW_BITS & DRAW_MASK, terms->now_ns);
}

struct eb_replica *eb_replica_choose(
    const struct eb_replica_group *group, const struct eb_choice_terms *terms)
{
    uint64_t bits = eb_splitmix64_mix(terms->random);
    if (group->count >= 2) {
        uint32_t first = scale_draw(bits, group->count);
        uint32_t second =
            (first + 1 + scale_draw(bits >> DRAW_BITS, group->count - 1)) % group->count;
        struct eb_replica *a = group->replicas[first];
        struct eb_replica *b = group->replicas[second];
        if (find_suitability(group, terms, a) == SUITS && takes_call(terms, a) &&
            find_suitability(group, terms, b) == SUITS && takes_call(terms, b)) {
            return choose_better(a, b, bits >> 2 * DRAW_BITS & DRAW_MASK, terms->now_ns);
        }
    }
    return choose_of_all(group, terms, eb_splitmix64_mix(bits));
}
