#include "kernels/bag_avx512.h"

#include "kernels/bag_variant_table.h"

/* Sixteen vectors of sums stay in registers, eight for integers. */
EB_BAG_VARIANT_DEFINE(avx512, 256, 512);
