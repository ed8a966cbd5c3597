/* Writes a packed table (packed_format.h). The file has no name until it is complete and on the
 * disk. If the process ends before that, the file disappears. If the file system does not
 * support files without a name, the file has a name that begins with a dot until then, which
 * servers ignore.
 * Thread: one at a time. Memory: the head, one block and the names are on the heap; the file stays
 * open until close. */
#pragma once

#include "server/formats/packed_format.h"

struct eb_packed_writer {
    struct eb_packed_format format;
    char *path;
    char *directory;   /* directory of the file */
    char *hidden_path; /* DIRECTORY/.NAME.XXXXXX */
    bool is_hidden; /* the file is at hidden_path; otherwise it has no name yet, or its final one */
    bool is_open;
    bool is_ended;
    int descriptor; /* valid if is_open */
    uint8_t *head;
    uint8_t *block;        /* the last block, not full yet */
    uint64_t offset_bytes; /* offset in the file of the next byte */
};

/* Begins a file with the final name `path`, for a format that eb_packed_format_lay_out has
 * completed. Reserves its space on the disk. Returns false if the file exists already, if there is
 * no space, or if something else fails: *failure has the path and the reason, and no file is
 * left. */
bool eb_packed_writer_open(struct eb_packed_writer *writer, const char *path,
    const struct eb_packed_format *format, struct eb_failure *failure);
/* Removes the file if it was not published. Accepts a writer that is zeroed or already closed. */
void eb_packed_writer_close(struct eb_packed_writer *writer);

/* Begins a section that is not empty. All sections before it must be complete. */
bool eb_packed_writer_begin(
    struct eb_packed_writer *writer, enum eb_packed_kind kind, struct eb_failure *failure);
/* Appends to the section, in portions of any size. */
bool eb_packed_writer_append(
    struct eb_packed_writer *writer, const void *bytes, uint64_t count, struct eb_failure *failure);
/* Ends the file. All sections must be complete. The file is then whole and on the disk, but has no
 * name yet; format.digest is set. */
bool eb_packed_writer_end(struct eb_packed_writer *writer, struct eb_failure *failure);
/* Writes the packing into a file that eb_packed_writer_end has completed. This changes
 * format.digest. */
bool eb_packed_writer_mark(
    struct eb_packed_writer *writer, uint64_t packing, struct eb_failure *failure);
/* Gives the final name to a file that eb_packed_writer_end has completed. */
bool eb_packed_writer_publish(struct eb_packed_writer *writer, struct eb_failure *failure);
