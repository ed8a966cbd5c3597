/* A file of tables that the tool reads: TABLE.npy, NAME.safetensors or TABLE.embag, by its suffix.
 * Thread: one at a time. Memory: the list is on the heap. */
#pragma once

#include "kernels/fused_row.h"
#include "server/contents/model_config.h"
#include "server/formats/packed_reader.h"
#include "server/formats/table_file.h"
#include "server/formats/tensor.h"

#include <stddef.h>

/* Rows as they lie in the file: row r begins at tensor.data_offset + r * row_stride_bytes, with its
 * scale and bias where it has them, and its values row_offset_bytes further on. Fused rows have
 * scale, bias and codes as `fused` says, and become such rows by eb_fused_row_split; storage and
 * dims are those of their values. */
struct eb_source_table {
    char *name;
    struct eb_tensor tensor;
    enum eb_type type;
    uint64_t row_stride_bytes;
    uint64_t row_offset_bytes;
    bool is_fused;
    struct eb_fused_format fused;
    char *unfit; /* why this tensor cannot be a table; NULL: it can */
};

/* Some bytes of a table's rows. */
struct eb_source_range {
    uint64_t from;
    uint64_t bytes;
};

/* One of several npy files of a table, or of its keys. */
struct eb_npy_piece {
    struct eb_table_file look; /* closed; what the file was when its header was read */
    struct eb_tensor tensor;
};

/* NAME-00000-of-00016.npy and on, whose rows follow one another. One file is open at a time. */
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

struct eb_source_file {
    const char *path; /* borrowed */
    struct eb_table_file file;
    bool is_open;
    bool is_split; /* the table lies in several files: */
    struct eb_npy_pieces parts;
    bool is_packed;
    struct eb_packed_reader reader; /* of a packed file, which has one table */
    size_t table_count;
    struct eb_source_table *tables;
};

/* Whether a file of this name can be opened here. */
bool eb_source_file_is_known(const char *path);

/* Reads and checks what describes the tables, not their rows. false: *error, without the path;
 * nothing is open then. */
bool eb_source_file_open(
    struct eb_source_file *source, const char *path, struct eb_failure *failure);
/* The same of all files of a table or of keys where `path` names one part of several; a packed
 * piece stays a piece. */
bool eb_source_file_open_whole(
    struct eb_source_file *source, const char *path, struct eb_failure *failure);
/* Interprets the rows of a table as fused rows of `dim` values; 0: of as many as the codes fill.
 * The file must not be a packed one. Returns false if they cannot be fused rows; *error says why,
 * without the path. */
bool eb_source_table_fuse(struct eb_source_table *table, enum eb_model_format format, uint32_t dim,
    struct eb_failure *failure);
/* Accepts a zeroed source. */
void eb_source_file_close(struct eb_source_file *source);

/* Reads some bytes of a table's rows; those of a packed file are compared with their checksums. */
bool eb_source_file_read(struct eb_source_file *source, const struct eb_source_table *table,
    struct eb_source_range range, void *out, struct eb_failure *failure);
