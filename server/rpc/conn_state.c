#include "server/rpc/conn_state.h"

#include <assert.h>

static_assert((EB_RPC_BUCKETS & (EB_RPC_BUCKETS - 1)) == 0, "buckets are found by a mask");

const struct eb_limits *eb_rpc_conn_limits(const struct eb_rpc_conn *conn)
{
    return &conn->loop->lookups.limits;
}

static struct eb_rpc_load *find_load(struct eb_rpc_conn *conn, const struct eb_lookup *lookup)
{
    return lookup->is_batch ? &conn->batch : &conn->interactive;
}

static struct eb_lookup **find_lookup_bucket(const struct eb_rpc_call *call, uint64_t request_id)
{
    /* Multiplying by the golden ratio spreads consecutive ids, and addresses. */
    uint64_t key = (uint64_t)(uintptr_t)call + request_id;
    size_t index = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (EB_RPC_BUCKETS - 1);
    return &call->conn->loop->buckets[index];
}

static void add_to_bucket(struct eb_lookup *lookup, struct eb_rpc_call *call)
{
    struct eb_lookup **bucket = find_lookup_bucket(call, lookup->request_id);
    lookup->call = call;
    lookup->bucket_link = bucket;
    lookup->bucket_next = *bucket;
    if (*bucket) {
        (*bucket)->bucket_link = &lookup->bucket_next;
    }
    *bucket = lookup;
    call->in_flight++;
}

void eb_rpc_call_forget(struct eb_lookup *lookup)
{
    assert(lookup->call);
    lookup->call->in_flight--;
    lookup->call = NULL;
    *lookup->bucket_link = lookup->bucket_next;
    if (lookup->bucket_next) {
        lookup->bucket_next->bucket_link = lookup->bucket_link;
    }
}

struct eb_lookup *eb_rpc_call_find(const struct eb_rpc_call *call, uint64_t request_id)
{
    struct eb_lookup *lookup = *find_lookup_bucket(call, request_id);
    while (lookup && (lookup->call != call || lookup->request_id != request_id)) {
        lookup = lookup->bucket_next;
    }
    return lookup;
}

void eb_rpc_conn_link(struct eb_lookup *lookup, struct eb_rpc_call *call)
{
    struct eb_rpc_conn *conn = call->conn;
    lookup->conn = conn;
    add_to_bucket(lookup, call);
    eb_list_push(&conn->lookups, &lookup->link);
    find_load(conn, lookup)->count++;
}

void eb_rpc_conn_unlink(struct eb_lookup *lookup)
{
    struct eb_rpc_conn *conn = lookup->conn;
    if (!conn) {
        return;
    }
    if (lookup->call) {
        eb_rpc_call_forget(lookup);
    }
    find_load(conn, lookup)->count--;
    eb_rpc_conn_drop(lookup, lookup->held_bytes);
    eb_list_remove(&lookup->link);
    lookup->conn = NULL;
}

void eb_rpc_conn_hold(struct eb_lookup *lookup, uint64_t bytes)
{
    lookup->held_bytes = bytes;
    find_load(lookup->conn, lookup)->held_bytes += bytes;
}

void eb_rpc_conn_drop(struct eb_lookup *lookup, uint64_t bytes)
{
    if (lookup->conn) {
        assert(bytes <= lookup->held_bytes);
        find_load(lookup->conn, lookup)->held_bytes -= bytes;
        lookup->held_bytes -= bytes;
    }
}
