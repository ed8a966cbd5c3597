/* Turns a bag's sums into its result: division, canonical NaNs, the output type.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag_fold.h"

/* Keeps a function out of the loops that call it, so that its variables take none of their
 * registers. */
#define COLD __attribute__((cold, noinline))

/* Returns the divisor of bag b's sum, computed in the reference's order. */
static COLD ACC find_divisor(const struct eb_bag_job *job, uint32_t b)
{
    uint32_t count = job->starts[b + 1] - job->starts[b];
    const ACC *weights = job->weights ? (const ACC *)job->weights + job->starts[b] : NULL;
    ACC weight_sum = weights ? 0 : (ACC)count;
    ACC square_sum = weight_sum;
    for (uint32_t i = 0; weights && i < count; i++) {
        weight_sum = weight_sum + weights[i];
        square_sum = ACC_FMA(weights[i], weights[i], square_sum);
    }
    return job->reduction == EB_REDUCTION_SQRTN ? ACC_SQRT(square_sum) : weight_sum;
}

/* Completes sums, except for their type. */
static INLINE void finish_sums(
    struct shape shape, const struct eb_bag_job *job, uint32_t b, struct sums *sums)
{
    unsigned vectors = shape.vectors > 0 ? shape.vectors : 1;
    bool divides = is_sum(shape) && shape.fold != FOLD_SINGLE && job->reduction != EB_REDUCTION_SUM;
    ACC divisor = divides ? find_divisor(job, b) : 1;
#pragma GCC unroll 16
    for (unsigned v = 0; v < vectors; v++) {
        VEC sum = vec_in_order(shape.storage, sums->acc[v]);
        if (is_code(shape) && is_sum(shape)) {
            sum = vec_add(sum, vec_set(sums->bias));
        }
        if (divides) {
            sum = divisor == 0 ? vec_set(0) : vec_divide(sum, vec_set(divisor));
        }
        sums->acc[v] = sum;
    }
    unsigned nans = 0;
#pragma GCC unroll 8
    for (unsigned v = 0; v < vectors; v += 2) {
        nans |= vec_nans(sums->acc[v], sums->acc[v + 1 < vectors ? v + 1 : v]);
    }
    if (__builtin_expect(nans != 0, 0)) {
#pragma GCC unroll 16
        for (unsigned v = 0; v < vectors; v++) {
            sums->acc[v] = vec_canonical(sums->acc[v]);
        }
    }
}

/* Converts columns to the output type. Few requests need it, so it is kept out of the way of
 * f32. */
static COLD void convert(enum eb_type type, const ACC *columns, unsigned count, uint8_t *out)
{
    size_t vector_bytes = LANES * eb_type_bytes(type);
    while (count > 0) {
        unsigned some = count < LANES ? count : LANES;
        VEC v = vec_load((enum eb_storage)ACC_TYPE, (const void *)columns, some);
        vec_store(type, v, out, some);
        columns += some;
        out += vector_bytes;
        count -= some;
    }
}

static INLINE void store_sums(
    struct shape shape, enum eb_type type, unsigned rest, const struct sums *sums, uint8_t *out)
{
    ACC buffer[BLOCK_ELEMENTS];
    uint8_t *to = type == ACC_TYPE ? out : (uint8_t *)buffer;
    if (shape.vectors == 0) {
        vec_store(ACC_TYPE, sums->acc[0], to, rest);
    }
#pragma GCC unroll 16
    for (unsigned v = 0; v < shape.vectors; v++) {
        vec_store(ACC_TYPE, sums->acc[v], to + v * sizeof(VEC), LANES);
    }
    if (type != ACC_TYPE) {
        convert(type, buffer, shape.vectors > 0 ? shape.vectors * LANES : rest, out);
    }
}
