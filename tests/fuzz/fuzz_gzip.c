/* Decompresses bytes as a gzip message. The output respects the limit, and no memory leaks. */
#include "proto/gzip.h"

#include <assert.h>
#include <stdlib.h>

/* Limits of the decompressed size: one below and one above EB_GZIP_FREE_BYTES, up to which any
 * compression ratio is allowed. */
#define BYTES_MAX_SMALL 100000
#define BYTES_MAX_LARGE (2 * EB_GZIP_FREE_BYTES)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Memory that is lent, and the limit on it. */
struct purse {
    size_t lent_bytes;
    size_t bytes_max;
};

static void *take(void *context, size_t bytes)
{
    struct purse *purse = context;
    purse->lent_bytes += bytes;
    assert(purse->lent_bytes <= purse->bytes_max + 65536 + 1);
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void give(void *context, void *memory, size_t bytes)
{
    struct purse *purse = context;
    assert(purse->lent_bytes >= bytes);
    purse->lent_bytes -= bytes;
    free(memory);
}

static void inflate_within(uint32_t bytes_max, const uint8_t *data, size_t size)
{
    struct purse purse = {.bytes_max = bytes_max};
    struct eb_memory memory = {take, give, &purse};
    struct eb_gzip_bytes out;
    if (eb_gzip_inflate(&memory, data, size, bytes_max, &out) == EB_GZIP_DONE) {
        assert(out.size <= bytes_max);
        give(&purse, out.bytes, out.taken_bytes);
    }
    assert(purse.lent_bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    inflate_within(BYTES_MAX_SMALL, data, size);
    inflate_within(BYTES_MAX_LARGE, data, size);
    return 0;
}
