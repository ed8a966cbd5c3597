/* A connection to a Redis server with the rows of one table: each value is a row of f32, and each
 * key is the row's number in eight bytes, little-endian.
 * Thread: one each. Memory: connections are on the heap. Errors are reported on stderr. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redisContext;

#define EB_REDIS_KEY_BYTES 8

/* Writes the key of a row. */
void eb_redis_link_write_key(uint64_t row, char out[EB_REDIS_KEY_BYTES]);

/* Connects to HOST:PORT or unix:PATH, for blocking calls. Returns NULL if that fails. */
struct redisContext *eb_redis_link_open(const char *address);
/* Connects for non-blocking calls, and may return before the connection is established. */
struct redisContext *eb_redis_link_open_nonblocking(const char *address);
/* Closes the connection. NULL is allowed. */
void eb_redis_link_close(struct redisContext *link);

/* Empties the store and fills it with the rows that table `name` has in version 1 of a generated
 * model. Needs a blocking connection. Returns false if a command fails. */
bool eb_redis_link_fill(
    struct redisContext *link, const char *name, uint64_t row_count, uint32_t dim);
/* Returns the number of rows in the store, or 0 if the server does not answer. */
uint64_t eb_redis_link_count(struct redisContext *link);
/* Returns the CPU time that the server has used, in microseconds; negative if it does not
 * answer. */
double eb_redis_link_cpu_us(struct redisContext *link);
