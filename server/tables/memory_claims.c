#include "server/tables/memory_claims.h"

#include "server/base/machine.h"

#include <assert.h>

int eb_memory_claims_init(struct eb_memory_claims *claims)
{
    claims->bytes = 0;
    return pthread_mutex_init(&claims->mutex, NULL);
}

void eb_memory_claims_deinit(struct eb_memory_claims *claims)
{
    assert(claims->bytes == 0);
    pthread_mutex_destroy(&claims->mutex);
}

static void lock_claims(struct eb_memory_claims *claims)
{
    int rc = pthread_mutex_lock(&claims->mutex);
    assert(rc == 0);
    (void)rc;
}

bool eb_memory_claims_take(
    struct eb_memory_claims *claims, uint64_t bytes, uint64_t *held, uint64_t *available)
{
    if (!claims) {
        *available = eb_machine_available_bytes();
        return bytes <= *available;
    }
    lock_claims(claims);
    uint64_t others = claims->bytes - *held;
    uint64_t free_bytes = eb_machine_available_bytes();
    *available = free_bytes > others ? free_bytes - others : 0;
    bool is_enough = bytes <= *available;
    if (is_enough) {
        claims->bytes = others + bytes;
        *held = bytes;
    }
    pthread_mutex_unlock(&claims->mutex);
    return is_enough;
}

void eb_memory_claims_give(struct eb_memory_claims *claims, uint64_t held)
{
    if (claims) {
        lock_claims(claims);
        assert(claims->bytes >= held);
        claims->bytes -= held;
        pthread_mutex_unlock(&claims->mutex);
    }
}
