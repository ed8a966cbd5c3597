/* The index pass in vectors, the same for every instruction set. The including file first defines
 * VECTOR_BYTES, the size of its vectors of 64-bit lanes; WIDEN(v) and NARROW(v), which turn
 * int32_lanes into lanes and back; and SUM_UP(v), whose lane k is the sum of lanes 0 .. k of v.
 * DEFINE_INDEX_FNS(name, take_keys) then defines its table.
 *
 * Numbers are widened to 64 bits first. A number n lies in 0 .. last if neither n nor last - n is
 * negative. So the functions only gather signs. They need no comparison of unsigned numbers, which
 * not every instruction set has. If the last numbers of an array do not fill a vector, they are
 * read as part of a vector that ends where the array ends.
 * Thread: pure. Memory: none. */
#include "kernels/bag_index_plain.h"
#include "kernels/key_index.h"

#define INLINE inline __attribute__((always_inline))
#define LANES (VECTOR_BYTES / 8)

typedef uint64_t lanes __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t signed_lanes __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t int32_lanes __attribute__((vector_size(VECTOR_BYTES / 2)));

static INLINE lanes load_lanes(const uint8_t *data, const unsigned width, uint64_t i)
{
    const uint8_t *from = data + i * width;
    int32_lanes narrow;
    lanes wide;
    if (width == sizeof(int32_t)) {
        memcpy(&narrow, from, sizeof narrow);
        return WIDEN(narrow);
    }
    memcpy(&wide, from, sizeof wide);
    return wide;
}

static INLINE void store_starts(lanes v, uint32_t *starts)
{
    int32_lanes narrow = NARROW(v);
    memcpy(starts, &narrow, sizeof narrow);
}

static INLINE lanes fill_lanes(int64_t number)
{
    return (lanes){0} + (uint64_t)number;
}

static INLINE lanes number_lanes(void)
{
    lanes numbers = {0};
    for (unsigned k = 0; k < LANES; k++) {
        numbers[k] = k;
    }
    return numbers;
}

static INLINE lanes sign_lanes(lanes v)
{
    return (lanes)((signed_lanes)v >> 63);
}

static INLINE uint64_t add_up_lanes(lanes v)
{
    uint64_t sum = 0;
    for (unsigned k = 0; k < LANES; k++) {
        sum += v[k];
    }
    return sum;
}

static INLINE bool is_any_negative(lanes v)
{
    return add_up_lanes(sign_lanes(v)) != 0;
}

/* The rule that turns indices into rows. */
struct row_rule {
    lanes last;
    lanes missing_row;
};

/* Writes the rows of indices. Returns all ones in the lanes of indices that have no row. */
static INLINE lanes put_rows(const struct row_rule *rule, lanes index, int64_t *rows)
{
    lanes is_missing = sign_lanes(index | (rule->last - index));
    lanes row = (index & ~is_missing) | (rule->missing_row & is_missing);
    memcpy(rows, &row, sizeof row);
    return is_missing;
}

static INLINE uint64_t vector_take_rows(const unsigned width, const struct eb_int_array *indices,
    uint64_t row_count, int64_t missing_row, int64_t *rows)
{
    const uint8_t *data = indices->data;
    uint64_t count = indices->bytes / width;
    if (count < LANES) {
        return plain_take_rows(width, indices, row_count, missing_row, rows);
    }
    int64_t last = row_count <= INT64_MAX ? (int64_t)row_count - 1 : INT64_MAX;
    struct row_rule rule = {fill_lanes(last), fill_lanes(missing_row)};
    lanes found_missing = {0};
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        found_missing -= put_rows(&rule, load_lanes(data, width, i), rows + i);
    }
    if (i < count) {
        uint64_t at = count - LANES;
        lanes is_new = (lanes)(number_lanes() >= i - at);
        found_missing -= put_rows(&rule, load_lanes(data, width, at), rows + at) & is_new;
    }
    return add_up_lanes(found_missing);
}

/* Width of the indices that vector_are_rows checks. */
#define INDEX_BYTES sizeof(int64_t)

static INLINE bool vector_are_rows(const struct eb_int_array *indices, uint64_t row_count)
{
    const uint8_t *data = indices->data;
    uint64_t count = indices->bytes / INDEX_BYTES;
    if (count < LANES) {
        return plain_are_rows(indices, row_count);
    }
    lanes last = fill_lanes((int64_t)row_count - 1);
    lanes outside = {0};
    uint64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
#pragma GCC unroll 4
        for (unsigned k = 0; k < 4; k++) {
            lanes index = load_lanes(data, INDEX_BYTES, i + k * LANES);
            outside |= index | (last - index);
        }
    }
    for (; i < count; i += LANES) {
        lanes index = load_lanes(data, INDEX_BYTES, i < count - LANES ? i : count - LANES);
        outside |= index | (last - index);
    }
    return !is_any_negative(outside);
}

static INLINE enum eb_bag_order vector_take_bounds(
    unsigned width, const struct eb_int_array *bounds, int64_t last, uint32_t *starts)
{
    const uint8_t *data = bounds->data;
    uint64_t count = bounds->bytes / width;
    if (count <= LANES) {
        return plain_take_bounds(width, bounds, last, starts);
    }
    lanes first = load_lanes(data, width, 0);
    lanes outside = first | (fill_lanes(last) - first);
    lanes descent = {0};
    if (starts) {
        store_starts(first, starts);
    }
    for (uint64_t i = 1; i < count; i += LANES) {
        uint64_t at = i < count - LANES ? i : count - LANES;
        lanes bound = load_lanes(data, width, at);
        outside |= bound | (fill_lanes(last) - bound);
        descent |= bound - load_lanes(data, width, at - 1);
        if (starts) {
            store_starts(bound, starts + at);
        }
    }
    if (is_any_negative(outside)) {
        return EB_BAG_ORDER_OUTSIDE;
    }
    return is_any_negative(descent) ? EB_BAG_ORDER_DESCENDING : EB_BAG_ORDER_ASCENDING;
}

static INLINE bool vector_take_lengths(const unsigned width, const struct eb_int_array *lengths,
    uint32_t index_count, uint32_t *starts)
{
    const uint8_t *data = lengths->data;
    uint64_t count = lengths->bytes / width;
    lanes outside = {0};
    lanes sums = {0};
    uint64_t i = 0;
    starts[0] = 0;
    for (; i + LANES <= count; i += LANES) {
        lanes length = load_lanes(data, width, i);
        outside |= length | (fill_lanes(index_count) - length);
        sums = SUM_UP(length) + sums[LANES - 1];
        store_starts(sums, starts + i + 1);
    }
    bool is_within = !is_any_negative(outside) && sums[LANES - 1] <= index_count;
    return is_within && plain_take_lengths(width, lengths, i, index_count, starts);
}

#define DEFINE_INDEX_FNS(name, take_keys)                                                          \
    static uint64_t take_rows(const struct eb_int_array *indices, uint64_t row_count,              \
        int64_t missing_row, int64_t *rows)                                                        \
    {                                                                                              \
        return indices->width == 4 ? vector_take_rows(4, indices, row_count, missing_row, rows)    \
                                   : vector_take_rows(8, indices, row_count, missing_row, rows);   \
    }                                                                                              \
    static bool are_rows(const struct eb_int_array *indices, uint64_t row_count)                   \
    {                                                                                              \
        return vector_are_rows(indices, row_count);                                                \
    }                                                                                              \
    static enum eb_bag_order take_bounds(                                                          \
        const struct eb_int_array *bounds, int64_t last, uint32_t *starts)                         \
    {                                                                                              \
        return bounds->width == 4 ? vector_take_bounds(4, bounds, last, starts)                    \
                                  : vector_take_bounds(8, bounds, last, starts);                   \
    }                                                                                              \
    static bool take_lengths(                                                                      \
        const struct eb_int_array *lengths, uint32_t index_count, uint32_t *starts)                \
    {                                                                                              \
        return lengths->width == 4 ? vector_take_lengths(4, lengths, index_count, starts)          \
                                   : vector_take_lengths(8, lengths, index_count, starts);         \
    }                                                                                              \
    const struct eb_bag_index_fns name = {                                                         \
        take_rows, are_rows, take_bounds, take_lengths, take_keys};
