#include "tests/unit/grpc/peer_fixture.h"

#include <stdlib.h>

int peer_fixture_set_up(void **state)
{
    struct peer_fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    host_init(&fixture->host, 0);
    *state = fixture;
    return host_start(&fixture->host) ? 0 : -1;
}

int peer_fixture_tear_down(void **state)
{
    struct peer_fixture *fixture = *state;
    frames_deinit(&fixture->in);
    host_deinit(&fixture->host);
    bool clean = fixture->host.lender.lent_count == 0 && host_outgoing_live() == 0 &&
                 fixture->host.call_count == fixture->host.close_count;
    free(fixture);
    return clean ? 0 : -1;
}

void peer_fixture_deliver(struct peer_fixture *fixture)
{
    host_receive(&fixture->host, fixture->in.bytes, fixture->in.size);
    fixture->in.size = 0;
}
