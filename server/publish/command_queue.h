/* Operators' commands that are not done yet: to load, unload or serve a version.
 * Thread: the manager's. Memory: commands belong to their senders. */
#pragma once

#include "server/models/registry.h"

enum eb_model_verb {
    EB_MODEL_LOAD,   /* loads a version and holds it until it is unloaded; version 0 means what
                        model.yaml chooses */
    EB_MODEL_UNLOAD, /* drops a version, even before keep_s is over. Refused if a router claims it,
                        and if it is served, has a label or, on a router, is wanted by the flip
                        though no command holds it, unless its model is no longer on disk */
    EB_MODEL_SERVE   /* serves a version, whatever model.yaml says; version 0 means to follow
                        model.yaml again. On a router, it waits until the flip serves the version,
                        and fails after serve_wait_ms; with version 0 it is done once the flip has
                        been told */
};

enum eb_model_outcome {
    EB_MODEL_DONE,      /* done, and every reader has the new snapshot */
    EB_MODEL_NOT_FOUND, /* no such model or version, neither on disk nor in memory */
    EB_MODEL_REFUSED,   /* not possible in the present state */
    EB_MODEL_FAILED,    /* the version cannot be loaded; the previous one is still served */
    EB_MODEL_SHORT,     /* too little memory to load it; the previous one is still served */
    EB_MODEL_CANCELLED  /* the server is shutting down */
};

struct eb_model_command {
    enum eb_model_verb verb;
    const char *model;
    uint64_t version;
    /* Called now and then with the progress of the load. May be NULL. Both on_progress and on_done
     * are called on the manager's thread. */
    void (*on_progress)(
        struct eb_model_command *command, uint64_t done_bytes, uint64_t total_bytes);
    /* The last callback, called once. The command then belongs to its sender again. */
    void (*on_done)(
        struct eb_model_command *command, enum eb_model_outcome outcome, const char *text);
    /* Private. */
    struct eb_model_command *next;
    bool is_begun;
    uint64_t scan; /* number of the first scan that begins after the command came */
    uint64_t commanded_before;
    uint64_t end_ms; /* time when it fails if it is not done by then; 0 means never */
};

struct eb_command_queue {
    struct eb_registry *registry;
    struct eb_model_command *first; /* the oldest */
    /* Scans of the repository, counted by the owner. */
    uint64_t scans_begun;
    uint64_t scans_done;
    const char *disk_failure; /* reason why the last scan failed; NULL if it did not */
    /* Used on a router only. */
    uint64_t now_ms;        /* the owner sets it before it begins or finishes commands */
    uint64_t serve_wait_ms; /* longest time for which a version to be served is waited for */
};

void eb_command_queue_push(struct eb_command_queue *queue, struct eb_model_command *command);
/* Returns whether a scan has to be done before the command can begin. */
bool eb_command_queue_needs_disk(
    const struct eb_command_queue *queue, const struct eb_model_command *command);
/* Passes the commands that need no scan, and those whose scan is done, to the registry. */
void eb_command_queue_begin(struct eb_command_queue *queue);
/* Answers the commands that have begun and now have an outcome. Undoes the changes that failed
 * commands have made in the registry, and marks the registry as dirty. */
void eb_command_queue_finish(struct eb_command_queue *queue);
/* Returns the time at which the first command fails that is not done by then, or UINT64_MAX if none
 * will. */
uint64_t eb_command_queue_due_ms(const struct eb_command_queue *queue);
/* Passes load progress to the commands of the model. */
void eb_command_queue_tell(const struct eb_command_queue *queue, const char *model,
    uint64_t done_bytes, uint64_t total_bytes);
/* Answers all commands with EB_MODEL_CANCELLED, because the server is shutting down. */
void eb_command_queue_cancel(struct eb_command_queue *queue);
