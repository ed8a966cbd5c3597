/* A regular file that tables are read from, and proof that it has not changed between two looks.
 * Thread: one at a time. Memory: none; one descriptor while open. */
#pragma once

#include "server/base/failure.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct eb_table_file {
    int descriptor;
    uint64_t bytes;
    dev_t device;
    ino_t inode;
    struct timespec changed;
    struct timespec born; /* the file; where that is not known, its last change of any kind */
};

/* Never blocks on what is no regular file. false: *failure, without the path, and nothing is open.
 */
bool eb_table_file_open(const char *path, struct eb_table_file *file, struct eb_failure *failure);
void eb_table_file_close(struct eb_table_file *file);

/* Exactly `bytes` bytes from `offset`. false: *failure, without the path. */
bool eb_table_file_read(const struct eb_table_file *file, uint64_t offset, void *out,
    uint64_t bytes, struct eb_failure *failure);

/* Whether both looks saw the same file with the same content. */
bool eb_table_file_is_same(const struct eb_table_file *a, const struct eb_table_file *b);
