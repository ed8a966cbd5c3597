/* Decides what `embag publish` does next: reads the list of servers, and keeps what each of them
 * said about the version that is published.
 * Thread: pure. Memory: eb_publish_list_deinit frees what eb_publish_list_init has allocated. */
#pragma once

#include "client/embag.h"
#include "server/base/failure.h"

/* Most servers of one publish. They are switched one after the other, so a longer list would serve
 * two versions for longer. */
#define EB_PUBLISH_SERVERS_MAX 256
/* Room for the text of an embag_error. */
#define EB_PUBLISH_REASON_BYTES sizeof(((struct embag_error *)0)->text)

/* The state of the version on one server. */
enum eb_publish_state {
    EB_PUBLISH_UNKNOWN, /* not asked yet */
    EB_PUBLISH_SILENT,  /* did not answer in time */
    EB_PUBLISH_ABSENT,  /* neither in memory nor being loaded */
    EB_PUBLISH_LOADING,
    EB_PUBLISH_READY, /* in memory; perhaps served */
    EB_PUBLISH_FAILED /* cannot be loaded */
};

struct eb_publish_server {
    const char *address;         /* in the text of the list */
    struct embag_client *client; /* the caller's; not used here */
    enum eb_publish_state state;
    char reason[EB_PUBLISH_REASON_BYTES]; /* why it is failed, absent or silent; may be empty */
    bool is_observed;                     /* has answered at least once */
    bool may_serve;              /* may have begun to serve the version during this publish */
    uint64_t served_before;      /* version served before it; itself if it was served already; 0:
                                    none */
    uint64_t commanded_before;   /* version that a command served then; 0: model.yaml decided */
    uint64_t load_not_before_ms; /* when the next command to load may be sent */
    uint64_t load_pause_ms;      /* pause after the next one that is not answered */
};

struct eb_publish_list {
    struct eb_publish_server *servers; /* [count] */
    size_t count;
    char *text; /* the addresses, NUL-terminated */
};

/* Reads addresses separated by commas, with or without spaces around them. Returns false with
 * *failure set if an address is empty, occurs twice or stands for several servers (dns:), if there
 * are too many, or if out of memory. */
bool eb_publish_list_init(
    struct eb_publish_list *list, const char *addresses, struct eb_failure *failure);
void eb_publish_list_deinit(struct eb_publish_list *list);

/* Keeps what the server's list of versions says about `version`. `model` is NULL if the server has
 * no such model. */
void eb_publish_observe(
    struct eb_publish_server *server, const struct embag_model *model, uint64_t version);

/* Returns whether a command to load the version should be sent now. */
bool eb_publish_is_load_due(const struct eb_publish_server *server, uint64_t now_ms);
/* Notes that a command to load was sent. If it was not answered, the server may still execute it
 * and counts it among its commands in progress: the pauses between such commands double. */
void eb_publish_note_load(struct eb_publish_server *server, uint64_t now_ms, bool is_answered);

/* Returns whether a command to serve a version that ended with this status changed nothing for
 * certain. */
bool eb_publish_is_refusal(enum embag_status status);

enum eb_publish_undo {
    EB_PUBLISH_UNDO_NOTHING,   /* the server serves what it served before */
    EB_PUBLISH_UNDO_SERVE,     /* serve *version; 0: model.yaml decides again */
    EB_PUBLISH_UNDO_IMPOSSIBLE /* it served no version before; no command stops serving */
};

/* Returns what undoes the publish of `version` on the server. */
enum eb_publish_undo eb_publish_find_undo(
    const struct eb_publish_server *server, uint64_t version, uint64_t *undo_version);
