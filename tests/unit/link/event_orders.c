#include "tests/unit/link/event_orders.h"

#include "proto/splitmix64.h"

void eb_run_every_order(const struct eb_event_machine *machine, void *state)
{
    uint64_t orders = 1;
    for (unsigned i = 0; i < EB_ORDER_LENGTH; i++) {
        orders *= machine->kinds;
    }
    for (uint64_t order = 0; order < orders; order++) {
        machine->reset(state);
        uint64_t left = order;
        for (unsigned i = 0; i < EB_ORDER_LENGTH; i++) {
            machine->step(state, (unsigned)(left % machine->kinds), eb_splitmix64_mix(left + i));
            left /= machine->kinds;
        }
    }
}

void eb_run_walk(const struct eb_event_machine *machine, void *state, uint64_t seed)
{
    machine->reset(state);
    for (uint64_t i = 0; i < EB_WALK_STEPS; i++) {
        uint64_t kind = eb_splitmix64_next(&seed) % machine->kinds;
        machine->step(state, (unsigned)kind, eb_splitmix64_next(&seed));
    }
}
