#include "tests/unit/grpc/peer_trial.h"

#include <stdlib.h>

int peer_trial_set_up(void **state)
{
    struct peer_trial *trial = calloc(1, sizeof(*trial));
    if (!trial) {
        return -1;
    }
    host_init(&trial->host, 0);
    *state = trial;
    return host_start(&trial->host) ? 0 : -1;
}

int peer_trial_tear_down(void **state)
{
    struct peer_trial *trial = *state;
    frames_deinit(&trial->in);
    host_deinit(&trial->host);
    bool clean = trial->host.lender.lent_count == 0 && host_outgoing_live() == 0 &&
                 trial->host.call_count == trial->host.close_count;
    free(trial);
    return clean ? 0 : -1;
}

void peer_trial_deliver(struct peer_trial *trial)
{
    host_receive(&trial->host, trial->in.bytes, trial->in.size);
    trial->in.size = 0;
}
