/* Integer rows with AVX-512. */
#include "kernels/bag_avx512.h"

#define VECTOR_BYTES 64
#include "kernels/bag_int_fold.h"

void eb_bag_avx512_int(const struct eb_bag_range *range, struct eb_bag_prefetch *prefetch)
{
    eb_bag_int_pool(range, prefetch, &folds);
}
