/* The index pass with NEON. */
#include <arm_neon.h>

#define VECTOR_BYTES 16
#define WIDEN(v) ((lanes) __builtin_convertvector((v), signed_lanes))
#define NARROW(v) __builtin_convertvector((v), int32_lanes)
#define SUM_UP(v) ((v) + (lanes)vextq_u64(vdupq_n_u64(0), (uint64x2_t)(v), 1))

#include "kernels/bag_index_tmpl.c"

DEFINE_INDEX_FNS(eb_bag_neon_index, eb_key_index_take_rows)
