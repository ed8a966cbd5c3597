/* Clients for tests of the server's sockets: plain sockets that send what no honest client would,
 * and a gRPC client whose bytes move only when the test lets them.
 * Thread: the test's. Memory: released by wire_peer_close. A failing system call fails the test. */
#pragma once

#include "proto/grpc_client.h"
#include "proto/net/address.h"

/* The client's preface and an empty SETTINGS. */
#define WIRE_HELLO "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
#define WIRE_HELLO_BYTES (sizeof WIRE_HELLO - 1)

/* Returns a connected, blocking socket, or -1 if the connection is refused. `receive_bytes` sets
 * its receive buffer if it is above 0. */
int wire_connect(const struct eb_address *address, int receive_bytes);
void wire_send(int socket, const void *bytes, size_t count);
/* Reads until the other side closes, at most for `timeout_ms`. Returns whether it has closed.
 * `out`, which may be NULL, gets the bytes read, cut off to fit and NUL-terminated. */
bool wire_read_to_end(int socket, int timeout_ms, char *out, size_t out_bytes);

struct wire_peer {
    int socket;
    struct eb_grpc_client *client;
    bool is_over; /* closed by the server, or given up by the session */
    bool is_abandoned;
};

/* One call and its outcome. */
struct wire_call {
    struct eb_grpc_client_call *call; /* NULL once finished */
    bool is_finished;
    bool has_message;
    struct eb_error error;
    unsigned message_count;
    size_t message_bytes;
    bool is_wrong; /* some byte i of a message was not (uint8_t)i */
    /* Called for each message unless NULL. Must not fail the test. */
    void (*on_message)(struct wire_call *call, const uint8_t *bytes, size_t size);
};

void wire_peer_open(struct wire_peer *peer, const struct eb_address *address);
/* Closes the connection, which also ends its calls. */
void wire_peer_close(struct wire_peer *peer);
/* For teardowns: closes the peer if it is open, but touches none of its calls. They may have been
 * on the stack of a failed test. */
void wire_peer_abandon(struct wire_peer *peer);

void wire_peer_call(struct wire_peer *peer, struct wire_call *call, const char *path);
/* Sends a message of `size` bytes whose byte i is (uint8_t)i, but omits the last `missing`
 * bytes. */
void wire_peer_write(struct wire_call *call, size_t size, size_t missing, bool last);
/* Sends a message with these bytes. */
void wire_peer_write_bytes(struct wire_call *call, const void *bytes, size_t size, bool last);
/* Sends the last message: one 32-bit number. */
void wire_peer_write_number(struct wire_call *call, uint32_t number);
/* Moves bytes both ways until *until is true, the connection ends or `timeout_ms` has passed.
 * Returns *until. */
bool wire_peer_run(struct wire_peer *peer, const bool *until, int timeout_ms);
/* Sends the waiting bytes and reads nothing. */
void wire_peer_send(struct wire_peer *peer);
/* Makes a whole call: sends `size` bytes to /t/Echo. Returns whether they came back. */
bool wire_peer_echo(struct wire_peer *peer, size_t size);
