#include "tests/bench/fbgemm_peer.h"

#include <stddef.h>

bool eb_fbgemm_is_built(void)
{
    return false;
}

struct eb_fbgemm_kernel *eb_fbgemm_create(const struct eb_fbgemm_shape *shape)
{
    (void)shape;
    return NULL;
}

void eb_fbgemm_destroy(struct eb_fbgemm_kernel *kernel)
{
    (void)kernel;
}

bool eb_fbgemm_is_tuned(const struct eb_fbgemm_shape *shape)
{
    (void)shape;
    return false;
}

bool eb_fbgemm_run(
    const struct eb_fbgemm_kernel *kernel, const struct eb_fbgemm_call *calls, uint64_t call_count)
{
    (void)kernel;
    (void)calls;
    (void)call_count;
    return false;
}
