/* Hands snapshots to those that read them, each on its own thread, and gets the former ones back:
 * what nobody reads any longer is freed.
 * Thread: its owner's loop; a reader's swap on the reader's. Memory: owns the snapshots that were
 * published, until all readers have returned them. */
#pragma once

#include "proto/net/mailbox.h"
#include "server/models/snapshot.h"

/* Somebody who reads snapshots on a loop of his own. */
struct eb_publisher_reader {
    struct eb_mailbox *mailbox; /* of that loop */
    /* Takes the snapshot and returns the one it had. */
    struct eb_snapshot *(*swap)(void *context, struct eb_snapshot *snapshot);
    void *context;
};

struct eb_publisher {
    struct eb_mailbox *mailbox; /* the owner's */
    size_t reader_count;
    const struct eb_publisher_reader *readers;
    struct eb_snapshot *current;
    size_t delivery_count; /* on their way to a reader or back */
    /* All that was published has been taken by every reader. */
    void (*on_settled)(void *context);
    void *context;
};

/* All members are set but `current`, which is the snapshot that all readers have already. */
void eb_publisher_start(struct eb_publisher *publisher, struct eb_snapshot *first);
/* Takes the snapshot. false: out of memory. */
bool eb_publisher_publish(struct eb_publisher *publisher, struct eb_snapshot *snapshot);
/* Frees the last snapshot: no reader reads any longer, and nothing is on its way. */
void eb_publisher_deinit(struct eb_publisher *publisher);
