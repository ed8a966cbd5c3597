/* Every cap of the server: its name as a setting and in GetServer, default, least and greatest
 * value, unit, when a change takes effect, and what it protects.
 * Thread, memory: constants; whoever needs the limits in force has a copy of its own. */
#pragma once

#include <stdint.h>

/* X(name, when a change takes effect, default, min, max, "what it protects and what happens at it")
 *
 * LIVE: as soon as the settings are read again. START: at the next start, because the limit
 * determines the size of memory, peers have been told of it, or connections depend on it as long as
 * they last. */
#define EB_LIMIT_AMOUNT_LIST(X)                                                                    \
    X(request_bytes_max, START, 16777216, 1024, 268435456,                                         \
        "bytes of one request message; a larger one gets RESOURCE_EXHAUSTED")                      \
    X(response_bytes_max, LIVE, 67108864, 1024, 1073741824,                                        \
        "bytes of one answer; a request that would need more gets RESOURCE_EXHAUSTED")             \
    X(queries_max, LIVE, 4096, 1, 1048576, "queries of one request; more get RESOURCE_EXHAUSTED")  \
    X(indices_max, LIVE, 4000000, 1, 16777216,                                                     \
        "indices of one request, over all its queries; more get RESOURCE_EXHAUSTED")               \
    X(bags_max, LIVE, 4000000, 1, 16777216,                                                        \
        "bags of one request, over all its queries; more get RESOURCE_EXHAUSTED")                  \
    X(row_bytes_max, LIVE, 65536, 4, 16777216,                                                     \
        "bytes of one table row; a wider table is not loaded")                                     \
    X(name_bytes_max, START, 255, 1, 4096, "bytes of a model's or table's name")                   \
    X(header_fields_max, START, 64, 16, 1024, "header fields of one call")                         \
    X(header_bytes_max, START, 16384, 1024, 65536, "bytes of all header fields of one call")       \
    X(streams_max, START, 256, 1, 65536, "calls open at the same time on one connection")          \
    X(in_flight_max, LIVE, 256, 2, 65536,                                                          \
        "requests in flight on one connection, at most half of them of batch priority; a "         \
        "unary call beyond the limit, or a batch request beyond that half, gets "                  \
        "RESOURCE_EXHAUSTED; a LookupStream is not read further")                                  \
    X(connections_max, LIVE, 10000, 1, 1000000, "open connections; one more is closed at once")    \
    X(handshakes_per_s_max, LIVE, 500, 0, 1000000,                                                 \
        "TLS handshakes that one loop begins per second; more wait, and a connection that "        \
        "would wait for longer than header_timeout_ms is closed at once; 0: no limit")             \
    X(receive_memory_bytes, START, 1073741824, 33554432, 1099511627776,                            \
        "bytes of all requests in memory, divided equally among the loops; one connection has "    \
        "at most half of its loop's part; a request beyond that gets RESOURCE_EXHAUSTED")          \
    X(answer_memory_bytes, START, 2147483648, 134217728, 1099511627776,                            \
        "bytes of all answers and working memory, divided equally among the loops; a request "     \
        "beyond that gets RESOURCE_EXHAUSTED")                                                     \
    X(queue_bytes_max, LIVE, 1073741824, 1048576, 1099511627776,                                   \
        "bytes of rows that queued requests will read; a request beyond that gets "                \
        "RESOURCE_EXHAUSTED and a time after which to retry")                                      \
    X(outbound_bytes_max, START, 67108864, 1048576, 1073741824,                                    \
        "bytes of one connection's waiting requests and of its answers that the client has "       \
        "not taken yet; at the limit its streams are not read further and its unary calls "        \
        "wait")                                                                                    \
    X(load_bytes_per_s, LIVE, 1073741824, 1048576, 1099511627776,                                  \
        "bytes read per second, at most, to load versions while the server serves")                \
    X(load_threads, LIVE, 0, 0, 64,                                                                \
        "threads that read and convert the tables of a version; 0: at start, twice the CPUs, at "  \
        "most 16; while the server serves, a quarter of the CPUs, at least 1")                     \
    X(kept_versions_max, LIVE, 16, 0, 65536,                                                       \
        "versions of a model that stay for versions.keep_s after they are no longer needed; "      \
        "beyond that, the oldest is evicted early; 0: no limit")                                   \
    X(kept_bytes_max, LIVE, 0, 0, 1099511627776,                                                   \
        "bytes of memory of all versions that stay for versions.keep_s after they are no longer "  \
        "needed, except the last one of each model; beyond that, the oldest one of the model "     \
        "that "                                                                                    \
        "keeps most is evicted early; 0: no limit")                                                \
    X(flip_replicas, START, 1, 1, 1024,                                                            \
        "number of servers that must have each part before a router serves a new version; if "     \
        "fewer servers of a part are connected, all of them must have it; ignored if another "     \
        "router already serves the version")                                                       \
    X(route_slab_bytes, LIVE, 8388608, 4096, 268435456,                                            \
        "bytes of one answer that a router requests from a part server; the request has at most "  \
        "half as many; larger ones are divided, except a single bag")                              \
    X(hedge_percent, START, 5, 0, 100,                                                             \
        "percentage of a router's requests to part servers that may be sent to a second server "   \
        "because their answers are late; 0: none")                                                 \
    X(access_log_sample, LIVE, 1000, 1, 1000000000,                                                \
        "with access_log sampled: one in this many of the requests that did not fail is logged")   \
    X(access_log_per_s_max, LIVE, 100, 1, 1000000,                                                 \
        "log lines per second for failed requests, and as many for others, divided equally "       \
        "among the loops, at least one each; event=requests_not_logged counts the requests "       \
        "left out")

#define EB_LIMIT_TIME_LIST(X)                                                                      \
    X(header_timeout_ms, LIVE, 5000, 100, 600000,                                                  \
        "time for a connection's TLS handshake and HTTP/2 preface, and for each block of "         \
        "headers")                                                                                 \
    X(auth_timeout_ms, LIVE, 10000, 0, 86400000,                                                   \
        "time for a connection's first call by a known caller, if auth_file is set; if none "      \
        "comes, the connection then takes no new calls, as with connection_age_max_ms; 0: no "     \
        "limit")                                                                                   \
    X(message_timeout_ms, LIVE, 15000, 100, 600000,                                                \
        "time without progress inside one message, or between a unary call's message and the "     \
        "end of its request; then the call ends; a message that arrives at less than 4 KiB/s "     \
        "may take four times as long")                                                             \
    X(write_timeout_ms, LIVE, 30000, 100, 600000,                                                  \
        "time without progress in writing; then a connection is closed, and a call whose "         \
        "answer hardly moves is reset")                                                            \
    X(deadline_max_ms, LIVE, 60000, 1, 3600000,                                                    \
        "longest deadline of a unary call and longest timeout_us; longer ones are shortened "      \
        "to this")                                                                                 \
    X(ping_interval_min_ms, LIVE, 5000, 0, 86400000,                                               \
        "shortest time between pings of a client that has open calls; the third that comes "       \
        "sooner, "                                                                                 \
        "with nothing sent to the client in between, ends its connection; 0: no limit")            \
    X(ping_idle_interval_min_ms, LIVE, 30000, 0, 86400000,                                         \
        "shortest time between pings of a client that has no open calls; otherwise as "            \
        "ping_interval_min_ms")                                                                    \
    X(keepalive_ms, LIVE, 7200000, 0, 86400000,                                                    \
        "time without a byte from a client; then the server sends it a ping; 0: never")            \
    X(keepalive_timeout_ms, LIVE, 20000, 100, 600000,                                              \
        "time for a client to answer the ping of keepalive_ms; then its connection is closed")     \
    X(connection_idle_max_ms, LIVE, 0, 0, 86400000,                                                \
        "time without calls; then the connection is ended; 0: never")                              \
    X(connection_age_max_ms, LIVE, 0, 0, 86400000,                                                 \
        "age of a connection, plus or minus a tenth; then it takes no new calls; 0: never")        \
    X(connection_grace_ms, LIVE, 60000, 0, 86400000,                                               \
        "time for the open calls of a connection that takes no new ones because of its age, "      \
        "idleness or auth_timeout_ms; then its streams are ended, and after drain_timeout_ms "     \
        "the connection is cut")                                                                   \
    X(drain_delay_ms, LIVE, 0, 0, 3600000,                                                         \
        "time after SIGTERM in which health checks report NOT_SERVING but calls are still "        \
        "accepted, so that load balancers notice; drain_timeout_ms begins after it")               \
    X(drain_timeout_ms, LIVE, 30000, 0, 3600000,                                                   \
        "time for open calls to end after SIGTERM; then connections are cut")                      \
    X(watch_poll_ms, LIVE, 10000, 100, 3600000,                                                    \
        "time between scans of the repository, and between scans of certificates and "             \
        "auth_file, unless watch is off")                                                          \
    X(load_jitter_s, LIVE, 0, 0, 3600,                                                             \
        "longest wait, in seconds, of a new version before it loads, chosen at random, so that "   \
        "servers that share a disk do not all read it at once; none at start, for a command, or "  \
        "for a model that serves no version; 0: none")                                             \
    X(claim_grace_s, LIVE, 60, 0, 86400,                                                           \
        "shortest time, in seconds, for which a version stays in memory after the last router "    \
        "that claimed it has gone, even if versions.keep_s is less")                               \
    X(pin_ttl_s, LIVE, 600, 0, 86400,                                                              \
        "time, in seconds, for which a version that a request names by its number stays in "       \
        "memory; versions.keep_s begins after it; 0: such requests keep nothing in memory")        \
    X(route_resolve_ms, START, 5000, 1000, 3600000,                                                \
        "time between two resolutions of the names of part servers, plus or minus a fifth")        \
    X(route_settle_ms, START, 3000, 0, 600000,                                                     \
        "longest time for which a router that starts waits for the answers of all part servers "   \
        "before it decides which version it serves")                                               \
    X(next_wait_s, START, 1800, 1, 604800,                                                         \
        "longest time, in seconds, for which a router waits for a version that is not complete "   \
        "while a higher one exists, and for which versions that requests name may keep another "   \
        "one from being loaded")                                                                   \
    X(hedge_delay_min_us, START, 300, 1, 1000000,                                                  \
        "shortest time after which a router sends a request to a second part server")              \
    X(inline_below_us, LIVE, 15, 0, 1000,                                                          \
        "estimated time below which a request is computed on the event loop that read it; "        \
        "others go to the executor; 0: none")

#define EB_LIMIT_LIST(X) EB_LIMIT_AMOUNT_LIST(X) EB_LIMIT_TIME_LIST(X)

/* The caps in force, by their names as settings. */
struct eb_limits {
#define X(name, effect, fallback, min, max, what) uint64_t name;
    EB_LIMIT_LIST(X)
#undef X
};
