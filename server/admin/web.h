/* The operators' port, HTTP/1.0 and 1.1: answers GET and HEAD of the paths that web_answer.h lists.
 * It has a thread and a libuv loop of its own, so it answers while models are loaded and while the
 * other loops are busy. libmicrohttpd handles HTTP on that loop.
 *
 * There is no authentication. But strangers cannot make the port hold more than the caps below,
 * keep a connection longer than its time limits allow, or cause requests to the loops more often
 * than every interval_ms, however many strangers there are. A request over an address of the
 * machine itself (127.0.0.1 is the default) gets 421 if its Host is a name that a site elsewhere
 * may own. So no web page can read the port through the browser of a user of this machine. Over
 * other addresses every name is accepted, because there the network decides which names lead to the
 * port.
 *
 * Threads: open, eb_web_address and close on main; everything else on the port's own. Memory: on
 * the heap from open to close. */
#pragma once

#include "proto/net/address.h"
#include "server/admin/web_answer.h"
#include "server/base/failure.h"
#include "server/stats/stats_collector.h"

/* Most open connections. At this limit a new one replaces the client that has gone longest since
 * its last answer, or since it was opened. So nobody can keep out a probe by holding
 * connections. */
#define EB_WEB_CONNECTIONS_MAX 64
/* Memory of a connection: for its request line and headers, and for the headers of its answer. A
 * longer request line or longer headers get 414 or 431. */
#define EB_WEB_CONNECTION_BYTES 16384

struct eb_web; /* opaque */

/* Time limits. */
struct eb_web_times {
    /* Time until the first request line of a connection has come, and time from each request line
     * to the end of the answer, even if the reader is slow. Then the connection is closed. */
    uint64_t request_ms;
    uint64_t idle_ms;     /* time between requests of a connection; then it is closed */
    uint64_t stats_ms;    /* time for loops to answer; then waiting clients get 503 */
    uint64_t interval_ms; /* least time between stats; clients that come meanwhile share the next */
};

struct eb_web_options {
    struct eb_web_facts facts; /* texts are borrowed until close */
    struct eb_web_times times;
    size_t address_count; /* at most EB_ADDRESS_RESOLVED_MAX */
    const struct eb_address *addresses;
    struct eb_stats_collector *collector; /* opened and used on the port's thread; kept */
};

/* Listens on all addresses and starts the thread. Returns NULL with *failure set if that fails;
 * nothing is open then. */
struct eb_web *eb_web_open(const struct eb_web_options *options, struct eb_failure *failure);
/* Returns the address at `index` that the port listens on. A port number of 0 has been replaced by
 * the one that the system gave. Returns NULL if there is no such address. */
const struct eb_address *eb_web_address(const struct eb_web *web, size_t index);
/* Returns the mailbox of its thread, open until eb_web_close. */
struct eb_mailbox *eb_web_mailbox(struct eb_web *web);
/* Ends requests that are being answered and joins the thread. Clients whose stats are not being
 * taken yet are told that the server ends. The collector must still exist. If its loops do not
 * answer any more, it must have been detached. */
void eb_web_close(struct eb_web *web);
