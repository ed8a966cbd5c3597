/* A client beside a fake server, and the steps that tests of non-blocking lookups share. Anything
 * unexpected fails the test.
 * Thread: the test's. Memory: freed by close. */
#pragma once

#include "client/embag_async.h"

#include "tests/unit/client/fake_server.h"

#define CLIENT_FIXTURE_PATIENCE_US 10000000
#define CLIENT_FIXTURE_LONG_US 20000000 /* longer than any test may take */

/* Mode of the clients that are opened. The tests run in both modes. */
extern enum embag_mode client_mode;

struct client_fixture {
    struct fake_server server;
    struct embag_client *client;
    struct embag_error error;
};

struct client_fixture *client_fixture_open_of(
    enum fake_server_mode server_mode, struct embag_options options);
/* Opens a client beside a server that speaks gRPC. */
struct client_fixture *client_fixture_open(struct embag_options options);
void client_fixture_close(struct client_fixture *fixture);

/* Begins a lookup of one index. The model "echo" sends the index back. */
enum embag_status client_fixture_submit(struct client_fixture *fixture, const char *model,
    int64_t index, const struct embag_call *how, uint64_t *id);
bool client_fixture_is_echo(const struct embag_completion *completion, int64_t index);
/* Submits one lookup, takes its completion, and frees the answer. */
struct embag_completion client_fixture_run(struct client_fixture *fixture, const char *model);
/* Waits until the counter is at least `value`. */
void client_fixture_await(atomic_uint *counter, unsigned value);
