/* Integer rows with AVX2. */
#include "kernels/bag_avx2.h"

#define VECTOR_BYTES 32
#include "kernels/bag_int_fold.h"

void eb_bag_avx2_int(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch)
{
    eb_bag_int_pool(range, prefetch, &folds);
}
