/* Loads versions and frees them, on the background thread: loads at a pace that leaves the
 * bandwidth of disk and memory to lookups, and frees a version that has lost its last reader.
 * Thread: the owner's loop; a version may lose its last reference on any.
 * Memory: a load is on the heap from its start until its version has been freed. */
#pragma once

#include "server/models/model_version.h"
#include "server/publish/worker.h"

struct eb_load;

struct eb_loader {
    struct eb_worker *worker;
    struct eb_mailbox *mailbox; /* the owner's */
    const struct eb_table_options *tables;
    uint64_t bytes_per_s; /* most bytes read per second; 0 means no limit. This and on_progress are
                             changed only while no load is under way */
    /* Reports the progress of a load, which is reading the file at `path`. May be NULL. */
    void (*on_progress)(
        struct eb_loader *loader, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    /* Called when a load is over. The struct of a failed load is freed after this call. */
    void (*on_loaded)(struct eb_loader *loader, struct eb_load *load);
    /* Called when the memory of a loaded version has been freed. */
    void (*on_freed)(struct eb_loader *loader, const char *model, uint64_t version);
};

enum eb_load_outcome {
    EB_LOAD_DONE,
    EB_LOAD_FAILED, /* failed for the reason in `failure` */
    EB_LOAD_SHORT   /* too little memory; missing_bytes more are needed */
};

struct eb_load {
    struct eb_job job;
    struct eb_mail unused;
    struct eb_loader *loader;
    char *model;
    uint64_t number;
    char *path;
    struct eb_model_settings *settings;
    size_t resident_count;
    struct eb_model_version **residents; /* versions that it may share tables with; it holds a
                                            reference to each while it loads */
    uint64_t start_ns;
    uint64_t due_ns; /* time when the pace allows the next read */
    atomic_bool is_cancelled;
    atomic_uint_fast64_t done_bytes;
    atomic_uint_fast64_t total_bytes;
    enum eb_load_outcome outcome;
    uint64_t files;         /* result of eb_repository_stamp_files when the load began */
    uint64_t missing_bytes; /* bytes of memory that are missing, if SHORT */
    struct eb_model_version *version;
    struct eb_failure failure;
};

/* Starts a load, with references to the residents; on_loaded follows. Returns NULL if out of
 * memory. */
struct eb_load *eb_loader_start(struct eb_loader *loader, const struct eb_version_source *source);
/* Lets the version be freed as soon as its last reference is given back, on the thread that gives
 * it back. on_freed does not follow. */
void eb_loader_abandon(struct eb_model_version *version);
/* Ends the load as soon as possible; on_loaded still follows. */
void eb_loader_cancel(struct eb_load *load);
