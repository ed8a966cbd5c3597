/* One accepted connection: a libuv stream that feeds a gRPC session, through TLS if its loop uses
 * TLS. The connection writes what the session sends, at most once in a cycle of the loop.
 * Thread: its loop's. Memory: on the heap from open until its last callback, on_close. Messages are
 * taken from its quota of the loop's receive memory, output directly from the receive memory. */
#pragma once

#include "proto/net/address.h"
#include "server/net/loop_options.h"

/* Closes the connection at once. Calls end with on_close before the memory is freed. May be called
 * twice. */
void eb_conn_close(struct eb_conn *conn, const char *reason);
/* Lets the open calls end, then closes the connection. May be called twice. */
void eb_conn_drain(struct eb_conn *conn);
/* Notes that a known principal has made a call on the connection, so that auth_timeout_ms no longer
 * ends it. */
void eb_conn_set_known(struct eb_conn *conn);
/* Makes the loop write what the session was given to send, before the loop sleeps. */
void eb_conn_mark(struct eb_conn *conn);
/* Notes that one more message was processed at `now_ns` (uv_hrtime). Returns whether the
 * connection's time slice is over; if so, the caller postpones work until on_written if it can. */
bool eb_conn_end_message(struct eb_conn *conn, uint64_t now_ns);
/* Returns the time (uv_hrtime) at which this slice last read the clock; reads it now if the slice
 * has not. The time may be as old as the processing of one message takes. Reading the clock each
 * time would cost as much as reading a small message. */
uint64_t eb_conn_looked_ns(const struct eb_conn *conn);
/* Returns what the last eb_conn_end_message of this slice returned. */
bool eb_conn_is_slice_over(const struct eb_conn *conn);

/* Returns whether it is too late to answer a request that begins now. */
bool eb_conn_is_ending(const struct eb_conn *conn);
/* Returns the number of bytes that the session was given to send and the peer has not taken yet. */
size_t eb_conn_waiting_bytes(const struct eb_conn *conn);

/* Returns the peer's address. */
const struct eb_address *eb_conn_peer(const struct eb_conn *conn);
struct eb_loop *eb_conn_loop(const struct eb_conn *conn);
/* Returns the memory that the connection's messages are taken from and given back to. It stays
 * after the connection until the last message has been given back. */
const struct eb_memory *eb_conn_receive_memory(const struct eb_conn *conn);
bool eb_conn_is_admin(const struct eb_conn *conn);
/* Returns whether the connection came over a unix socket. The permissions of the socket's file
 * determine who may connect. */
bool eb_conn_is_local(const struct eb_conn *conn);
/* Returns what eb_tls_stream_has_name returns; false without TLS. */
bool eb_conn_has_client_name(const struct eb_conn *conn, const char *name);
/* Returns the service's own state of this connection. */
void *eb_conn_user(const struct eb_conn *conn);
void eb_conn_set_user(struct eb_conn *conn, void *user);
