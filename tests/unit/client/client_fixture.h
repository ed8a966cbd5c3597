/* A client beside a fake server, and what tests of lookups that do not block do again and again.
 * What is not as it must be fails the test.
 * Thread: the test's. Memory: freed by close. */
#pragma once

#include "client/embag_async.h"

#include "tests/unit/client/fake_server.h"

#define CLIENT_FIXTURE_PATIENCE_US 10000000
#define CLIENT_FIXTURE_LONG_US 20000000 /* longer than any test may take */

/* Of the clients that are opened: both are tried. */
extern enum embag_mode client_mode;

struct client_fixture {
    struct fake_server server;
    struct embag_client *client;
    struct embag_error error;
};

struct client_fixture *client_fixture_open_of(
    enum fake_server_mode server_mode, struct embag_options options);
/* Beside a server that speaks gRPC. */
struct client_fixture *client_fixture_open(struct embag_options options);
void client_fixture_close(struct client_fixture *fixture);

/* Begins a lookup of one index, which "echo" sends back. */
enum embag_status client_fixture_submit(struct client_fixture *fixture, const char *model,
    int64_t index, const struct embag_call *how, uint64_t *id);
bool client_fixture_is_echo(const struct embag_completion *completion, int64_t index);
/* Submits one lookup and takes its completion, whose answer is freed. */
struct embag_completion client_fixture_run(struct client_fixture *fixture, const char *model);
/* Until the counter is at least so high. */
void client_fixture_await(atomic_uint *counter, unsigned value);
