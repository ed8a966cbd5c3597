/* On which memory nodes of the machine tables lie.
 * Thread: any. Memory: none. */
#pragma once

#include <stdint.h>

/* X(NAME, text): the text is the setting's value. */
#define EB_NUMA_LIST(X)                                                                            \
    X(INTERLEAVE, "interleave") /* spread over all nodes the process may use: every thread finds   \
                                   the same mixture */                                             \
    X(LOCAL, "local")           /* on the node of the thread that loads, while it has memory */    \
    X(OFF, "off")               /* where the process's own policy (numactl) puts them */

#define X(name, text) EB_NUMA_##name,
enum eb_numa { EB_NUMA_LIST(X) EB_NUMA_COUNT };
#undef X

/* By number, ended by NULL. */
extern const char *const eb_numa_names[];

/* Nodes that this process may take memory from; 1 where the system does not know nodes. */
unsigned eb_numa_policy_node_count(void);

/* Says where the pages of a mapping go that are not there yet. Does nothing where there is one
 * node. 0, or a negative errno: they go where they would have gone anyway. */
int eb_numa_policy_apply(enum eb_numa policy, void *base, uint64_t bytes);
