/* Integer rows with AVX2. */
#define VECTOR_BYTES 32
#include "kernels/bag_int_tmpl.c"

DEFINE_INT_POOL(eb_bag_avx2_int)
