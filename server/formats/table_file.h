/* Opens and reads a regular file with table data, and finds out whether it has changed since it was
 * last opened. Notes for read_watch.h what it waits for.
 * Thread: one at a time. Memory: one descriptor while open; once a large range has been read, also
 * the descriptor and the buffer of direct_read.h. */
#pragma once

#include "server/base/failure.h"
#include "server/formats/direct_read.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct eb_table_file {
    const char *path; /* the caller's, until it closes the file */
    int descriptor;
    uint64_t bytes;
    dev_t device;
    ino_t inode;
    struct timespec changed;
    struct timespec born; /* birth time; if not known, the last change of any kind (ctime) */
    struct eb_direct_read direct; /* a copy of the struct, kept for comparison, must not use it */
};

/* Opens the file. Never blocks on a file that is not regular. `path` must stay valid until the file
 * is closed. Returns false with nothing open if that fails; *failure has the reason, without the
 * path. */
bool eb_table_file_open(const char *path, struct eb_table_file *file, struct eb_failure *failure);
void eb_table_file_close(struct eb_table_file *file);

/* Reads exactly `bytes` bytes from `offset`, large ranges past the page cache. Returns false if
 * that fails; *failure has the reason, without the path. */
bool eb_table_file_read(struct eb_table_file *file, uint64_t offset, void *out, uint64_t bytes,
    struct eb_failure *failure);

/* Returns whether both describe the same file with the same content. */
bool eb_table_file_is_same(const struct eb_table_file *a, const struct eb_table_file *b);
