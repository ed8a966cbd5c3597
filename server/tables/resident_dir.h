/* The directory of resident files: files in a RAM file system (tmpfs, or hugetlbfs with 2 MiB
 * pages) that hold tables as they lie in memory, so that the tables outlive the process. The
 * directory is RESIDENT_DIR/embag. One server owns it by holding a lock, which the kernel releases
 * when the process ends; only the owner writes. Other servers are guests: they map files and change
 * nothing.
 *
 * Names in the directory:
 *   lock       empty, never deleted; its mtime is the owner's heartbeat
 *   tmp-N      a file that is being filled; renamed when it is complete
 *   KEY.t      a table of 2 MiB or more; KEY: its source key, 16 hex digits
 *   KEY.s      all smaller tables of a version; KEY: a hash of their source keys
 *   served     the record of what is served (served_record.h)
 *   short-K    the last K starts did not serve for 60 s
 *   prefetch   how far ahead rows are prefetched, as an earlier start measured it
 *
 * Thread: open, close, own, disown, beat and sweep on one thread at a time; the others on any.
 * Memory: two descriptors, and a list on the heap of the files that this process has mapped. */
#pragma once

#include "server/base/failure.h"
#include "server/tables/resident_footer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#define EB_RESIDENT_NAME_BYTES 32
/* Most names that are read in one pass over the directory; the rest are left alone. */
#define EB_RESIDENT_NAMES_MAX 262144u
#define EB_RESIDENT_HEARTBEAT_S 10 /* between heartbeats of an owner */
#define EB_RESIDENT_STALLED_S 60   /* age of a heartbeat at which its owner counts as stalled */

enum eb_resident_fs { EB_RESIDENT_TMPFS, EB_RESIDENT_HUGETLBFS };
enum eb_resident_kind { EB_RESIDENT_TABLE, EB_RESIDENT_SMALL }; /* .t and .s */

/* The outcome for a table that was meant to be resident. */
enum eb_resident_outcome {
    EB_RESIDENT_ADOPTED,  /* mapped from a file that was there */
    EB_RESIDENT_WRITTEN,  /* loaded into a new file */
    EB_RESIDENT_REJECTED, /* its file was not sound, so it was loaded */
    /* In ordinary memory: */
    EB_RESIDENT_FULL,        /* the file system had no room for its file */
    EB_RESIDENT_SMALL_PAGES, /* its file would not have been in huge pages */
    EB_RESIDENT_FAILED,      /* its file could not be made or completed */
};
#define EB_RESIDENT_OUTCOME_COUNT 6

struct eb_resident_use; /* a file that this process has mapped */

struct eb_resident_dir {
    char *path;     /* RESIDENT_DIR/embag */
    int descriptor; /* of that directory; -1 if it is not open */
    int lock;       /* descriptor of the file `lock`; -1 for a reader */
    uid_t user;     /* owner of the directory, and so of its files */
    enum eb_resident_fs fs;
    mode_t mode;      /* that an owner gives the directory: 0700, or 0750 if a group may read */
    mode_t file_mode; /* of complete files: 0400, or 0440 if a group may read them */
    atomic_bool is_owner;
    atomic_bool is_ending; /* the process ends: files stay when their tables are freed */
    atomic_bool is_kept;   /* no file is deleted, because it could not be made again at present */
    unsigned start_count;  /* result of eb_resident_dir_begin_start; 0 for a guest */
    atomic_uint_fast64_t outcomes[EB_RESIDENT_OUTCOME_COUNT]; /* tables since the process started */
    atomic_uint_fast64_t next_number;                         /* of tmp-N */
    /* Guards the members below it. Held while a name in the directory is changed, so that a process
     * that has given up the lock changes no name. */
    pthread_mutex_t mutex;
    struct eb_resident_use *uses;
    unsigned adopter_count;     /* threads that are adopting files */
    uint64_t adopting_since_ns; /* time when adopter_count was last raised from 0 */
    uint64_t adopting_ns;       /* time before that during which it was not 0 */
};

/* Opens RESIDENT_DIR/embag, makes it if it is missing, and becomes the owner (eb_resident_dir_own)
 * if nobody holds the lock. Returns false, with *failure set and nothing open or made, if
 * RESIDENT_DIR is missing, if `embag` in it is not a directory that belongs to the effective user,
 * if others may write to it, if its mode cannot be set, or if the file system is neither tmpfs nor
 * hugetlbfs with 2 MiB pages. */
bool eb_resident_dir_open(struct eb_resident_dir *dir, const char *resident_dir,
    bool may_group_read, struct eb_failure *failure);
/* Opens an existing RESIDENT_DIR/embag to read its files, which may belong to another user. Never
 * takes the lock and changes nothing. Returns false with nothing open: *failure has the reason. */
bool eb_resident_dir_open_reader(
    struct eb_resident_dir *dir, const char *resident_dir, struct eb_failure *failure);
/* Returns whether the path leads to another directory than the open one, because that has been
 * removed, renamed or hidden by a mount. Returns false if the path leads to no directory. */
bool eb_resident_dir_is_replaced(const struct eb_resident_dir *dir);
/* Opens the directory that the path leads to now, and closes the former one, whose files stay
 * mapped. Only for a reader. Returns false, with *failure set and the former one still open, if the
 * new one cannot be opened or is not trusted (eb_resident_dir_is_trusted). */
bool eb_resident_dir_reopen_reader(
    struct eb_resident_dir *dir, const char *resident_dir, struct eb_failure *failure);
/* Returns whether the open directory belongs to this process's user, root, or the owner of
 * resident_dir, and nobody else may write in it, so that nobody else can choose what is read.
 * Otherwise *failure says what is wrong. */
bool eb_resident_dir_is_trusted(
    const struct eb_resident_dir *dir, const char *resident_dir, struct eb_failure *failure);
/* Gives up the lock, if it is held, and closes the directory. Accepts a struct that was never
 * opened, with descriptor -1. */
void eb_resident_dir_close(struct eb_resident_dir *dir);

/* Tries to become the owner. Returns whether the process is the owner now. If it has just become
 * the owner, all tmp-N are deleted, and the directory and its complete files have the modes that
 * this process wants, except for files that belong to another user or may be written. */
bool eb_resident_dir_own(struct eb_resident_dir *dir);
/* Returns whether the directory has the mode that this process gives it as the owner. For a guest:
 * false means that the owner has another setting. */
bool eb_resident_dir_has_mode(const struct eb_resident_dir *dir);
/* Gives up the lock early, at SIGTERM, so that the next process can take it while this one drains.
 * The directory stays open; nothing is written from then on. */
void eb_resident_dir_disown(struct eb_resident_dir *dir);
/* Sets the owner's heartbeat to now. Does nothing if the process is not the owner. */
void eb_resident_dir_beat(struct eb_resident_dir *dir);
/* Returns the seconds since the owner's last heartbeat. */
uint64_t eb_resident_dir_beat_age_s(const struct eb_resident_dir *dir);

/* After EB_RESIDENT_STARTS_CHECKED starts in a row that did not serve for a minute, all rows of the
 * adopted files are checked; after EB_RESIDENT_STARTS_EMPTIED, no file is adopted. A damaged file
 * may be why those starts ended. */
#define EB_RESIDENT_STARTS_CHECKED 2u
#define EB_RESIDENT_STARTS_EMPTIED 3u

/* Counts a start: replaces short-K by short-(K+1). Returns the number of starts in a row, including
 * this one, for which eb_resident_dir_end_start has not been called; 1 for the first. If
 * is_explained, the start before this one ended for a reason that has nothing to do with the files,
 * and does not count. Only for the owner. */
unsigned eb_resident_dir_begin_start(struct eb_resident_dir *dir, bool is_explained);
/* Ends the row of starts: deletes every short-K. Does nothing if the process is not the owner. */
void eb_resident_dir_end_start(struct eb_resident_dir *dir);

/* ---- files ---- */

/* Writes the file's name. */
void eb_resident_dir_name(
    enum eb_resident_kind kind, uint64_t key, char name[EB_RESIDENT_NAME_BYTES]);
/* Parses such a name. Returns false if `name` does not have that form. */
bool eb_resident_dir_parse(const char *name, enum eb_resident_kind *kind, uint64_t *key);

/* Creates an empty tmp-N of `bytes` bytes, a multiple of 2 MiB, without pages. Returns its
 * descriptor, open for reading and writing. Returns -1 with *failure set if that fails or if the
 * process is not the owner. `name` is set to tmp-N. */
int eb_resident_dir_create(struct eb_resident_dir *dir, uint64_t bytes,
    char name[EB_RESIDENT_NAME_BYTES], struct eb_failure *failure);
/* Completes a file: sets its mode and renames tmp-N to `name`, replacing any file of that name.
 * Returns false with *failure set if that fails; tmp-N is then deleted. Also returns false with
 * *failure set if the process is no longer the owner. Its own tmp-N are gone by then; a tmp-N of
 * that name belongs to the new owner and is left alone. */
bool eb_resident_dir_commit(struct eb_resident_dir *dir, int descriptor, const char *tmp,
    const char *name, struct eb_failure *failure);
/* Opens a complete file for reading. Checks that it is a regular file that belongs to the
 * directory's user or root and is not writable, and that its size is a multiple of 2 MiB and not 0.
 * Stores the size in *bytes. Returns the descriptor; -1 with errno ENOENT and *failure empty if
 * there is no such file; -1 with *failure set if the file is not sound, or cannot be opened: then
 * is_transient says whether that may pass, such as a lack of permission. */
int eb_resident_dir_find(const struct eb_resident_dir *dir, const char *name, uint64_t *bytes,
    struct eb_failure *failure);
/* Returns whether there is a file of that name. */
bool eb_resident_dir_has(const struct eb_resident_dir *dir, const char *name);
/* Reads exactly `bytes` bytes at `offset` of an open file, with pread(2), so that a damaged page is
 * an error and not a signal. Returns false with *failure set if that fails. */
bool eb_resident_dir_read_range(
    int descriptor, uint64_t offset, void *out, uint64_t bytes, struct eb_failure *failure);
/* Reads and decodes the footer of an open file. */
enum eb_resident_footer_outcome eb_resident_dir_read_footer(int descriptor, uint64_t file_bytes,
    struct eb_resident_footer *footer, struct eb_failure *failure);
/* Deletes a file. Does nothing if the process is not the owner. */
void eb_resident_dir_unlink(struct eb_resident_dir *dir, const char *name);

/* Calls `each` for every name except "." and "..", including `lock`, until `each` returns false.
 * Returns false with *failure set if the directory cannot be read. */
bool eb_resident_dir_list(const struct eb_resident_dir *dir,
    bool (*each)(void *context, const char *name), void *context, struct eb_failure *failure);
/* Returns the bytes that the file system can still take: what is left of the size that it was
 * mounted with and, for a hugetlbfs, at most the free pages of the pool. A tmpfs that was mounted
 * without a limit can take all available memory. Returns 0 if the file system does not report this.
 */
uint64_t eb_resident_dir_free_bytes(const struct eb_resident_dir *dir);

/* Writes the whole content of a small file, such as `served` or a marker, and replaces the former
 * one atomically. On hugetlbfs, the bytes up to the next multiple of 2 MiB are zeros. Returns false
 * with *failure set if that fails. */
bool eb_resident_dir_write(struct eb_resident_dir *dir, const char *name, const void *bytes,
    size_t size, struct eb_failure *failure);
/* Reads a small file of at most bytes_max bytes into memory that the caller frees; one byte after
 * the content is free for a NUL. Returns NULL with *failure empty if there is no such file, and
 * with *failure set if that fails. */
void *eb_resident_dir_read(const struct eb_resident_dir *dir, const char *name, size_t bytes_max,
    size_t *size, struct eb_failure *failure);

/* ---- time of adoption ---- */

/* Must be called before and after a thread checks and maps existing files. */
void eb_resident_dir_begin_adopting(struct eb_resident_dir *dir);
void eb_resident_dir_end_adopting(struct eb_resident_dir *dir);
/* Returns the time during which at least one thread has adopted files. */
uint64_t eb_resident_dir_adopting_ns(struct eb_resident_dir *dir);

/* ---- files in use ---- */

/* Notes that this process has mapped the file. May be called several times for a file. Returns
 * false if out of memory. */
bool eb_resident_dir_note_use(struct eb_resident_dir *dir, const char *name);
/* Ends one use of the file. At the last one, deletes the file, unless the process does not own the
 * directory or is ending, or files must be kept. */
void eb_resident_dir_end_use(struct eb_resident_dir *dir, const char *name);
/* Deletes every .t and .s that this process has not mapped and for which `may_need`, which may be
 * NULL, returns false. may_need must not call this module, except for eb_resident_dir_parse. Only
 * for the owner. Returns the bytes of the deleted files. */
uint64_t eb_resident_dir_sweep(
    struct eb_resident_dir *dir, bool (*may_need)(void *context, const char *name), void *context);
/* Adds up the bytes of all .t and .s: in *mapped_bytes those of files that this process has mapped,
 * in *unused_bytes those of the others. */
void eb_resident_dir_measure(
    struct eb_resident_dir *dir, uint64_t *mapped_bytes, uint64_t *unused_bytes);
