#include "server/tables/numa_policy.h"

#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <stddef.h>

const char *const eb_numa_names[] = {
#define X(name, text) text,
    EB_NUMA_LIST(X)
#undef X
        NULL};

unsigned eb_numa_policy_node_count(void)
{
    errno = 0;
    /* EPERM means that a seccomp profile forbids the calls, not that there are no nodes. Newer
     * versions of libnuma report it as an error. The mask is valid all the same, and mbind will
     * fail with EPERM too. */
    if (numa_available() < 0 && errno != EPERM) {
        return 1;
    }
    unsigned count = numa_bitmask_weight(numa_all_nodes_ptr);
    return count > 0 ? count : 1;
}

int eb_numa_policy_apply(enum eb_numa policy, void *base, uint64_t bytes)
{
    if (policy == EB_NUMA_OFF || eb_numa_policy_node_count() < 2) {
        return 0;
    }
    /* Use the system call itself: libnuma's own functions write to stderr if it is refused. */
    const struct bitmask *nodes = numa_all_nodes_ptr;
    long result = policy == EB_NUMA_LOCAL
                      ? mbind(base, bytes, MPOL_LOCAL, NULL, 0, 0)
                      : mbind(base, bytes, MPOL_INTERLEAVE, nodes->maskp, nodes->size + 1, 0);
    return result == 0 ? 0 : -errno;
}
