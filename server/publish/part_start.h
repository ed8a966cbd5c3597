/* Starts a part server. Its ports are already open, so that routers can send claims. The start
 * waits for claims, so that the versions that routers serve are loaded first, and ends when nothing
 * is left to load. Until then, loads may use all CPUs. Versions that killed the process are loaded
 * if a model has no other version, as at other starts. Thread: the manager's. Memory: none; the
 * members must outlive the start. */
#pragma once

#include "server/models/registry.h"
#include "server/publish/loader.h"
#include "server/publish/resident_keeper.h"

struct eb_part_start {
    struct eb_registry *registry;
    struct eb_loader *loader;
    struct eb_resident_keeper *keeper;
    /* Private. */
    uint64_t begun_ns; /* 0: it has not begun */
    bool is_active;
};

/* Begins to wait for claims until due_ms. Loads then have `load_threads` as in
 * eb_loader_choose_threads. */
void eb_part_start_begin(struct eb_part_start *start, uint64_t due_ms, uint64_t load_threads);
/* Returns the time since the beginning; 0 if there was none. */
uint64_t eb_part_start_ns(const struct eb_part_start *start);
/* Takes the next step. `may_end` says that no load is under way or waits for memory, and that what
 * is loaded has been published, so that it is recorded when the start ends. Returns whether more
 * versions may be loaded now: the manager then begins their loads, and calls again. Lowers *wake_ms
 * to the end of the wait. Does nothing if the start has not begun or has ended. */
bool eb_part_start_advance(
    struct eb_part_start *start, bool may_end, uint64_t now_ms, uint64_t *wake_ms);
