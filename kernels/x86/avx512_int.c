/* Integer rows with AVX-512. */
#define VECTOR_BYTES 64
#include "kernels/bag_int_tmpl.c"

DEFINE_INT_POOL(eb_bag_avx512_int)
