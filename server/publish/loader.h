/* Versions on their way into memory and out of it, on the background thread: loads at a pace that
 * leaves the machine's memory to those who serve, and frees what has lost its last reader.
 * Thread: its owner's loop, but versions may lose their last reference on any.
 * Memory: a load is on the heap from its start until its version has been freed. */
#pragma once

#include "server/models/model_version.h"
#include "server/publish/worker.h"

struct eb_load;

struct eb_loader {
    struct eb_worker *worker;
    struct eb_mailbox *mailbox; /* the owner's */
    const struct eb_table_options *tables;
    uint64_t bytes_per_s; /* read at most; 0: not bounded. Like on_progress it changes only while
                             nothing is being loaded */
    /* A load has come so far, in the file at `path`, each time that it says so in the log. NULL:
     * nobody asks. */
    void (*on_progress)(
        struct eb_loader *loader, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    /* A load is over, and gone with this call where it failed. */
    void (*on_loaded)(struct eb_loader *loader, struct eb_load *load);
    /* A version that had been loaded is in memory no longer. */
    void (*on_freed)(struct eb_loader *loader, const char *model, uint64_t version);
};

enum eb_load_outcome {
    EB_LOAD_DONE,
    EB_LOAD_FAILED, /* error says why */
    EB_LOAD_SHORT   /* missing_bytes are not there */
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
    struct eb_model_version **residents; /* a reference to each while it loads */
    uint64_t start_ns;
    uint64_t due_ns; /* when what has been read may have been read */
    atomic_bool is_cancelled;
    atomic_uint_fast64_t done_bytes;
    atomic_uint_fast64_t total_bytes;
    enum eb_load_outcome outcome;
    uint64_t files;         /* as eb_repository_stamp_files, when it began */
    uint64_t missing_bytes; /* of memory */
    struct eb_model_version *version;
    struct eb_failure failure;
};

/* Begins to load, with references to the residents; on_loaded follows. NULL: out of memory. */
struct eb_load *eb_loader_start(struct eb_loader *loader, const struct eb_version_source *source);
/* The version is freed by whoever gives the last reference, and on_freed does not follow. */
void eb_loader_abandon(struct eb_model_version *version);
/* The load is given up as soon as may be; on_loaded follows all the same. */
void eb_loader_cancel(struct eb_load *load);
