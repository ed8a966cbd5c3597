/* Reads a file of tables: TABLE.npy, NAME.safetensors or TABLE.embag, by its suffix, or raw values.
 * Thread: one at a time. Memory: the list of tables is on the heap. */
#pragma once

#include "kernels/fused_row.h"
#include "server/contents/model_config.h"
#include "server/formats/packed_reader.h"
#include "server/formats/table_file.h"
#include "server/formats/tensor.h"

#include <stddef.h>

/* The rows of a table as they are laid out in the file. Row r begins at tensor.data_offset + r *
 * row_stride_bytes, with its scale and bias if it has them. Its values begin row_offset_bytes after
 * the row's beginning. In fused rows, `fused` says where scale, bias and codes are;
 * eb_fused_row_split turns a fused row into the layout above. For fused rows, tensor.storage and
 * tensor.dims describe the values. */
struct eb_source_table {
    char *name;
    struct eb_tensor tensor;
    enum eb_type type;
    uint64_t row_stride_bytes;
    uint64_t row_offset_bytes;
    bool is_fused;
    bool has_scales; /* rows hold only codes: scales and biases are in other tensors */
    struct eb_fused_format
        fused;   /* if has_scales, only its storage and elements describe the rows */
    char *unfit; /* why this tensor cannot be a table; NULL if it can */
};

/* A range of bytes of a table's rows. */
struct eb_source_range {
    uint64_t from;
    uint64_t bytes;
};

/* One of several npy files that hold one table or its keys. */
struct eb_npy_piece {
    struct eb_table_file stamp; /* the file, closed again, as it was when its header was read */
    struct eb_tensor tensor;
};

/* The files NAME-00000-of-00016.npy and so on, of consecutive rows. At most one is open. */
struct eb_npy_pieces {
    char *path;    /* path of the current piece; the number in it is overwritten */
    size_t number; /* position of the number in the path */
    uint32_t given;
    uint32_t count;
    uint32_t at; /* number of the current piece */
    bool is_open;
    struct eb_table_file file;   /* the current piece, if is_open */
    struct eb_npy_piece *pieces; /* [count] */
};

struct eb_source_file {
    const char *path; /* borrowed */
    struct eb_table_file file;
    bool is_open;
    bool is_split; /* the table lies in several files, `parts` */
    struct eb_npy_pieces parts;
    bool is_packed;
    struct eb_packed_reader reader; /* reader of a packed file, which has one table */
    size_t table_count;
    struct eb_source_table *tables;
};

/* Returns whether eb_source_file_open knows the file's suffix. */
bool eb_source_file_is_known(const char *path);

/* Reads and checks everything that describes the tables, but not their rows. Returns false with
 * *failure set, without the path; then nothing is open. */
bool eb_source_file_open(
    struct eb_source_file *source, const char *path, struct eb_failure *failure);
/* Opens all files of a table or of keys if `path` names one npy piece of several. Otherwise does
 * the same as eb_source_file_open. Of several packed files, only the named one is opened. */
bool eb_source_file_open_whole(
    struct eb_source_file *source, const char *path, struct eb_failure *failure);
/* Opens a file of little-endian values without a header: rows of `dim` values each or, if `dim` is
 * 0, one dimension. `storage` must be a type of values, not of codes. Returns false with *failure
 * set, without the path; then nothing is open. */
bool eb_source_file_open_raw(struct eb_source_file *source, const char *path,
    enum eb_storage storage, uint32_t dim, struct eb_failure *failure);
/* Interprets the rows of a table as rows of `dim` values in a format of fused rows or of codes
 * alone. If `dim` is 0, each row has as many values as its bytes can hold codes. The file must not
 * be a packed one. Returns false if the rows cannot have the format; *failure says why, without the
 * path. */
bool eb_source_table_fuse(struct eb_source_table *table, enum eb_model_format format, uint32_t dim,
    struct eb_failure *failure);
/* Accepts a zeroed source. */
void eb_source_file_close(struct eb_source_file *source);

/* Reads a range of a table's rows. Those of a packed file are compared with their checksums.
 * Returns false with *failure set. */
bool eb_source_file_read(struct eb_source_file *source, const struct eb_source_table *table,
    struct eb_source_range range, void *out, struct eb_failure *failure);
