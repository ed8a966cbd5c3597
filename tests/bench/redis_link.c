#include "tests/bench/redis_link.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIX_PREFIX "unix:"
#define ADDRESS_BYTES 256
#define FILL_DEPTH 512 /* commands in flight */
#define SLOT_COUNT 16384
#define CRC16_POLYNOMIAL 0x1021

/* Returns the slot of keys with a hash tag, as every Redis Cluster computes it: CRC-16/XMODEM. */
static unsigned find_slot(char tag)
{
    unsigned crc = (unsigned)(uint8_t)tag << 8;
    for (int bit = 0; bit < 8; bit++) {
        crc = crc << 1 ^ ((crc & 0x8000) != 0 ? CRC16_POLYNOMIAL : 0);
    }
    return crc % SLOT_COUNT;
}

/* Returns a hash tag whose slot a node has; 0 if there is none. */
static char find_tag(unsigned node, unsigned node_count)
{
    for (char tag = '0'; tag <= 'z'; tag++) {
        if (find_slot(tag) * node_count / SLOT_COUNT == node) {
            return tag;
        }
    }
    return 0;
}

void eb_redis_link_write_key(
    const struct eb_redis_link *link, uint32_t table, uint64_t row, char out[EB_REDIS_KEY_BYTES])
{
    out[0] = '{';
    out[1] = link->tags[row % link->node_count];
    out[2] = '}';
    out[3] = (char)table;
    for (unsigned i = 0; i < sizeof(uint32_t); i++) {
        out[4 + i] = (char)(row >> (8 * i) & 255);
    }
}

static redisContext *check_opened(redisContext *link, const char *address)
{
    if (!link || link->err != 0) {
        fprintf(
            stderr, "embag-peer-redis: %s: %s\n", address, link ? link->errstr : "out of memory");
        if (link) {
            redisFree(link);
        }
        return NULL;
    }
    return link;
}

static redisContext *open_tcp(const char *address, bool is_blocking)
{
    char host[ADDRESS_BYTES];
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

static redisContext *open_node(const char *address, bool is_blocking)
{
    if (strncmp(address, UNIX_PREFIX, strlen(UNIX_PREFIX)) != 0) {
        return open_tcp(address, is_blocking);
    }
    const char *path = address + strlen(UNIX_PREFIX);
    return check_opened(
        is_blocking ? redisConnectUnix(path) : redisConnectUnixNonBlock(path), address);
}

/* Returns the number of addresses, or 0 if there are too many or one is too long. */
static unsigned count_addresses(const char *addresses)
{
    unsigned count = 0;
    for (const char *at = addresses; at; at = strchr(at, ',')) {
        at += count > 0;
        if (++count > EB_REDIS_NODES_MAX || strcspn(at, ",") >= ADDRESS_BYTES) {
            return 0;
        }
    }
    return count;
}

bool eb_redis_link_open(struct eb_redis_link *out, const char *addresses, bool is_blocking)
{
    *out = (struct eb_redis_link){.node_count = count_addresses(addresses)};
    const char *at = addresses;
    if (out->node_count == 0) {
        fprintf(stderr,
            "embag-peer-redis: invalid addresses \"%s\": expected at most %d, each of fewer than "
            "%d bytes\n",
            addresses, EB_REDIS_NODES_MAX, ADDRESS_BYTES);
        return false;
    }
    for (unsigned i = 0; i < out->node_count; i++) {
        char address[ADDRESS_BYTES];
        size_t length = strcspn(at, ",");
        memcpy(address, at, length);
        address[length] = '\0';
        at += length + 1;
        out->tags[i] = find_tag(i, out->node_count);
        out->nodes[i] = open_node(address, is_blocking);
        if (!out->nodes[i] || out->tags[i] == 0) {
            return false;
        }
    }
    return true;
}

void eb_redis_link_close(struct eb_redis_link *link)
{
    for (unsigned i = 0; i < link->node_count; i++) {
        if (link->nodes[i]) {
            redisFree(link->nodes[i]);
        }
    }
    *link = (struct eb_redis_link){0};
}

/* Takes the next reply. Returns false if the reply is an error. */
static bool take_reply(redisContext *node)
{
    redisReply *reply = NULL;
    if (redisGetReply(node, (void **)&reply) != REDIS_OK) {
        fprintf(stderr, "embag-peer-redis: %s\n", node->errstr);
        return false;
    }
    bool is_good = reply->type != REDIS_REPLY_ERROR;
    if (!is_good) {
        fprintf(stderr, "embag-peer-redis: error from the server: %s\n", reply->str);
    }
    freeReplyObject(reply);
    return is_good;
}

/* Takes `count` replies. Returns false if one of them is an error. */
static bool take_replies(redisContext *node, unsigned count)
{
    bool is_good = true;
    for (unsigned i = 0; is_good && i < count; i++) {
        is_good = take_reply(node);
    }
    return is_good;
}

/* A table while its rows are stored. */
struct filled {
    uint32_t number;
    uint64_t row_count;
    uint64_t seed;
    uint32_t dim;
    float *row; /* [dim] */
};

/* Stores those rows of a table that a node holds. */
static bool fill_node(struct eb_redis_link *link, unsigned number, const struct filled *table)
{
    redisContext *node = link->nodes[number];
    char key[EB_REDIS_KEY_BYTES];
    const char *arguments[] = {"SET", key, (const char *)table->row};
    const size_t lengths[] = {strlen("SET"), sizeof key, table->dim * sizeof *table->row};
    unsigned pending = 0;
    for (uint64_t row = number; row < table->row_count; row += link->node_count) {
        eb_redis_link_write_key(link, table->number, row, key);
        eb_workload_fill_row(table->seed, row, table->row, table->dim);
        if (redisAppendCommandArgv(node, 3, arguments, lengths) != REDIS_OK) {
            fprintf(stderr, "embag-peer-redis: %s\n", node->errstr);
            return false;
        }
        if (++pending == FILL_DEPTH) {
            if (!take_replies(node, pending)) {
                return false;
            }
            pending = 0;
        }
    }
    return take_replies(node, pending);
}

static bool empty_nodes(struct eb_redis_link *link)
{
    bool is_good = true;
    for (unsigned i = 0; is_good && i < link->node_count; i++) {
        is_good = redisAppendCommand(link->nodes[i], "FLUSHALL") == REDIS_OK &&
                  take_reply(link->nodes[i]);
    }
    return is_good;
}

bool eb_redis_link_fill(
    struct eb_redis_link *link, const struct eb_workload *workload, uint64_t scale)
{
    struct filled table = {.dim = workload->dim, .row = calloc(workload->dim, sizeof *table.row)};
    bool is_good = table.row && empty_nodes(link);
    for (uint32_t i = 0; is_good && i < workload->table_count; i++) {
        char name[EB_WORKLOAD_TABLE_NAME_BYTES];
        eb_workload_table_name(i, name);
        table.number = i;
        table.row_count = eb_workload_rows(workload, i, scale);
        table.seed = eb_workload_seed(name, 1);
        for (unsigned node = 0; is_good && node < link->node_count; node++) {
            is_good = fill_node(link, node, &table);
        }
        fprintf(stderr, "embag-peer-redis: table %s, %llu rows\n", name,
            (unsigned long long)table.row_count);
    }
    free(table.row);
    return is_good;
}

uint64_t eb_redis_link_count(struct eb_redis_link *link)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < link->node_count; i++) {
        redisReply *reply = redisCommand(link->nodes[i], "DBSIZE");
        count += reply && reply->type == REDIS_REPLY_INTEGER ? (uint64_t)reply->integer : 0;
        if (reply) {
            freeReplyObject(reply);
        }
    }
    return count;
}

/* Returns the seconds after a key in the text of INFO; negative if the key is missing. */
static double find_seconds(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? strtod(at + strlen(key), NULL) : -1;
}

static double read_cpu_us(redisContext *node)
{
    double cpu_us = -1;
    redisReply *reply = redisCommand(node, "INFO cpu");
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

double eb_redis_link_cpu_us(struct eb_redis_link *link)
{
    double total_us = 0;
    for (unsigned i = 0; total_us >= 0 && i < link->node_count; i++) {
        double cpu_us = read_cpu_us(link->nodes[i]);
        total_us = cpu_us >= 0 ? total_us + cpu_us : -1;
    }
    return total_us;
}
