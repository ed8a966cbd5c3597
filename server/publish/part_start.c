#include "server/publish/part_start.h"

#include "server/base/clock.h"
#include "server/publish/model_log.h"

void eb_part_start_begin(struct eb_part_start *start, uint64_t due_ms, uint64_t load_threads)
{
    start->is_active = true;
    start->begun_ns = eb_clock_steady_ns();
    start->registry->claims_due_ms = due_ms;
    eb_resident_keeper_hold(start->keeper, false);
    eb_loader_hurry(start->loader, load_threads);
}

uint64_t eb_part_start_ns(const struct eb_part_start *start)
{
    return start->begun_ns == 0 ? 0 : eb_clock_steady_ns() - start->begun_ns;
}

/* From now on versions load as in any other server. */
static void end_part_start(struct eb_part_start *start)
{
    start->is_active = false;
    eb_loader_give_way(start->loader);
    eb_resident_keeper_settle(start->keeper);
    eb_model_log_unserved(start->registry);
    eb_registry_readmit(start->registry);
}

bool eb_part_start_advance(
    struct eb_part_start *start, bool may_end, uint64_t now_ms, uint64_t *wake_ms)
{
    uint64_t due_ms = start->registry->claims_due_ms;
    if (!start->is_active) {
        return false;
    }
    if (now_ms < due_ms) {
        *wake_ms = due_ms < *wake_ms ? due_ms : *wake_ms;
        return false;
    }
    if (!may_end) {
        return false;
    }
    if (!eb_registry_readmit_unserved(start->registry)) {
        end_part_start(start);
    }
    return true;
}
