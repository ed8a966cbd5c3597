/* Writes a packed table (packed_format.h) into a file without a name, which is gone when the
 * process ends before, and gives it its name when it is complete and on the disk. Where the file
 * system has no such files, its name begins with a dot until then, which servers ignore.
 * Thread: one at a time. Memory: the head, one block and the names are on the heap; the file stays
 * open until close. */
#pragma once

#include "server/formats/packed_format.h"

struct eb_packed_writer {
    struct eb_packed_format format;
    char *path;
    char *directory;   /* that it is in */
    char *hidden_path; /* DIRECTORY/.NAME.XXXXXX */
    bool is_hidden;    /* the file has that name; otherwise none */
    bool is_open;
    bool is_ended;
    int descriptor; /* of an open one */
    uint8_t *head;
    uint8_t *block;        /* the last one, not full yet */
    uint64_t offset_bytes; /* of the file, where the next byte goes */
};

/* Begins a file that will be called `path`, for a format that is laid out; takes the room that it
 * needs on the disk. false: *failure says what is wrong, with the path: it is there already, or
 * there is no room; nothing is left then. */
bool eb_packed_writer_open(struct eb_packed_writer *writer, const char *path,
    const struct eb_packed_format *format, struct eb_failure *failure);
/* Removes what was not published. Accepts a zeroed writer, and one that is closed. */
void eb_packed_writer_close(struct eb_packed_writer *writer);

/* Begins a section, which has bytes, when all before it are complete. */
bool eb_packed_writer_begin(
    struct eb_packed_writer *writer, enum eb_packed_kind kind, struct eb_failure *failure);
/* Appends to the section, in any portions. */
bool eb_packed_writer_append(
    struct eb_packed_writer *writer, const void *bytes, uint64_t count, struct eb_failure *failure);
/* Ends the file when all sections are complete: it is whole and on the disk, but has no name yet;
 * format.digest is known. */
bool eb_packed_writer_end(struct eb_packed_writer *writer, struct eb_failure *failure);
/* Says in a file that has ended which packing it is of; format.digest is then another. */
bool eb_packed_writer_mark(
    struct eb_packed_writer *writer, uint64_t packing, struct eb_failure *failure);
/* Gives a file that has ended its name. */
bool eb_packed_writer_publish(struct eb_packed_writer *writer, struct eb_failure *failure);
