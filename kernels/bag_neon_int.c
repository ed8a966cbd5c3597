/* Integer rows with Advanced SIMD. */
#include "kernels/bag_neon.h"

#define VECTOR_BYTES 16
#include "kernels/bag_int_fold.h"

void eb_bag_neon_int(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch)
{
    eb_bag_int_pool(range, prefetch, &folds);
}
