/* Every cap of the server: its name as a setting and in GetServer, default, least and greatest
 * value, unit, and what it protects.
 * Thread, memory: constants; a struct eb_limits is immutable once the settings are read. */
#pragma once

#include <stdint.h>

/* X(name, default, min, max, "what it protects and what happens at it") */
#define EB_LIMIT_AMOUNT_LIST(X)                                                                    \
    X(request_bytes_max, 16777216, 1024, 268435456,                                                \
        "bytes of one request message; a larger one gets RESOURCE_EXHAUSTED")                      \
    X(response_bytes_max, 67108864, 1024, 1073741824,                                              \
        "bytes of one answer; a request that would need more gets RESOURCE_EXHAUSTED")             \
    X(queries_max, 4096, 1, 1048576, "queries of one request; more get RESOURCE_EXHAUSTED")        \
    X(indices_max, 4000000, 1, 16777216,                                                           \
        "indices of one request, all queries together; more get RESOURCE_EXHAUSTED")               \
    X(bags_max, 4000000, 1, 16777216,                                                              \
        "bags of one request, all queries together; more get RESOURCE_EXHAUSTED")                  \
    X(row_bytes_max, 65536, 4, 16777216, "bytes of one table row; a wider table is not loaded")    \
    X(name_bytes_max, 255, 1, 4096, "bytes of a model's or table's name")                          \
    X(header_fields_max, 64, 16, 1024, "header fields of one call")                                \
    X(header_bytes_max, 16384, 1024, 65536, "bytes of one call's header fields together")          \
    X(streams_max, 256, 1, 65536, "open calls of one connection")                                  \
    X(in_flight_max, 256, 2, 65536,                                                                \
        "requests of one connection being worked on, half of them of batch priority; a unary "     \
        "call beyond, or a batch request beyond that half, gets RESOURCE_EXHAUSTED, a "            \
        "LookupStream is not read further")                                                        \
    X(connections_max, 10000, 1, 1000000, "open connections; a new one is closed at once")         \
    X(receive_memory_bytes, 1073741824, 33554432, 1099511627776,                                   \
        "bytes of all requests in memory, an equal part for each loop, of which one connection "   \
        "has at most half; a request beyond gets RESOURCE_EXHAUSTED")                              \
    X(answer_memory_bytes, 2147483648, 134217728, 1099511627776,                                   \
        "bytes of all answers and working memory, an equal part for each loop; a request beyond "  \
        "gets RESOURCE_EXHAUSTED")                                                                 \
    X(queue_bytes_max, 1073741824, 1048576, 1099511627776,                                         \
        "bytes of rows that queued requests will touch; a request beyond gets "                    \
        "RESOURCE_EXHAUSTED with a push-back")                                                     \
    X(outbound_bytes_max, 67108864, 1048576, 1073741824,                                           \
        "bytes of memory of a connection's requests that wait and of its answers that are not "    \
        "taken: at it its streams are not read further and its unary calls wait")                  \
    X(load_bytes_per_s, 1073741824, 1048576, 1099511627776,                                        \
        "bytes read a second, at most, of versions that are loaded while the server serves")       \
    X(kept_versions_max, 16, 0, 65536,                                                             \
        "versions of a model that stay for versions.keep_s though nothing wants them; beyond, "    \
        "the oldest goes early; 0: any number")                                                    \
    X(kept_bytes_max, 0, 0, 1099511627776,                                                         \
        "bytes of memory of all models' versions that stay so and may go early (not the last one " \
        "of a model); beyond, the oldest goes, of the model with most; 0: any number")             \
    X(access_log_sample, 1000, 1, 1000000000,                                                      \
        "with access_log sampled, of so many requests that did not fail one is logged")            \
    X(access_log_per_s_max, 100, 1, 1000000,                                                       \
        "lines a second of requests that failed, and as many of others, an equal part for each "   \
        "loop, of at least one; event=requests_not_logged counts what is left out")

#define EB_LIMIT_TIME_LIST(X)                                                                      \
    X(header_timeout_ms, 5000, 100, 600000,                                                        \
        "time for a connection's TLS handshake, preface and headers")                              \
    X(auth_timeout_ms, 10000, 0, 86400000,                                                         \
        "with an auth_file: time for a connection's first call by someone who is known; then it "  \
        "takes no new calls, as one that is old; 0: for ever")                                     \
    X(message_timeout_ms, 15000, 100, 600000,                                                      \
        "time without progress inside one message, or between a unary call's message and the end " \
        "of its request, and a quarter of what a message may take that comes at less than 4 "      \
        "KiB/s: its call ends")                                                                    \
    X(write_timeout_ms, 30000, 100, 600000,                                                        \
        "time without progress in writing: a connection is closed, a call whose answer hardly "    \
        "moves is reset")                                                                          \
    X(deadline_max_ms, 60000, 1, 3600000,                                                          \
        "longest deadline of a unary call or timeout_us; longer ones are clamped")                 \
    X(ping_interval_min_ms, 5000, 0, 86400000,                                                     \
        "time between a client's pings while it has calls; the third that comes sooner, with "     \
        "nothing sent to it in between, ends its connection; 0: as often as it likes")             \
    X(ping_idle_interval_min_ms, 30000, 0, 86400000, "the same while a client has no calls")       \
    X(keepalive_ms, 7200000, 0, 86400000,                                                          \
        "time without a byte from a client; then it is asked whether it is there; 0: never")       \
    X(keepalive_timeout_ms, 20000, 100, 600000,                                                    \
        "time for the answer to that; its connection is closed")                                   \
    X(connection_idle_max_ms, 0, 0, 86400000,                                                      \
        "time without calls; the connection is ended; 0: never")                                   \
    X(connection_age_max_ms, 0, 0, 86400000,                                                       \
        "age of a connection, more or less by a tenth; it takes no new calls; 0: never")           \
    X(connection_grace_ms, 60000, 0, 86400000,                                                     \
        "time for the calls of a connection that is ended so; then streams are ended, and after "  \
        "drain_timeout_ms the connection is cut")                                                  \
    X(drain_delay_ms, 0, 0, 3600000,                                                               \
        "time after SIGTERM in which health says NOT_SERVING and calls are still taken, so that "  \
        "balancers notice; then drain_timeout_ms begins")                                          \
    X(drain_timeout_ms, 30000, 0, 3600000, "time for open calls to end after SIGTERM")             \
    X(watch_poll_ms, 10000, 100, 3600000,                                                          \
        "time between looks at the repository, unless watch is off")                               \
    X(inline_below_us, 15, 0, 1000,                                                                \
        "work estimated below this runs on the loop that read it; 0 sends all to the pool")

#define EB_LIMIT_LIST(X) EB_LIMIT_AMOUNT_LIST(X) EB_LIMIT_TIME_LIST(X)

/* The caps in force, by their names as settings. */
struct eb_limits {
#define X(name, fallback, min, max, what) uint64_t name;
    EB_LIMIT_LIST(X)
#undef X
};
