/* A server, and the bytes that a test writes by hand as its peer.
 * Thread: one at a time. Memory: on the heap from set-up to tear-down. */
#pragma once

#include "tests/unit/grpc/host.h"

struct peer_fixture {
    struct host host;
    struct frames in; /* what the peer sends next */
};

/* For cmocka: *state is the fixture. Tear-down fails if memory was not given back or calls were not
 * closed. */
int peer_fixture_set_up(void **state);
int peer_fixture_tear_down(void **state);
/* Hands the prepared bytes to the server and empties `in`. */
void peer_fixture_deliver(struct peer_fixture *fixture);
