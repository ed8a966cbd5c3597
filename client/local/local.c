#include "client/embag_local.h"

#include "client/local/local_error.h"
#include "client/local/local_follow.h"
#include "client/local/local_lookup.h"
#include "kernels/bag_tune.h"
#include "proto/list.h"
#include "server/base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Time after which a record that could not be opened is tried again, and the longest time until the
 * thread notices that the directory has been replaced: the system does not report that. */
#define RETRY_MS 1000
/* Time after which snapshots that lookups still used are checked again. */
#define RETIRED_MS 100
/* Times that a record is read again at once because it was replaced while its files were opened. */
#define OPEN_ATTEMPTS 10

/* How lookups and the thread share snapshots: a reader stores `current` in its own `held`, and
 * reads `current` again. If it has not changed, the thread, which first replaces `current` and then
 * reads `held` of all readers, sees that the snapshot is in use. */
struct embag_local {
    char *resident_dir;
    struct eb_resident_dir dir;
    struct eb_local_follow follow;
    const struct eb_bag_ops *ops;
    struct eb_bag_schedules schedules;
    _Atomic(struct eb_local_snapshot *) current; /* replaced by the thread only */
    pthread_t thread;
    atomic_bool is_ending;
    /* The thread's own. */
    struct eb_local_stamp stamp;       /* of the record that was read last */
    uint64_t tried_ms;                 /* when that was */
    bool is_former;                    /* `current` is from a directory that has been replaced */
    struct eb_local_snapshot *retired; /* replaced, and perhaps in use */
    pthread_mutex_t mutex;             /* guards the following */
    struct eb_list readers;
    bool is_behind;            /* `failure` says why the last record is not used */
    struct eb_failure failure; /* of the last attempt */
};

struct embag_local_reader {
    struct eb_list link; /* in local->readers */
    struct embag_local *local;
    _Atomic(struct eb_local_snapshot *) held; /* by the lookup under way; NULL between lookups */
    struct eb_local_work work;
};

/* ---- following what is served ---- */

static bool is_same_stamp(const struct eb_local_stamp *stamp, const struct eb_local_stamp *other)
{
    return stamp->inode == other->inode && stamp->changed_ns == other->changed_ns;
}

/* Opens the present record. Reads it again if it is replaced meanwhile: its files may be gone. */
static enum eb_local_outcome open_present(struct embag_local *local,
    const struct eb_local_snapshot *before, struct eb_local_snapshot **snapshot,
    struct eb_failure *failure)
{
    enum eb_local_outcome outcome = EB_LOCAL_BROKEN;
    for (unsigned attempt = 0; attempt < OPEN_ATTEMPTS; attempt++) {
        local->stamp = eb_local_follow_stamp(&local->follow);
        outcome = eb_local_snapshot_open(&local->dir, before, snapshot, failure);
        struct eb_local_stamp now = eb_local_follow_stamp(&local->follow);
        if (outcome == EB_LOCAL_OPENED || is_same_stamp(&now, &local->stamp)) {
            break;
        }
    }
    return outcome;
}

static bool is_snapshot_held(struct embag_local *local, const struct eb_local_snapshot *snapshot)
{
    bool is_held = false;
    pthread_mutex_lock(&local->mutex);
    for (struct eb_list *link = local->readers.next; link != &local->readers && !is_held;
         link = link->next) {
        struct embag_local_reader *reader = EB_CONTAINER_OF(link, struct embag_local_reader, link);
        is_held = atomic_load(&reader->held) == snapshot;
    }
    pthread_mutex_unlock(&local->mutex);
    return is_held;
}

/* Closes the retired snapshots that no lookup uses. */
static void close_retired(struct embag_local *local)
{
    struct eb_local_snapshot **link = &local->retired;
    while (*link) {
        struct eb_local_snapshot *snapshot = *link;
        if (is_snapshot_held(local, snapshot)) {
            link = &snapshot->next;
        } else {
            *link = snapshot->next;
            eb_local_snapshot_close(snapshot);
        }
    }
}

/* Notes whether lookups use the present record. If not, `failure` says why; else it is NULL. */
static void note_attempt(struct embag_local *local, const struct eb_failure *failure)
{
    pthread_mutex_lock(&local->mutex);
    local->is_behind = failure;
    if (failure) {
        local->failure = *failure;
    }
    pthread_mutex_unlock(&local->mutex);
}

/* Opens the present record and lets lookups use it. */
static void follow_record(struct embag_local *local)
{
    struct eb_local_snapshot *before = atomic_load(&local->current);
    struct eb_local_snapshot *snapshot;
    struct eb_failure failure;
    /* Files of a former directory are not shared: their memory is freed once they are unmapped. */
    bool is_good = open_present(local, local->is_former ? NULL : before, &snapshot, &failure) ==
                   EB_LOCAL_OPENED;
    if (is_good) {
        atomic_store(&local->current, snapshot);
        before->next = local->retired;
        local->retired = before;
        local->is_former = false;
    }
    local->tried_ms = eb_clock_steady_ms();
    note_attempt(local, is_good ? NULL : &failure);
}

/* Opens the directory that the path leads to now: somebody has removed the former one, and a server
 * has made it anew. Returns false if that fails. */
static bool follow_directory(struct embag_local *local)
{
    struct eb_failure failure;
    if (!eb_resident_dir_reopen_reader(&local->dir, local->resident_dir, &failure)) {
        note_attempt(local, &failure);
        return false;
    }
    eb_local_follow_set(&local->follow, local->dir.path, local->dir.descriptor);
    local->is_former = true;
    return true;
}

/* Returns whether there is a record that has not been tried yet, or not for a while. */
static bool must_follow(const struct embag_local *local)
{
    struct eb_local_stamp now = eb_local_follow_stamp(&local->follow);
    return !is_same_stamp(&now, &local->stamp) ||
           (local->is_behind && eb_clock_steady_ms() - local->tried_ms >= RETRY_MS);
}

/* The thread of a handle. Only it writes is_behind. */
static void *run_follower(void *context)
{
    struct embag_local *local = context;
    while (!atomic_load(&local->is_ending)) {
        bool is_replaced = eb_resident_dir_is_replaced(&local->dir);
        if (is_replaced ? follow_directory(local) : must_follow(local)) {
            follow_record(local);
        }
        close_retired(local);
        eb_local_follow_wait(&local->follow, local->retired ? RETIRED_MS : RETRY_MS);
    }
    return NULL;
}

/* ---- handles ---- */

/* Starts the thread with all signals blocked, except those that a fault in the thread raises and
 * SIGPROF. */
static int start_follower(struct embag_local *local)
{
    static const int raised_signals[] = {
        SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF};
    sigset_t blocked;
    sigset_t before;
    (void)sigfillset(&blocked);
    for (size_t i = 0; i < sizeof raised_signals / sizeof raised_signals[0]; i++) {
        (void)sigdelset(&blocked, raised_signals[i]);
    }
    int rc = pthread_sigmask(SIG_SETMASK, &blocked, &before);
    if (rc != 0) {
        return rc;
    }
    int started = pthread_create(&local->thread, NULL, run_follower, local);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* Opens what is published at present and starts to follow. The directory and its watch are open.
 * Returns the status, with the snapshot closed and *failure set unless that is EMBAG_OK. */
static enum embag_status open_tables(struct embag_local *local, struct eb_failure *failure)
{
    struct eb_local_snapshot *snapshot;
    switch (open_present(local, NULL, &snapshot, failure)) {
    case EB_LOCAL_ABSENT: return EMBAG_UNAVAILABLE;
    case EB_LOCAL_BROKEN: return EMBAG_FAILED_PRECONDITION;
    case EB_LOCAL_OPENED: break;
    }
    atomic_init(&local->current, snapshot);
    int rc = start_follower(local);
    if (rc != 0) {
        eb_local_snapshot_close(snapshot);
        eb_failure_set(failure, "no thread can be started: %s", strerror(rc));
        return EMBAG_RESOURCE_EXHAUSTED;
    }
    return EMBAG_OK;
}

/* Opens the directory, its watch and its tables. */
static enum embag_status open_local(struct embag_local *local, struct eb_failure *failure)
{
    const char *resident_dir = local->resident_dir;
    eb_list_init(&local->readers);
    local->ops = eb_bag_ops_find(NULL);
    eb_bag_tune_find_defaults(&local->schedules);
    if (pthread_mutex_init(&local->mutex, NULL) != 0) {
        eb_failure_set(failure, "out of memory");
        return EMBAG_RESOURCE_EXHAUSTED;
    }
    enum embag_status status = EMBAG_FAILED_PRECONDITION;
    if (eb_resident_dir_open_reader(&local->dir, resident_dir, failure)) {
        bool is_trusted = eb_resident_dir_is_trusted(&local->dir, resident_dir, failure);
        status = is_trusted ? EMBAG_RESOURCE_EXHAUSTED : EMBAG_FAILED_PRECONDITION;
        if (is_trusted &&
            eb_local_follow_open(&local->follow, local->dir.path, local->dir.descriptor, failure)) {
            status = open_tables(local, failure);
            if (status == EMBAG_OK) {
                return EMBAG_OK;
            }
            eb_local_follow_close(&local->follow);
        }
        eb_resident_dir_close(&local->dir);
    }
    (void)pthread_mutex_destroy(&local->mutex);
    return status;
}

enum embag_status embag_local_open(
    const char *resident_dir, struct embag_local **local, struct embag_error *error)
{
    struct eb_failure failure = {.text = ""};
    *local = NULL;
    if (!resident_dir) {
        (void)eb_local_error_set(error, EMBAG_INVALID_ARGUMENT, "resident_dir is NULL");
        return EMBAG_INVALID_ARGUMENT;
    }
    struct embag_local *made = calloc(1, sizeof *made);
    char *path = strdup(resident_dir);
    if (!made || !path) {
        free(made);
        free(path);
        (void)eb_local_error_set(error, EMBAG_RESOURCE_EXHAUSTED, "out of memory");
        return EMBAG_RESOURCE_EXHAUSTED;
    }
    made->resident_dir = path;
    enum embag_status status = open_local(made, &failure);
    if (status != EMBAG_OK) {
        free(path);
        free(made);
        (void)eb_local_error_set(error, status, "%s", failure.text);
        return status;
    }
    *local = made;
    return EMBAG_OK;
}

void embag_local_close(struct embag_local *local)
{
    if (!local) {
        return;
    }
    atomic_store(&local->is_ending, true);
    eb_local_follow_wake(&local->follow);
    (void)pthread_join(local->thread, NULL);
    close_retired(local);
    eb_local_snapshot_close(atomic_load(&local->current));
    eb_local_follow_close(&local->follow);
    eb_resident_dir_close(&local->dir);
    (void)pthread_mutex_destroy(&local->mutex);
    free(local->resident_dir);
    free(local);
}

enum embag_status embag_local_check(struct embag_local *local, struct embag_error *error)
{
    pthread_mutex_lock(&local->mutex);
    bool is_behind = local->is_behind;
    if (is_behind) {
        (void)eb_local_error_set(error, EMBAG_FAILED_PRECONDITION, "%s", local->failure.text);
    }
    pthread_mutex_unlock(&local->mutex);
    return is_behind ? EMBAG_FAILED_PRECONDITION : EMBAG_OK;
}

/* ---- readers ---- */

enum embag_status embag_local_reader_open(
    struct embag_local *local, struct embag_local_reader **reader, struct embag_error *error)
{
    struct embag_local_reader *made = calloc(1, sizeof *made);
    *reader = made;
    if (!made) {
        (void)eb_local_error_set(error, EMBAG_RESOURCE_EXHAUSTED, "out of memory");
        return EMBAG_RESOURCE_EXHAUSTED;
    }
    made->local = local;
    made->work.ops = local->ops;
    made->work.schedules = &local->schedules;
    pthread_mutex_lock(&local->mutex);
    eb_list_push(&local->readers, &made->link);
    pthread_mutex_unlock(&local->mutex);
    return EMBAG_OK;
}

void embag_local_reader_close(struct embag_local_reader *reader)
{
    if (!reader) {
        return;
    }
    pthread_mutex_lock(&reader->local->mutex);
    eb_list_remove(&reader->link);
    pthread_mutex_unlock(&reader->local->mutex);
    eb_local_work_deinit(&reader->work);
    free(reader);
}

/* Returns the present snapshot, which stays until `held` is cleared. */
static const struct eb_local_snapshot *hold_snapshot(struct embag_local_reader *reader)
{
    struct eb_local_snapshot *snapshot;
    do {
        snapshot = atomic_load(&reader->local->current);
        atomic_store(&reader->held, snapshot);
    } while (atomic_load(&reader->local->current) != snapshot);
    return snapshot;
}

enum embag_status embag_local_lookup(struct embag_local_reader *reader,
    const struct embag_request *request, const struct embag_answer **answer,
    struct embag_error *error)
{
    struct embag_error local_error;
    struct embag_error *reason = error ? error : &local_error;
    const struct eb_local_snapshot *snapshot = hold_snapshot(reader);
    bool is_good = eb_local_work_look_up(&reader->work, snapshot, request, reason);
    atomic_store_explicit(&reader->held, NULL, memory_order_release);
    *answer = is_good ? &reader->work.answer : NULL;
    return is_good ? EMBAG_OK : reason->status;
}
