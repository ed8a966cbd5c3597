#include "server/resident_facts.h"

#include "server/base/machine.h"

#include <assert.h>

static_assert(
    EB_STATS_RESIDENT_OUTCOMES == EB_RESIDENT_OUTCOME_COUNT, "one count for each outcome");

void eb_resident_facts_take(
    struct eb_resident_dir *dir, bool is_complete, struct eb_resident_facts *facts)
{
    *facts = (struct eb_resident_facts){.is_used = dir->descriptor >= 0};
    if (!facts->is_used) {
        return;
    }
    facts->is_owner = atomic_load(&dir->is_owner);
    facts->is_complete = is_complete;
    facts->uncharged_bytes = eb_machine_uncharged_bytes();
    facts->free_bytes = eb_resident_dir_free_bytes(dir);
    eb_resident_dir_measure(dir, &facts->mapped_bytes, &facts->unused_bytes);
    for (size_t i = 0; i < EB_RESIDENT_OUTCOME_COUNT; i++) {
        facts->tables[i] = atomic_load(&dir->outcomes[i]);
    }
}
