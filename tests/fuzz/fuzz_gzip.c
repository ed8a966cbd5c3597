/* A compressed message's bytes: what comes out keeps to the cap, and nothing is left behind. */
#include "proto/gzip.h"

#include <assert.h>
#include <stdlib.h>

#define BYTES_MAX 100000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is lent, and the most that may be at once. */
struct purse {
    size_t lent_bytes;
};

static void *take(void *context, size_t bytes)
{
    struct purse *purse = context;
    purse->lent_bytes += bytes;
    assert(purse->lent_bytes <= BYTES_MAX + 65536 + 1);
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void give(void *context, void *memory, size_t bytes)
{
    struct purse *purse = context;
    assert(purse->lent_bytes >= bytes);
    purse->lent_bytes -= bytes;
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct purse purse = {0};
    const struct eb_memory memory = {take, give, &purse};
    struct eb_gzip_bytes out;
    if (eb_gzip_inflate(&memory, data, size, BYTES_MAX, &out) == EB_GZIP_DONE) {
        assert(out.size <= BYTES_MAX);
        give(&purse, out.bytes, out.taken_bytes);
    }
    assert(purse.lent_bytes == 0);
    return 0;
}
