/* A start without the repository: presents the models and versions of the record of what was served
 * (tables/served_record.h) as a repository, so that the registry loads and serves them. The files
 * that the record names cannot be made again until the repository can be read. Until then, no
 * resident file is deleted, and the record stays as it is.
 * Thread: the owner's; eb_record_start_find's result may be read by any. Memory: the record and the
 * lists are on the heap. */
#pragma once

#include "server/models/repository.h"
#include "server/models/snapshot.h"
#include "server/tables/served_record.h"

/* A zeroed one has never been opened. */
struct eb_record_start {
    bool is_opened; /* the server started from the record */
    bool is_active; /* and the repository has not been read since */
    /* Private. */
    struct eb_resident_dir *dir;
    struct eb_repository_terms terms; /* of what is opened */
    struct eb_served_record record;
};

/* Scans the repository in `directory` for a start of the server, on the terms of `tables`. If that
 * fails, reads the record in the directory of resident files, unless there is none, and makes a
 * repository of its complete versions: on a part server, of those of its part, and on a router, of
 * those that a router recorded, because it chooses among them as peers have them. Paths are then
 * below `directory`, and stamps are unknown (zeroed). Leaves out each model whose served version is
 * not complete or whose model.yaml is not valid, which is logged, and versions that would be served
 * instead of the one that was. Logs why the repository cannot be read, or why the record cannot be
 * served either, for example because the server is out of memory. Returns false, with *start and
 * *out empty and the reason in *failure, if there is nothing to serve. */
bool eb_record_start_scan(struct eb_record_start *start, const char *directory,
    const struct eb_table_options *tables, struct eb_repository *out, struct eb_failure *failure);
/* Returns the recorded version, or NULL if there is none that is complete, or if the start is not
 * active. The result is valid until eb_record_start_deinit. */
const struct eb_served_version *eb_record_start_find(
    const struct eb_record_start *start, const char *model, uint64_t version);
/* Returns whether every recorded model is served, and, if versions are in no parts, with the
 * version that was served. The start must be active. */
bool eb_record_start_is_complete(
    const struct eb_record_start *start, const struct eb_snapshot *snapshot);
/* Ends the start, because the repository has been read. Returns whether it was active. */
bool eb_record_start_end(struct eb_record_start *start);
/* Frees the record. No version of it may be loading. */
void eb_record_start_deinit(struct eb_record_start *start);
