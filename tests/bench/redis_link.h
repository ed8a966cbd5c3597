/* A Redis server that holds the rows of one table: each value a row of f32, each key its number in
 * eight bytes, little-endian.
 * Thread: one each. Memory: connections are on the heap. What goes wrong is said on stderr. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redisContext;

#define EB_REDIS_KEY_BYTES 8

/* The key of a row. */
void eb_redis_link_write_key(uint64_t row, char out[EB_REDIS_KEY_BYTES]);

/* Connects to HOST:PORT or unix:PATH, blocking. NULL: failed. */
struct redisContext *eb_redis_link_open(const char *address);
/* The same, not blocking: connecting may still be under way. */
struct redisContext *eb_redis_link_open_nonblocking(const char *address);
/* NULL is fine. */
void eb_redis_link_close(struct redisContext *link);

/* On a blocking connection: empties the store and fills it with rows of the published values of
 * table `name`, version 1. */
bool eb_redis_link_fill(
    struct redisContext *link, const char *name, uint64_t row_count, uint32_t dim);
/* How many rows it holds; 0 where it cannot be asked. */
uint64_t eb_redis_link_count(struct redisContext *link);
/* CPU time that the server has used, in microseconds; negative where it cannot be asked. */
double eb_redis_link_cpu_us(struct redisContext *link);
