/* embag_local: lookups in the calling process, in the tables that an embag server on the same
 * machine keeps in resident files. The files are mapped read-only, and the server's own functions
 * check and pool in the caller's thread, so answers have the same bits as the server's. The server
 * must have the setting resident_dir and, if it runs as another user, `resident_readers: group`. If
 * the server ends or is killed, lookups go on. client/examples/local_example.c is a complete
 * program.
 *
 * Each handle has a thread that waits until the server publishes other versions. The thread then
 * maps them beside the old ones and makes later lookups use them. Once a second it checks whether
 * the directory has been removed and made anew; it then follows the server that made it. The thread
 * blocks all signals.
 * Thread: any number of readers may look up at the same time, without locks; only one thread at a
 * time may use a reader. A handle does not survive fork. Memory: arrays that are passed in are
 * borrowed for the call. Versions are unmapped when no lookup uses them, so a lookup that hangs
 * keeps one version in memory. If somebody truncates a mapped file, the process gets SIGBUS; only
 * the directory's user and root can do that. Functions that close accept NULL. */
#pragma once

#include "embag.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most queries of one request; more are RESOURCE_EXHAUSTED. */
#define EMBAG_LOCAL_QUERIES_MAX 65536

struct embag_local;        /* opaque */
struct embag_local_reader; /* opaque */

/* Maps the tables that the server serves from its resident_dir. If the result is not EMBAG_OK,
 * *local is NULL and *error says why: FAILED_PRECONDITION if the directory or a file in it cannot
 * be used, because it is missing, cannot be read, is not in a tmpfs or hugetlbfs, is damaged, was
 * made by an embag with another layout, or cannot be mapped for lack of memory; UNAVAILABLE if the
 * server has not published anything yet; RESOURCE_EXHAUSTED if no memory, descriptor or thread is
 * left for the handle. A relative path is looked up again in the working directory of that time if
 * the directory is made anew. error may be NULL, here and below. */
enum embag_status embag_local_open(
    const char *resident_dir, struct embag_local **local, struct embag_error *error);
/* Unmaps everything. All readers of the handle must be closed. */
void embag_local_close(struct embag_local *local);

/* Returns EMBAG_OK if lookups use the versions that the server published last, as far as is known.
 * Otherwise they still use the versions published before, *error says why the new ones could not be
 * mapped, and mapping them is tried again every second. Any thread may call this function. */
enum embag_status embag_local_check(struct embag_local *local, struct embag_error *error);

/* Makes a reader. If out of memory, the result is RESOURCE_EXHAUSTED and *reader is NULL. */
enum embag_status embag_local_reader_open(
    struct embag_local *local, struct embag_local_reader **reader, struct embag_error *error);
void embag_local_reader_close(struct embag_local_reader *reader);

/* Does a lookup. *answer is valid until the reader's next lookup or until the reader is closed; it
 * is NULL if the result is not EMBAG_OK. The reader keeps as much memory as its largest lookup so
 * far needed, so a lookup that is no larger allocates nothing.
 *
 * Requests, answers and errors are those of embag_lookup, with these differences. A query names a
 * table, not a feature; features, and what model.yaml defines for them, exist only in the server.
 * groups, concat, errors_per_query, version_label and sequence lookups are UNIMPLEMENTED.
 * timeout_us, priority and traceparent are ignored. The server's limits do not apply; those of the
 * operation do: 2^24 indices and 2^24 bags in a query. A lookup in a version that has a table
 * outside resident files is FAILED_PRECONDITION. queue_us and compute_us are 0. */
enum embag_status embag_local_lookup(struct embag_local_reader *reader,
    const struct embag_request *request, const struct embag_answer **answer,
    struct embag_error *error);

#ifdef __cplusplus
}
#endif
