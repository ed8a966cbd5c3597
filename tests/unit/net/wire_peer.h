/* A client for tests of the server's sockets: plain sockets for what no honest client sends, and a
 * gRPC client whose bytes move only while the test lets them.
 * Thread: the test's. Memory: closed by wire_peer_close. A failing system call fails the test. */
#pragma once

#include "proto/grpc_client.h"
#include "proto/net/address.h"

/* The client's preface and an empty SETTINGS. */
#define WIRE_HELLO "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
#define WIRE_HELLO_BYTES (sizeof WIRE_HELLO - 1)

/* A connected, blocking socket; -1: refused. `receive_bytes` above 0 sets its receive buffer. */
int wire_connect(const struct eb_address *address, int receive_bytes);
void wire_send(int socket, const void *bytes, size_t count);
/* Reads until the other side closes, at most `timeout_ms`. true: it has. `out`, which may be NULL,
 * gets what came, NUL-terminated and cut. */
bool wire_read_to_end(int socket, int timeout_ms, char *out, size_t out_bytes);

struct wire_peer {
    int socket;
    struct eb_grpc_client *client;
    bool is_over; /* closed by the server, or the session gave up */
    bool is_abandoned;
};

/* One call and what came of it. */
struct wire_call {
    struct eb_grpc_client_call *call; /* NULL once finished */
    bool is_finished;
    bool has_message;
    struct eb_error error;
    unsigned message_count;
    size_t message_bytes;
    bool is_wrong; /* some byte of a message was not its position's */
    /* Is shown each message where it is not NULL; may not fail the test. */
    void (*on_message)(struct wire_call *call, const uint8_t *bytes, size_t size);
};

void wire_peer_open(struct wire_peer *peer, const struct eb_address *address);
/* Also ends what calls there are. */
void wire_peer_close(struct wire_peer *peer);
/* For teardowns: closes the peer unless that is done or it was never opened, and touches no call:
 * those may have lain on the stack of a test that failed. */
void wire_peer_abandon(struct wire_peer *peer);

void wire_peer_call(struct wire_peer *peer, struct wire_call *call, const char *path);
/* A message of `size` bytes, each its position's, of which the last `missing` are not sent. */
void wire_peer_write(struct wire_call *call, size_t size, size_t missing, bool last);
/* A message of these bytes. */
void wire_peer_write_bytes(struct wire_call *call, const void *bytes, size_t size, bool last);
/* The last message: one number of 32 bits. */
void wire_peer_write_number(struct wire_call *call, uint32_t number);
/* Moves bytes both ways until *until, the connection's end, or `timeout_ms`. Returns *until. */
bool wire_peer_run(struct wire_peer *peer, const bool *until, int timeout_ms);
/* Sends what waits and reads nothing. */
void wire_peer_send(struct wire_peer *peer);
/* A whole call: `size` bytes to /t/Echo and back. true: they came. */
bool wire_peer_echo(struct wire_peer *peer, size_t size);
