#include "tests/bench/redis_link.h"

#include "client/cli/workload.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIX_PREFIX "unix:"
#define HOST_BYTES 256
#define FILL_DEPTH 512 /* commands in flight */
#define FILL_PARTS 10  /* number of progress messages */

/* A table whose values follow from its name. */
struct rows {
    uint64_t seed;
    uint32_t dim;
};

void eb_redis_link_write_key(uint64_t row, char out[EB_REDIS_KEY_BYTES])
{
    for (unsigned i = 0; i < EB_REDIS_KEY_BYTES; i++) {
        out[i] = (char)(row >> (8 * i) & 255);
    }
}

static redisContext *check_opened(redisContext *link, const char *address)
{
    if (!link || link->err != 0) {
        fprintf(
            stderr, "embag-peer-redis: %s: %s\n", address, link ? link->errstr : "out of memory");
        eb_redis_link_close(link);
        return NULL;
    }
    return link;
}

static redisContext *open_tcp(const char *address, bool is_blocking)
{
    char host[HOST_BYTES];
    const char *colon = strrchr(address, ':');
    if (!colon || (size_t)(colon - address) >= sizeof host) {
        fprintf(stderr,
            "embag-peer-redis: invalid address \"%s\": expected HOST:PORT or unix:PATH\n", address);
        return NULL;
    }
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    int port = atoi(colon + 1);
    return check_opened(
        is_blocking ? redisConnect(host, port) : redisConnectNonBlock(host, port), address);
}

static redisContext *open_link(const char *address, bool is_blocking)
{
    if (strncmp(address, UNIX_PREFIX, strlen(UNIX_PREFIX)) != 0) {
        return open_tcp(address, is_blocking);
    }
    const char *path = address + strlen(UNIX_PREFIX);
    return check_opened(
        is_blocking ? redisConnectUnix(path) : redisConnectUnixNonBlock(path), address);
}

struct redisContext *eb_redis_link_open(const char *address)
{
    return open_link(address, true);
}

struct redisContext *eb_redis_link_open_nonblocking(const char *address)
{
    return open_link(address, false);
}

void eb_redis_link_close(struct redisContext *link)
{
    if (link) {
        redisFree(link);
    }
}

/* Takes the next reply. Returns false if the reply is an error. */
static bool take_reply(redisContext *link)
{
    redisReply *reply = NULL;
    if (redisGetReply(link, (void **)&reply) != REDIS_OK) {
        fprintf(stderr, "embag-peer-redis: %s\n", link->errstr);
        return false;
    }
    bool is_good = reply->type != REDIS_REPLY_ERROR;
    if (!is_good) {
        fprintf(stderr, "embag-peer-redis: error from the server: %s\n", reply->str);
    }
    freeReplyObject(reply);
    return is_good;
}

/* Sets rows `first` to `end` - 1. `row` has room for one row. */
static bool set_rows(
    redisContext *link, const struct rows *rows, float *row, uint64_t first, uint64_t end)
{
    char key[EB_REDIS_KEY_BYTES];
    const char *arguments[] = {"SET", key, (const char *)row};
    const size_t lengths[] = {3, sizeof key, rows->dim * sizeof *row};
    for (uint64_t i = first; i < end; i++) {
        eb_redis_link_write_key(i, key);
        eb_workload_fill_row(rows->seed, i, row, rows->dim);
        if (redisAppendCommandArgv(link, 3, arguments, lengths) != REDIS_OK) {
            fprintf(stderr, "embag-peer-redis: %s\n", link->errstr);
            return false;
        }
    }
    for (uint64_t i = first; i < end; i++) {
        if (!take_reply(link)) {
            return false;
        }
    }
    return true;
}

bool eb_redis_link_fill(
    struct redisContext *link, const char *name, uint64_t row_count, uint32_t dim)
{
    struct rows rows = {eb_workload_seed(name, 1), dim};
    uint64_t told_at = row_count / FILL_PARTS;
    float *row = calloc(dim, sizeof *row);
    bool is_good = row && redisAppendCommand(link, "FLUSHALL") == REDIS_OK;
    is_good = is_good && take_reply(link);
    for (uint64_t first = 0; is_good && first < row_count; first += FILL_DEPTH) {
        uint64_t end = row_count - first < FILL_DEPTH ? row_count : first + FILL_DEPTH;
        is_good = set_rows(link, &rows, row, first, end);
        if (end >= told_at) {
            fprintf(stderr, "embag-peer-redis: %.0f %% of %llu rows\n",
                100 * (double)end / (double)row_count, (unsigned long long)row_count);
            told_at += row_count / FILL_PARTS + 1;
        }
    }
    free(row);
    return is_good;
}

uint64_t eb_redis_link_count(struct redisContext *link)
{
    redisReply *reply = redisCommand(link, "DBSIZE");
    uint64_t count = reply && reply->type == REDIS_REPLY_INTEGER ? (uint64_t)reply->integer : 0;
    if (reply) {
        freeReplyObject(reply);
    }
    return count;
}

/* Returns the seconds after a key in the text of INFO; negative if the key is missing. */
static double find_seconds(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? strtod(at + strlen(key), NULL) : -1;
}

double eb_redis_link_cpu_us(struct redisContext *link)
{
    double cpu_us = -1;
    redisReply *reply = redisCommand(link, "INFO cpu");
    if (reply && reply->type == REDIS_REPLY_STRING) {
        double system_s = find_seconds(reply->str, "used_cpu_sys:");
        double user_s = find_seconds(reply->str, "used_cpu_user:");
        cpu_us = system_s >= 0 && user_s >= 0 ? (system_s + user_s) * 1e6 : -1;
    }
    if (reply) {
        freeReplyObject(reply);
    }
    return cpu_us;
}
