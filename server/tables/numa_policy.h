/* The memory nodes of the machine that tables are placed on.
 * Thread: any. Memory: none. */
#pragma once

#include <stdint.h>

/* X(NAME, text): the text is the setting's value. */
#define EB_NUMA_LIST(X)                                                                            \
    X(INTERLEAVE, "interleave") /* spread over all nodes the process may use: every thread finds   \
                                   the same mixture */                                             \
    X(LOCAL, "local")           /* on the node of the thread that loads, while it has memory */    \
    X(OFF, "off")               /* on the nodes of the process's own policy (numactl) */

#define X(name, text) EB_NUMA_##name,
enum eb_numa { EB_NUMA_LIST(X) EB_NUMA_COUNT };
#undef X

/* Names by number, with NULL at the end. */
extern const char *const eb_numa_names[];

/* Returns the number of nodes that this process may take memory from; returns 1 if the system does
 * not support nodes. */
unsigned eb_numa_policy_node_count(void);

/* Sets the nodes for pages of a mapping that are not present yet. Does nothing if there is only one
 * node. Returns 0, or a negative errno with the placement unchanged. */
int eb_numa_policy_apply(enum eb_numa policy, void *base, uint64_t bytes);
