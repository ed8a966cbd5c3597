/* Hands each snapshot to its readers, on their threads, and takes back the previous one. Frees a
 * snapshot that has no readers left.
 * Thread: the owner's loop; swap on the reader's. Memory: owns published snapshots until all
 * readers have returned them. */
#pragma once

#include "proto/net/mailbox.h"
#include "server/models/snapshot.h"

/* A reader of snapshots, which runs on a loop of its own. */
struct eb_publisher_reader {
    struct eb_mailbox *mailbox; /* mailbox of that loop */
    /* Takes the snapshot and returns the previous one. */
    struct eb_snapshot *(*swap)(void *context, struct eb_snapshot *snapshot);
    void *context;
};

struct eb_publisher {
    struct eb_mailbox *mailbox; /* the owner's */
    size_t reader_count;
    const struct eb_publisher_reader *readers;
    struct eb_snapshot *current;
    size_t delivery_count; /* snapshots on their way to a reader or back */
    /* Called when every reader has the current snapshot. */
    void (*on_settled)(void *context);
    void *context;
};

/* Begins with `first`, the snapshot that all readers already have. The owner has set all members
 * except `current`. */
void eb_publisher_start(struct eb_publisher *publisher, struct eb_snapshot *first);
/* Takes the snapshot. Returns false if out of memory; the snapshot is then still the caller's. */
bool eb_publisher_publish(struct eb_publisher *publisher, struct eb_snapshot *snapshot);
/* Frees the last snapshot. No reader may use it any longer, and no delivery may be on its way. */
void eb_publisher_deinit(struct eb_publisher *publisher);
