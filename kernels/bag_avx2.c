#include "kernels/bag_avx2.h"

#include "kernels/bag_variant_table.h"

/* Eight vectors of sums stay in registers. */
EB_BAG_VARIANT_DEFINE(avx2, 64, 256);
