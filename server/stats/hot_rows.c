#include "server/stats/hot_rows.h"

#include <stddef.h>

static struct eb_hot_rows_kept *find(struct eb_hot_rows *rows, int64_t id)
{
    for (uint32_t i = 0; i < rows->count; i++) {
        if (rows->kept[i].id == id) {
            return &rows->kept[i];
        }
    }
    return NULL;
}

/* Returns a slot for an id that has none: a free one, or that of the id with the fewest hits. */
static struct eb_hot_rows_kept *take_slot(struct eb_hot_rows *rows, int64_t id)
{
    if (rows->count < EB_HOT_ROWS_KEPT) {
        struct eb_hot_rows_kept *slot = &rows->kept[rows->count++];
        *slot = (struct eb_hot_rows_kept){.id = id};
        return slot;
    }
    struct eb_hot_rows_kept *least = rows->kept;
    for (uint32_t i = 1; i < EB_HOT_ROWS_KEPT; i++) {
        if (rows->kept[i].hits < least->hits) {
            least = &rows->kept[i];
        }
    }
    least->id = id;
    least->over = least->hits;
    return least;
}

void eb_hot_rows_add(struct eb_hot_rows *rows, int64_t id)
{
    struct eb_hot_rows_kept *kept = find(rows, id);
    if (!kept) {
        kept = take_slot(rows, id);
    }
    kept->hits++;
    rows->samples++;
}

void eb_hot_rows_halve(struct eb_hot_rows *rows)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        struct eb_hot_rows_kept kept = rows->kept[i];
        kept.hits /= 2;
        /* Round up, so that hits that may belong to another id never count as this one's. */
        kept.over -= kept.over / 2;
        kept.over = kept.over < kept.hits ? kept.over : kept.hits;
        if (kept.hits > 0) {
            rows->kept[count++] = kept;
        }
    }
    rows->count = count;
    rows->samples /= 2;
}

size_t eb_hot_rows_room(size_t sketch_count)
{
    size_t room = 2 * EB_HOT_ROWS_KEPT;
    while (room < 2 * EB_HOT_ROWS_KEPT * sketch_count) {
        room *= 2;
    }
    return room;
}

/* Returns the id's slot, or the free one where it belongs. */
static struct eb_hot_rows_sum *find_sum(const struct eb_hot_rows_merge *merge, int64_t id)
{
    /* Fibonacci hashing (Knuth) puts neighbouring ids far from each other. */
    size_t slot = (size_t)((uint64_t)id * UINT64_C(0x9E3779B97F4A7C15) >> 32);
    for (;; slot++) {
        struct eb_hot_rows_sum *sum = &merge->sums[slot & (merge->room - 1)];
        if (sum->hits == 0 || sum->id == id) {
            return sum;
        }
    }
}

void eb_hot_rows_merge(struct eb_hot_rows_merge *merge, const struct eb_hot_rows *rows)
{
    double indices_per_sample = (double)rows->indices_per_sample;
    for (uint32_t i = 0; i < rows->count; i++) {
        const struct eb_hot_rows_kept *kept = &rows->kept[i];
        uint32_t hits = kept->hits - kept->over;
        struct eb_hot_rows_sum *sum = find_sum(merge, kept->id);
        sum->id = kept->id;
        sum->hits += hits;
        sum->indices += hits * indices_per_sample;
    }
    merge->indices += (double)rows->samples * indices_per_sample;
}

/* Orders sums by the most indices, then by the least id. */
static bool is_before(const struct eb_hot_rows_sum *one, const struct eb_hot_rows_sum *other)
{
    return one->indices != other->indices ? one->indices > other->indices : one->id < other->id;
}

/* Inserts a sum into the ordered list of the top sums, if it belongs there. A full list loses its
 * last sum. Returns the count. */
static size_t insert_sum(
    struct eb_hot_rows_sum first[EB_STATS_HOT_ROWS], size_t count, struct eb_hot_rows_sum sum)
{
    size_t slot = count;
    if (count < EB_STATS_HOT_ROWS) {
        count++;
    } else if (is_before(&sum, &first[count - 1])) {
        slot--;
    } else {
        return count;
    }
    for (; slot > 0 && is_before(&sum, &first[slot - 1]); slot--) {
        first[slot] = first[slot - 1];
    }
    first[slot] = sum;
    return count;
}

size_t eb_hot_rows_top(
    const struct eb_hot_rows_merge *merge, struct eb_stats_hot_row top[EB_STATS_HOT_ROWS])
{
    struct eb_hot_rows_sum first[EB_STATS_HOT_ROWS];
    size_t count = 0;
    for (size_t i = 0; i < merge->room; i++) {
        if (merge->sums[i].hits >= EB_HOT_ROWS_HITS_MIN) {
            count = insert_sum(first, count, merge->sums[i]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        double share = first[i].indices / merge->indices;
        /* Halving an odd number of samples loses one, so the parts may exceed the whole. */
        top[i] = (struct eb_stats_hot_row){first[i].id, share < 1 ? share : 1};
    }
    return count;
}

/* ---- index sampler ---- */

/* A distance beyond the end of any window. */
#define NO_MORE (UINT64_C(1) << 62)

void eb_index_sampler_init(struct eb_index_sampler *sampler)
{
    *sampler = (struct eb_index_sampler){.gap = 1, .random = UINT64_C(0x9E3779B97F4A7C15)};
}

/* Returns random bits from Marsaglia's xorshift, which is good enough: no client's regular pattern
 * coincides with it. */
static uint64_t roll(struct eb_index_sampler *sampler)
{
    uint64_t random = sampler->random;
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    sampler->random = random;
    return random >> 16;
}

void eb_index_sampler_begin(struct eb_index_sampler *sampler, uint64_t now_ns)
{
    uint64_t windows = (now_ns - sampler->begun_ns) / EB_INDEX_SAMPLER_WINDOW_NS;
    sampler->gap = sampler->passed / windows / EB_INDEX_SAMPLER_WINDOW_SAMPLES + 1;
    sampler->begun_ns = now_ns;
    sampler->passed = 0;
    sampler->left = EB_INDEX_SAMPLER_WINDOW_SAMPLES;
    sampler->skip = roll(sampler) % sampler->gap;
}

uint64_t eb_index_sampler_step(struct eb_index_sampler *sampler)
{
    sampler->left--;
    return sampler->left == 0 ? NO_MORE : 1 + roll(sampler) % (2 * sampler->gap - 1);
}
