/* A server and the bytes of a peer that tests write by hand.
 * Thread: one at a time. Memory: on the heap from set-up to tear-down. */
#pragma once

#include "tests/unit/grpc/host.h"

struct peer_fixture {
    struct host host;
    struct frames in; /* what the peer sends next */
};

/* For cmocka: *state is the trial. Tear-down fails where memory was not given back, or calls were
 * not closed. */
int peer_fixture_set_up(void **state);
int peer_fixture_tear_down(void **state);
/* Hands the prepared bytes over and forgets them. */
void peer_fixture_deliver(struct peer_fixture *fixture);
