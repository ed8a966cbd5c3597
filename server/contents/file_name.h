/* Finds out what a file in a version directory holds, from the name of the file:
 *
 *   TABLE.npy          TABLE-00003-of-00016.npy          rows of a table
 *   TABLE.keys.npy     TABLE-00003-of-00016.keys.npy     keys of its rows
 *   TABLE.embag        TABLE-00003-of-00016.embag        a packed table
 *   NAME.safetensors                                     tensors, each a table
 *   NAME.safetensors.index.json                          a list of tensors with their files
 *
 * Thread: pure. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum eb_file_kind {
    EB_FILE_OTHER, /* a file that is not loaded */
    EB_FILE_NPY,
    EB_FILE_KEYS,
    EB_FILE_PACKED,
    EB_FILE_SAFETENSORS,
    EB_FILE_SAFETENSORS_INDEX
};

struct eb_file_name {
    enum eb_file_kind kind;
    size_t base_bytes; /* length of TABLE or NAME */
    bool is_split;     /* the base is followed by -PIECE-of-PIECES, five digits each */
    uint32_t piece;    /* number of the piece, from 0 */
    uint32_t pieces;   /* number of pieces */
};

struct eb_file_name eb_file_name_parse(const char *name);

/* Returns how to convert a file of another common model format into tables. In the text, FILE is a
 * placeholder for its path. Returns NULL if the format is unknown. */
const char *eb_file_name_find_conversion(const char *name);
