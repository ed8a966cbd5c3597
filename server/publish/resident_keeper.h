/* Keeps a directory of resident files (tables/resident_dir.h) in step with what is served: takes
 * over the directory when its owner has gone, sets heartbeats, writes the record of what is served,
 * and deletes files that no version needs. Part servers and routers learn from their peers which
 * versions to load, so at their start the record and the files that it names are held: they stay as
 * they are until the versions are in memory again.
 * Thread: the owner's loop. Memory: none besides the handle; the record is on the heap while it is
 * written. */
#pragma once

#include "server/publish/publisher.h"
#include "server/tables/resident_dir.h"

#include <uv.h>

/* Time that a server must serve before its start counts as good. */
#define EB_RESIDENT_KEEPER_GOOD_START_MS 60000
/* Time between two attempts of a guest to become the owner, besides those at scans. */
#define EB_RESIDENT_KEEPER_GUEST_MS 2000

struct eb_resident_keeper {
    /* Called when the server has become the owner, except by eb_resident_keeper_own. */
    void (*on_owned)(void *context);
    void *context;
    const struct eb_publisher *publisher; /* of the snapshots that are recorded */
    struct eb_resident_dir *dir; /* NULL: tables are not resident, and all functions do nothing */
    bool is_recorded_complete;   /* all that is served is in the record, with all tables */
    /* Private. */
    bool is_sweep_due; /* at the end of good_start, because loads until then may need old files */
    bool is_held;      /* the record and the files of the last process stay as they are */
    bool is_settling;  /* as in eb_resident_keeper_hold */
    uv_timer_t beat;   /* of the owner's heartbeats, or of a guest's attempts */
    uv_timer_t good_start;
    bool is_stall_logged; /* the log has a warning that the owner is stalled */
    bool has_handles;
};

/* Starts the heartbeats, or the attempts of a guest to become the owner. The owner has set
 * on_owned, context and publisher, and has zeroed the other members. `dir` may be NULL. */
void eb_resident_keeper_start(
    struct eb_resident_keeper *keeper, struct eb_resident_dir *dir, uv_loop_t *loop);
/* Ends heartbeats and attempts. The files stay, and another server may own the directory from now
 * on. May be called twice, or without start. */
void eb_resident_keeper_stop(struct eb_resident_keeper *keeper);

/* Tries to become the owner if the server is a guest. Returns whether it has just become the owner.
 * Called at each scan, so that a guest need not wait for its timer. */
bool eb_resident_keeper_own(struct eb_resident_keeper *keeper);
/* Holds the record and the files of the last process until eb_resident_keeper_settle. If
 * `is_settling`, the record is held only until each model has a served version, and both at most
 * EB_RESIDENT_KEEPER_GOOD_START_MS. Called right after the start. */
void eb_resident_keeper_hold(struct eb_resident_keeper *keeper, bool is_settling);
/* Ends that, when the publisher has begun: records the current snapshot, and deletes the files that
 * this process does not use. */
void eb_resident_keeper_settle(struct eb_resident_keeper *keeper);
/* Records what the snapshot serves, unless the files of the former record must be kept, or it is
 * held. Called after each publish. */
void eb_resident_keeper_record(
    struct eb_resident_keeper *keeper, const struct eb_snapshot *snapshot);
/* Must be called when files need no longer be kept. Records what the snapshot serves. Deletes the
 * files that this process does not use, but only EB_RESIDENT_KEEPER_GOOD_START_MS later, because
 * the next loads may need them. */
void eb_resident_keeper_release(
    struct eb_resident_keeper *keeper, const struct eb_snapshot *snapshot);
/* Deletes the files that this process does not use, unless they must be kept or are held. The files
 * of a version that is being loaded may be deleted; it is then loaded again at the next start. */
void eb_resident_keeper_sweep(struct eb_resident_keeper *keeper);
