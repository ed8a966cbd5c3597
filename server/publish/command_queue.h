/* What operators ask for, until it is done: loading, unloading and serving a version.
 * Thread: the manager's. Memory: commands are their senders'. */
#pragma once

#include "server/models/registry.h"

enum eb_model_verb {
    EB_MODEL_LOAD,   /* it stays until it is unloaded; version 0: as model.yaml says */
    EB_MODEL_UNLOAD, /* whatever the time; not what is served or has a label, unless its model is
                        on disk no longer */
    EB_MODEL_SERVE   /* whatever model.yaml says; version 0: as that says */
};

enum eb_model_outcome {
    EB_MODEL_DONE,      /* and every reader knows */
    EB_MODEL_NOT_FOUND, /* no such model or version, on disk or in memory */
    EB_MODEL_REFUSED,   /* as things are it cannot be done */
    EB_MODEL_FAILED,    /* it does not load; what was served is */
    EB_MODEL_SHORT,     /* there is too little memory for it; what was served is */
    EB_MODEL_CANCELLED  /* the server ends */
};

struct eb_model_command {
    enum eb_model_verb verb;
    const char *model;
    uint64_t version;
    /* Now and then while it is loaded; may be NULL. Both on the manager's thread. */
    void (*on_progress)(
        struct eb_model_command *command, uint64_t done_bytes, uint64_t total_bytes);
    /* The last call; the command is its sender's again. */
    void (*on_done)(
        struct eb_model_command *command, enum eb_model_outcome outcome, const char *text);
    /* Private. */
    struct eb_model_command *next;
    bool is_begun;
    uint64_t scan; /* that begins after the command came */
    uint64_t commanded_before;
};

struct eb_command_queue {
    struct eb_registry *registry;
    struct eb_model_command *first; /* in the order of their coming */
    /* Looks at the disk, counted by the owner. */
    uint64_t scans_begun;
    uint64_t scans_done;
    const char *disk_failure; /* why the last look was in vain; NULL: it was not */
};

void eb_command_queue_push(struct eb_command_queue *queue, struct eb_model_command *command);
/* Whether what is on disk has to be looked at before it can begin. */
bool eb_command_queue_needs_disk(
    const struct eb_command_queue *queue, const struct eb_model_command *command);
/* Tells the registry what is wanted: by commands that need nothing from disk, and by those since
 * whose coming it has been looked at. */
void eb_command_queue_begin(struct eb_command_queue *queue);
/* Answers the commands that have begun and are over; what came to nothing is taken back, which is
 * news of the registry's. */
void eb_command_queue_finish(struct eb_command_queue *queue);
/* So much of a version of the model is loaded. */
void eb_command_queue_tell(const struct eb_command_queue *queue, const char *model,
    uint64_t done_bytes, uint64_t total_bytes);
/* Answers all: the server ends. */
void eb_command_queue_cancel(struct eb_command_queue *queue);
