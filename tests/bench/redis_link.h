/* Connections to Redis servers that hold the rows of a workload: each value is a row of f32. The
 * servers are one server, or the nodes of a cluster in the order of their slots, which are divided
 * evenly. Node k of N holds the rows r with r mod N = k, whatever their table. Their keys have one
 * hash tag, so that one MGET may name all of them: a cluster refuses keys of several slots. A key
 * is the tag, a byte for the table, and the row's number in four bytes, little-endian.
 * Thread: one each. Memory: connections are on the heap. Errors are reported on stderr. */
#pragma once

#include "client/cli/workload.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redisContext;

#define EB_REDIS_NODES_MAX 16
#define EB_REDIS_KEY_BYTES 8
#define EB_REDIS_TABLES_MAX 256

/* Zeroes mean no connections. */
struct eb_redis_link {
    unsigned node_count;
    struct redisContext *nodes[EB_REDIS_NODES_MAX];
    char tags[EB_REDIS_NODES_MAX]; /* hash tag of each node's keys */
};

/* Writes the key of a row; `table` is below EB_REDIS_TABLES_MAX and `row` below 2^32. */
void eb_redis_link_write_key(
    const struct eb_redis_link *link, uint32_t table, uint64_t row, char out[EB_REDIS_KEY_BYTES]);

/* Connects to all servers of `addresses`, which are HOST:PORT or unix:PATH, separated by commas:
 * for blocking calls, or for others, in which case it may return before the connections are
 * established. Returns false if that fails; *out may be closed. */
bool eb_redis_link_open(struct eb_redis_link *out, const char *addresses, bool is_blocking);
/* Closes the connections. */
void eb_redis_link_close(struct eb_redis_link *link);

/* Empties the servers and fills them with the rows that the workload's tables have in version 1 of
 * a generated model. Needs blocking connections. Returns false if a command fails. */
bool eb_redis_link_fill(
    struct eb_redis_link *link, const struct eb_workload *workload, uint64_t scale);
/* Returns the number of rows in all servers, without those of servers that do not answer. */
uint64_t eb_redis_link_count(struct eb_redis_link *link);
/* Returns the CPU time that the servers have used, in microseconds; negative if one of them does
 * not answer. */
double eb_redis_link_cpu_us(struct eb_redis_link *link);
