#include "kernels/bag_neon.h"

#include "kernels/bag_variant_table.h"

/* Eight vectors of sums stay in registers. */
EB_BAG_VARIANT_DEFINE(neon, 32, 128);
