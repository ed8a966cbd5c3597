/* A version directory of a model repository that is being written: its tables go into a directory
 * whose name begins with a dot, which servers ignore, and which is renamed into place when it is
 * complete.
 * Thread: one at a time. Memory: none of its own. What goes wrong is said on stderr. */
#pragma once

#include "server/formats/tensor.h"

#include <stdbool.h>

#define EB_VERSION_WRITER_PATH_BYTES 4096

struct eb_version_writer {
    char final_path[EB_VERSION_WRITER_PATH_BYTES]; /* DIR/MODEL/VERSION */
    char path[EB_VERSION_WRITER_PATH_BYTES];       /* DIR/MODEL/.VERSION.XXXXXX */
    bool opened;
    int file; /* of the table being written; -1: none */
};

/* What is to be written, so that lack of space shows before the first byte. */
struct eb_version_plan {
    const char *directory; /* made where it is not there */
    const char *model;
    uint64_t version;
    uint64_t bytes;
};

/* false: said on stderr: the version is there already, the file system has too little space, or a
 * directory cannot be made. */
bool eb_version_writer_open(struct eb_version_writer *writer, const struct eb_version_plan *plan);
/* Removes what has not been finished. Accepts a writer that did not open. */
void eb_version_writer_close(struct eb_version_writer *writer);

/* Begins TABLE.npy, after the table before it has ended: storage, rank and dims of the tensor are
 * its header. Then its data are appended, in any portions. false: said on stderr. */
bool eb_version_writer_begin_table(
    struct eb_version_writer *writer, const char *table, struct eb_tensor *tensor);
bool eb_version_writer_append(struct eb_version_writer *writer, const void *bytes, size_t count);
bool eb_version_writer_end_table(struct eb_version_writer *writer);

/* Puts the version into place. false: said on stderr. */
bool eb_version_writer_finish(struct eb_version_writer *writer);
