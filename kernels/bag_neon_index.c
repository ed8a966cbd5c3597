/* The index pass with NEON. */
#define VECTOR_BYTES 16
#define WIDEN(v) ((lanes) __builtin_convertvector((v), signed_lanes))
#define NARROW(v) __builtin_convertvector((v), int32_lanes)

#include "kernels/bag_index_lanes.h"

DEFINE_INDEX_FNS(eb_bag_neon_index)
