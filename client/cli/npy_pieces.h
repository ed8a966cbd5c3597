/* A table, or its keys, in several npy files: NAME-00000-of-00016.npy and on, whose rows follow one
 * another.
 * Thread: one at a time. Memory: what describes the pieces is on the heap; one file is open at a
 * time. */
#pragma once

#include "server/formats/table_file.h"
#include "server/formats/tensor.h"

struct eb_npy_piece {
    struct eb_table_file look; /* closed; what the file was when its header was read */
    struct eb_tensor tensor;
};

struct eb_npy_pieces {
    char *path;    /* of the piece at hand: its number is written over */
    size_t number; /* where in the path */
    uint32_t given;
    uint32_t count;
    uint32_t at; /* the piece at hand */
    bool is_open;
    struct eb_table_file file;   /* of it */
    struct eb_npy_piece *pieces; /* [count] */
};

/* Reads the header of an open npy file. false: *error, without the path. */
bool eb_npy_pieces_read_header(
    const struct eb_table_file *file, struct eb_tensor *tensor, struct eb_failure *failure);

/* Whether a file is called like a piece of several. */
bool eb_npy_pieces_is_one(const char *path);
/* Reads the headers of all pieces, of which `path` names any; *whole is the tensor that they are
 * together, with a data_offset of 0. false: *error, without that path but with that of another
 * piece that it is about: one is missing, or they do not fit together; nothing is open then. */
bool eb_npy_pieces_open(struct eb_npy_pieces *pieces, const char *path, struct eb_tensor *whole,
    struct eb_failure *failure);
/* Accepts zeroed pieces. */
void eb_npy_pieces_close(struct eb_npy_pieces *pieces);

/* Reads some bytes of the rows of all pieces, which are there. false: as above. */
bool eb_npy_pieces_read(struct eb_npy_pieces *pieces, uint64_t offset, void *out, uint64_t bytes,
    struct eb_failure *failure);
