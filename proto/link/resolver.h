/* Resolves the names among a client's targets, again and again, on a thread of its own: the
 * system's resolver can block for minutes. The thread exists only while it resolves names. If the
 * resolver is closed meanwhile, the thread ends by itself and its result is dropped.
 * Thread: the loop's. Memory: open allocates; the results are borrowed for the callback. */
#pragma once

#include "proto/link/target.h"
#include "proto/net/mailbox.h"

/* Most addresses that are used for one name: a name with more is a mistake, and each takes memory
 * and time on every loop. */
#define EB_RESOLVER_ADDRESSES_MAX 1024
/* Least time between the ends of two resolutions: a name service must not suffer from lost
 * connections. */
#define EB_RESOLVER_PAUSE_NS UINT64_C(1000000000)

/* The result for one target's name. */
struct eb_resolver_result {
    struct eb_address *addresses; /* [count] */
    uint32_t count;               /* 0: not found, see error */
    uint32_t left_out;            /* addresses that are not used, because there are too many */
    struct eb_error error;        /* UNAVAILABLE, naming the host */
};

struct eb_resolver_job; /* shared with the thread */

struct eb_resolver {
    /* Set by the owner before open. */
    const struct eb_targets *targets;
    uint64_t interval_ns; /* mean time between resolutions; 20 % of it, either way, are random */
    /* Called when all names have been resolved: results[i] belongs to targets->items[i]. Those of
     * targets without a name are empty. */
    void (*on_results)(void *context, const struct eb_resolver_result *results);
    void *context;

    /* Private. */
    struct eb_mailbox mailbox;
    struct eb_resolver_job *job; /* NULL: nothing is being resolved */
    uint64_t due_ns;             /* time of the next resolution; no meaning while there is a job */
    uint64_t ended_ns;           /* when the last one ended; 0: none has */
    uint64_t random;             /* state of splitmix64.h */
    bool is_hurried; /* the next resolution is due soon after the one that is under way */
    bool is_open;
};

/* Opens the resolver; a resolution is due at once. Returns 0, or a negative libuv code with nothing
 * open. */
int eb_resolver_open(struct eb_resolver *resolver, uv_loop_t *loop);
/* Drops the result of a resolution that is under way. The resolver must stay in place until the
 * loop has closed its handle. Accepts a zeroed one. */
void eb_resolver_close(struct eb_resolver *resolver);

/* Makes the next resolution due as soon as EB_RESOLVER_PAUSE_NS allows it. One that is under way
 * does not count: it may have begun before the addresses changed. */
void eb_resolver_hurry(struct eb_resolver *resolver);
/* Starts a resolution if one is due. Returns when to call this again; UINT64_MAX if a resolution is
 * under way, whose result will be told. If no thread can be started, tries again later. */
uint64_t eb_resolver_run(struct eb_resolver *resolver, uint64_t now_ns);
