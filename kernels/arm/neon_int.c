/* Integer rows with Advanced SIMD. */
#define VECTOR_BYTES 16
#include "kernels/bag_int_tmpl.c"

DEFINE_INT_POOL(eb_bag_neon_int)
