/* Conversion of rows in vectors, the same for every instruction set. The including file first
 * includes its header with vectors of floats (vec_avx2.h and its like), and defines KEYS, a vector
 * of LANES int32_t, and
 *
 *   vec_keys_max(a, b)                              of each lane
 *   vec_unsigned_min(a, b), vec_unsigned_max(a, b)  the same as if lanes were unsigned
 *   vec_keys_lowest(keys), vec_keys_highest(keys)   of all lanes
 *   vec_keys_any(mask)                              whether any lane's first bit is set
 *   vec_encode(v, factors)                          the codes of LANES values, in f64 as in
 *                                                   quantize.c
 *   CODE_VECTORS                                    most vectors of codes that are stored at once
 *   vec_store_codes(bits, codes, vectors, out)      stores the codes of 1 or CODE_VECTORS vectors
 *
 * DEFINE_QUANTIZE_ROWS(name) then defines an eb_quantize_rows_fn with the results of the
 * reference. Rows of F32, F16 and BF16 become codes, F16 and BF16 in vectors; the reference does
 * all other conversions.
 * Thread: pure. Memory: none. */
#include "kernels/bag_variant.h"
#include "kernels/quantize_range.h"

/* Returns all ones in the first `count` lanes. */
static INLINE KEYS mask_lanes(unsigned count)
{
    KEYS numbers = {0};
    for (int k = 0; k < LANES; k++) {
        numbers[k] = k;
    }
    return (KEYS)(numbers < (KEYS){0} + (int32_t)count);
}

static INLINE KEYS choose_lanes(KEYS mask, KEYS yes, KEYS no)
{
    return (yes & mask) | (no & ~mask);
}

static INLINE KEYS keys_of_bits(KEYS bits)
{
    return bits ^ ((bits >> 31) & INT32_MAX);
}

/* Returns the address of element `i` of a row whose elements have at least 8 bits. */
static INLINE const uint8_t *element_at(enum eb_storage storage, const uint8_t *row, size_t i)
{
    return row + i * (eb_storage_bits(storage) / 8);
}

/* Extremes of the bits of values, lane by lane. */
struct extremes {
    KEYS highest; /* as signed integers */
    KEYS unsigned_lowest;
    KEYS unsigned_highest;
};

static INLINE void add_extremes(struct extremes *extremes, KEYS bits)
{
    extremes->highest = vec_keys_max(extremes->highest, bits);
    extremes->unsigned_lowest = vec_unsigned_min(extremes->unsigned_lowest, bits);
    extremes->unsigned_highest = vec_unsigned_max(extremes->unsigned_highest, bits);
}

static INLINE struct eb_quantize_range take_range(const struct extremes *extremes)
{
    KEYS low = extremes->unsigned_highest;
    KEYS high = extremes->highest;
    low = choose_lanes(low < 0, low, extremes->unsigned_lowest);
    high = choose_lanes(high < 0, extremes->unsigned_lowest, high);
    return (struct eb_quantize_range){
        vec_keys_lowest(keys_of_bits(low)), vec_keys_highest(keys_of_bits(high))};
}

static INLINE struct eb_quantize_range find_row_range(
    enum eb_storage from, const uint8_t *row, size_t elements)
{
    struct extremes extremes = {(KEYS){0} + INT32_MIN, (KEYS){0} - 1, {0}};
    size_t i = 0;
    for (; i + LANES <= elements; i += LANES) {
        add_extremes(&extremes, (KEYS)vec_load(from, element_at(from, row, i), LANES));
    }
    if (i < elements) {
        unsigned count = (unsigned)(elements - i);
        KEYS bits = (KEYS)vec_load(from, element_at(from, row, i), count);
        add_extremes(&extremes, choose_lanes(mask_lanes(count), bits, (KEYS){0} + bits[0]));
    }
    return take_range(&extremes);
}

/* ---- codes ---- */

/* Codes are first computed in f32, whose vectors hold twice as many values as those of f64. They
 * are kept if f64 must give the same. With b the bias, s the scale, L <= 255 the highest code, x a
 * value and q = (x - b) / s, which lies in 0 .. L because s L is at least the largest x - b:
 *
 *   t = x - b and r = 1 / s are rounded to f32. r is not subnormal, because s is at most 2^126 / 3.
 *   So |t r - q| <= q (2^-23 + 2^-47) < 2^-15 unless r is infinite.
 *   n is the integer nearest to t r. The sum t r + 2^23, rounded once, has the bits of 2^23 plus n.
 *   d is t r - n, rounded once. If r is infinite, it is a NaN, whose bits are above those of 1/2.
 *
 * In f64, (x - b) * (1 / s) + 1/2 is less than 2^-40 away from q + 1/2. If |d| < 1/2 - 2^-14, then
 * |q - n| < 1/2 - 2^-14 + 2^-15 + 2^-25. So the result in f64 is above n and below n + 1, and the
 * code is n. Otherwise the whole piece is computed again in f64. If q is evenly distributed, one
 * value in 2^13 is so near to a tie. */
#define TIE_DISTANCE_MAX (0.5F - 0x1p-14F)
#define INTEGER_UNIT 0x1p23F
/* Most values of a piece. */
#define PIECE_VALUES ((size_t)16 * LANES)

/* The ranges of some rows are found before the factors of all of them are computed, and those
 * before their codes. These rows are in L1 when they are read again. Converted one by one, each row
 * would wait for its two divisions: rows of 16 values then took a third longer. */
#define BLOCK_BYTES 8192
#define BLOCK_ROWS_MAX 16

/* Returns n of each value. Sets *off to the larger of itself and the bits of |d|. */
static INLINE KEYS encode_single(VEC values, const struct eb_quantize_factors *factors, KEYS *off)
{
    VEC units = values - vec_set(factors->scale.bias);
    VEC factor = vec_set((float)factors->codes_per_unit);
    VEC unit = vec_set(INTEGER_UNIT);
    VEC sum = vec_fma(units, factor, unit);
    VEC distance = vec_fma(units, factor, unit - sum);
    *off = vec_keys_max(*off, (KEYS)distance & INT32_MAX);
    return (KEYS)sum - (KEYS)unit;
}

/* Loads fewer values than a vector has. The other lanes have the bias, and so the code 0. */
static INLINE VEC load_last(enum eb_storage from, const uint8_t *row, unsigned count, float bias)
{
    KEYS values = (KEYS)vec_load(from, row, count);
    return (VEC)choose_lanes(mask_lanes(count), values, (KEYS)vec_set(bias));
}

static INLINE void store_last(unsigned bits, KEYS codes, unsigned count, uint8_t *out)
{
    uint8_t some[LANES];
    vec_store_codes(bits, &codes, 1, some);
    memcpy(out, some, (count * bits + 7) / 8);
}

/* Stores the codes of a piece, computed in f64. */
static INLINE void store_codes_double(enum eb_storage from, unsigned bits, const uint8_t *row,
    size_t elements, const struct eb_quantize_factors *factors, uint8_t *codes)
{
    size_t i = 0;
    for (; i + LANES <= elements; i += LANES) {
        KEYS some = vec_encode(vec_load(from, element_at(from, row, i), LANES), factors);
        vec_store_codes(bits, &some, 1, codes + i * bits / 8);
    }
    if (i < elements) {
        unsigned count = (unsigned)(elements - i);
        VEC values = load_last(from, element_at(from, row, i), count, factors->scale.bias);
        store_last(bits, vec_encode(values, factors), count, codes + i * bits / 8);
    }
}

/* Stores the codes of a piece, computed in f32. Returns false if they may be wrong. */
static INLINE bool store_codes_single(enum eb_storage from, unsigned bits, const uint8_t *row,
    size_t elements, const struct eb_quantize_factors *factors, uint8_t *codes)
{
    size_t together = (size_t)CODE_VECTORS * LANES;
    KEYS off = {0};
    size_t i = 0;
    for (; CODE_VECTORS > 1 && i + together <= elements; i += together) {
        KEYS some[CODE_VECTORS];
        for (size_t k = 0; k < CODE_VECTORS; k++) {
            VEC values = vec_load(from, element_at(from, row, i + k * LANES), LANES);
            some[k] = encode_single(values, factors, &off);
        }
        vec_store_codes(bits, some, CODE_VECTORS, codes + i * bits / 8);
    }
    for (; i + LANES <= elements; i += LANES) {
        VEC values = vec_load(from, element_at(from, row, i), LANES);
        KEYS some = encode_single(values, factors, &off);
        vec_store_codes(bits, &some, 1, codes + i * bits / 8);
    }
    if (i < elements) {
        unsigned count = (unsigned)(elements - i);
        VEC values = load_last(from, element_at(from, row, i), count, factors->scale.bias);
        store_last(bits, encode_single(values, factors, &off), count, codes + i * bits / 8);
    }
    return !vec_keys_any((KEYS)(off >= (KEYS)vec_set(TIE_DISTANCE_MAX)));
}

static INLINE void store_row_codes(enum eb_storage from, unsigned bits, const uint8_t *row,
    size_t elements, const struct eb_quantize_factors *factors, uint8_t *codes)
{
    size_t count;
    for (size_t i = 0; i < elements; i += count) {
        count = elements - i < PIECE_VALUES ? elements - i : PIECE_VALUES;
        const uint8_t *values = element_at(from, row, i);
        uint8_t *out = codes + i * bits / 8;
        if (!store_codes_single(from, bits, values, count, factors, out)) {
            store_codes_double(from, bits, values, count, factors, out);
        }
    }
}

/* Converts at most BLOCK_ROWS_MAX rows to codes. */
static INLINE uint64_t convert_to_codes(enum eb_storage from, unsigned bits,
    const struct eb_quantize_job *job, const uint8_t *rows, uint64_t count, uint8_t *out)
{
    struct eb_quantize_range ranges[BLOCK_ROWS_MAX];
    struct eb_quantize_factors factors[BLOCK_ROWS_MAX];
    uint64_t good = count;
    for (uint64_t i = 0; i < count; i++) {
        ranges[i] = find_row_range(from, rows + i * job->from_stride_bytes, job->elements);
    }
    for (uint64_t i = count; i-- > 0;) {
        good = eb_quantize_range_factors(&ranges[i], (1u << bits) - 1, &factors[i]) ? good : i;
    }
    for (uint64_t i = 0; i < good; i++) {
        const uint8_t *row = rows + i * job->from_stride_bytes;
        uint8_t *to = out + i * job->to_stride_bytes;
        memcpy(to, &factors[i].scale, sizeof factors[i].scale);
        store_row_codes(from, bits, row, job->elements, &factors[i], to + job->to_offset_bytes);
    }
    return good;
}

static INLINE uint64_t convert_rows_to_codes(enum eb_storage from, enum eb_storage to,
    const struct eb_quantize_job *job, const uint8_t *rows, uint64_t count, uint8_t *out)
{
    uint64_t row_bytes = eb_storage_row_bytes(from, job->elements);
    uint64_t block_rows = row_bytes < BLOCK_BYTES ? BLOCK_BYTES / row_bytes : 1;
    block_rows = block_rows < BLOCK_ROWS_MAX ? block_rows : BLOCK_ROWS_MAX;
    for (uint64_t done = 0; done < count;) {
        uint64_t some = count - done < block_rows ? count - done : block_rows;
        uint64_t good = convert_to_codes(from, eb_storage_bits(to), job,
            rows + done * job->from_stride_bytes, some, out + done * job->to_stride_bytes);
        done += good;
        if (good < some) {
            return done;
        }
    }
    return count;
}

/* ---- narrow floats ---- */

/* Stores `count` values as `to`. Returns all ones in the lanes of values that are too large. */
static INLINE KEYS store_narrow_values(enum eb_storage to, VEC values, unsigned count, uint8_t *out)
{
    struct eb_quantize_excess excess = eb_quantize_excess_of(to);
    KEYS size = (KEYS)values & INT32_MAX;
    vec_store(to == EB_STORAGE_F16 ? EB_F16 : EB_BF16, vec_canonical(values), out, count);
    return (KEYS)(size > (KEYS){0} + excess.above) & ~(KEYS)(size > (KEYS){0} + excess.last);
}

static INLINE bool convert_to_narrow(enum eb_storage from, enum eb_storage to, const uint8_t *row,
    const struct eb_quantize_job *job, uint8_t *out)
{
    size_t elements = job->elements;
    uint8_t *narrow = out + job->to_offset_bytes;
    KEYS excess = {0};
    size_t i = 0;
    for (; i + LANES <= elements; i += LANES) {
        VEC values = vec_load(from, element_at(from, row, i), LANES);
        excess |= store_narrow_values(to, values, LANES, narrow + 2 * i);
    }
    if (i < elements) {
        unsigned count = (unsigned)(elements - i);
        VEC values = vec_load(from, element_at(from, row, i), count);
        excess |= mask_lanes(count) & store_narrow_values(to, values, count, narrow + 2 * i);
    }
    return !vec_keys_any(excess);
}

static INLINE uint64_t convert_rows_to_narrow(enum eb_storage from, enum eb_storage to,
    const struct eb_quantize_job *job, const uint8_t *rows, uint64_t count, uint8_t *out)
{
    uint64_t done = 0;
    while (done < count && convert_to_narrow(from, to, rows, job, out)) {
        rows += job->from_stride_bytes;
        out += job->to_stride_bytes;
        done++;
    }
    return done;
}

static INLINE uint64_t convert_rows_from(enum eb_storage from, const struct eb_quantize_job *job,
    const uint8_t *rows, uint64_t count, uint8_t *out)
{
    switch (job->to) {
    case EB_STORAGE_INT8:
        return convert_rows_to_codes(from, EB_STORAGE_INT8, job, rows, count, out);
    case EB_STORAGE_INT4:
        return convert_rows_to_codes(from, EB_STORAGE_INT4, job, rows, count, out);
    case EB_STORAGE_INT2:
        return convert_rows_to_codes(from, EB_STORAGE_INT2, job, rows, count, out);
    case EB_STORAGE_F16: return convert_rows_to_narrow(from, EB_STORAGE_F16, job, rows, count, out);
    case EB_STORAGE_BF16:
        return convert_rows_to_narrow(from, EB_STORAGE_BF16, job, rows, count, out);
    default: return eb_quantize_ref_rows(job, rows, count, out);
    }
}

#define DEFINE_QUANTIZE_ROWS(name)                                                                 \
    uint64_t name(                                                                                 \
        const struct eb_quantize_job *job, const uint8_t *rows, uint64_t count, uint8_t *out)      \
    {                                                                                              \
        switch (job->from) {                                                                       \
        case EB_STORAGE_F32: return convert_rows_from(EB_STORAGE_F32, job, rows, count, out);      \
        case EB_STORAGE_F16: return convert_rows_from(EB_STORAGE_F16, job, rows, count, out);      \
        case EB_STORAGE_BF16: return convert_rows_from(EB_STORAGE_BF16, job, rows, count, out);    \
        default: return eb_quantize_ref_rows(job, rows, count, out);                               \
        }                                                                                          \
    }
