/* The port for operators, HTTP/1.0 and 1.1: what web_answer.h lists, by GET and HEAD. It has a
 * thread and a libuv loop of its own, so that it answers while models are loaded and while the
 * other loops are busy; libmicrohttpd speaks HTTP on that loop.
 *
 * What strangers cannot do here, for there is no authentication: make it hold more than the caps
 * of web_client.h, keep a connection longer than its times say, or have the loops asked more often
 * than every interval_ms, however many ask. Over an address of the machine itself (127.0.0.1, as is
 * the default) a request whose Host is a name that a site elsewhere may own gets 421, so that no
 * web page can read it through the browser of who sits there; over other addresses names are the
 * network's own.
 *
 * Thread: open, eb_web_address and close on main; the rest on its own. Memory: on the heap from
 * open to close. */
#pragma once

#include "proto/net/address.h"
#include "proto/net/mailbox.h"
#include "server/admin/web_answer.h"

struct eb_web;

/* How long things may take. */
struct eb_web_times {
    /* A connection's first request line, and a request from there to its answer's end, the slowest
     * reader's too; then the connection is closed. */
    uint64_t request_ms;
    uint64_t idle_ms;     /* between requests of one connection; then it is closed */
    uint64_t stats_ms;    /* for loops to answer; then their askers get 503 */
    uint64_t interval_ms; /* from stats to the next, at least: who asks meanwhile shares it */
};

struct eb_web_options {
    struct eb_web_facts facts; /* borrowed until close */
    struct eb_web_times times;
    size_t address_count; /* at most EB_ADDRESS_RESOLVED_MAX */
    const struct eb_address *addresses;
    struct eb_stats_source source; /* called on the web's thread; borrowed until close */
};

/* Listens and starts the thread. NULL: *why says what failed. */
struct eb_web *eb_web_open(const struct eb_web_options *options, char *why, size_t why_bytes);
/* The addresses it listens on, with the ports that the system gave for those of 0. NULL: there is
 * none at this index. */
const struct eb_address *eb_web_address(const struct eb_web *web, size_t index);
/* Of its loop; open until eb_web_close. */
struct eb_mailbox *eb_web_mailbox(struct eb_web *web);
/* Ends requests that are being answered and joins the thread: whoever waits for stats that is
 * not being taken yet is told that the server ends. The taker must still be there, and what it asks
 * must answer or have been detached. Accepts NULL. */
void eb_web_close(struct eb_web *web);
