/* Loads versions and frees them, on background threads: loads EB_LOADS_AT_ONCE versions at the same
 * time, at a pace that leaves the bandwidth of disk and memory to lookups, and frees a version that
 * has lost its last reader.
 * Thread: the owner's loop; a version may lose its last reference on any, and any may keep the
 * pace.
 * Memory: a load is on the heap from its start until its version has been freed. */
#pragma once

#include "server/base/read_watch.h"
#include "server/models/model_version.h"
#include "server/publish/load_marker.h"
#include "server/publish/worker.h"

/* Most loads under way at the same time, so that a small version need not wait for a large one. */
#define EB_LOADS_AT_ONCE 2

struct eb_load;

struct eb_loader {
    struct eb_mailbox *mailbox;            /* the owner's */
    const struct eb_table_options *tables; /* copied when a load starts */
    struct eb_load_markers *markers;       /* may be NULL */
    atomic_uint_fast64_t bytes_per_s; /* most bytes that all loads, and others that keep the pace,
                                         read per second together; 0 means no limit */
    atomic_uint_fast64_t due_ns;      /* private: time when the pace allows the next read */
    unsigned threads; /* threads that read the tables of a version whose load starts */
    /* Reports the progress of a load, which is reading the file at `path`. May be NULL. Changed
     * only while no load is under way. */
    void (*on_progress)(
        struct eb_loader *loader, const char *path, uint64_t done_bytes, uint64_t total_bytes);
    /* Called when a load is over. The struct of a failed load is freed after this call. */
    void (*on_loaded)(struct eb_loader *loader, struct eb_load *load);
    /* Called when the memory of a loaded version has been freed. */
    void (*on_freed)(struct eb_loader *loader, const char *model, uint64_t version);
    /* Private. */
    struct eb_worker workers[EB_LOADS_AT_ONCE]; /* each for one load at a time */
    struct eb_worker freer;                     /* freeing does not wait for a load */
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
    struct eb_table_options tables;
    size_t resident_count;
    struct eb_model_version **residents;    /* versions that it may share tables with; it holds a
                                               reference to each while it loads */
    const struct eb_served_version *served; /* as in struct eb_version_source */
    uint64_t start_ns;
    atomic_bool is_cancelled;
    atomic_uint stalled_reads;  /* reads under way that have taken long */
    struct eb_read_watch watch; /* of the thread that loads; its load workers have their own */
    atomic_flag is_reporting;   /* a thread reports the progress; others do not */
    uint64_t reported_ns;       /* time of the last report, from which the next rate is computed */
    uint64_t reported_bytes;    /* done_bytes in that report */
    atomic_uint_fast64_t done_bytes;
    atomic_uint_fast64_t total_bytes;
    enum eb_load_outcome outcome;
    struct eb_load_marker *marker; /* NULL if there is none */
    uint64_t files;                /* result of eb_repository_stamp_files when the load began */
    uint64_t missing_bytes;        /* bytes of memory that are missing, if SHORT */
    struct eb_model_version *version;
    struct eb_failure failure;
};

/* Starts the threads. The owner has set the members above the private ones, and has zeroed the
 * private ones. Returns 0, or a negative libuv code with nothing left behind. */
int eb_loader_open(struct eb_loader *loader, uv_loop_t *owner);
/* Lowers the priority of what begins from now on. Called at most once. */
void eb_loader_give_way(struct eb_loader *loader);
/* Returns whether a version is being loaded or freed. */
bool eb_loader_is_busy(const struct eb_loader *loader);
/* Ends the threads. The loader must not be busy. The owner may free it once the loop has run. */
void eb_loader_close(struct eb_loader *loader);
/* Returns the number of threads of each load. It is the setting load_threads unless that is 0. Then
 * it depends on is_first: while nobody is served yet, the threads may use all CPUs, and there are
 * more threads than CPUs because they wait for the disk. Later, most CPUs are left to lookups. */
unsigned eb_loader_choose_threads(uint64_t load_threads, bool is_first);
/* Makes loads as fast as possible, for a start: nobody is served yet. Those under way have no limit
 * on bytes_per_s any more, those that start later have more threads too. */
void eb_loader_hurry(struct eb_loader *loader, uint64_t load_threads);
/* Makes loads leave most of the machine to lookups, in the same way. */
void eb_loader_limit(struct eb_loader *loader, uint64_t load_threads, uint64_t bytes_per_s);
/* Starts a load on worker number `slot`, which must have no other load under way, and takes
 * references to the residents; on_loaded follows. source->served must stay valid until then.
 * Returns NULL if out of memory. */
struct eb_load *eb_loader_start(
    struct eb_loader *loader, size_t slot, const struct eb_version_source *source);
/* Lets the version be freed as soon as its last reference is given back, on the thread that gives
 * it back. on_freed does not follow. */
void eb_loader_abandon(struct eb_model_version *version);
/* Ends the load as soon as possible; on_loaded still follows. */
void eb_loader_cancel(struct eb_load *load);
/* Checks whether the load's own thread has waited long for a read, and logs that. Called about
 * twice a second. */
void eb_loader_check(struct eb_load *load);
/* Must be called on any thread after it has read `bytes` bytes. Sleeps until all callers together
 * have read no more than bytes_per_s. Returns false if *is_cancelled is set. */
bool eb_loader_keep_pace(struct eb_loader *loader, uint64_t bytes, const atomic_bool *is_cancelled);
