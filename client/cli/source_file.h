/* A file of tables that the tool reads: TABLE.npy, NAME.safetensors or TABLE.embag, by its suffix.
 * Thread: one at a time. Memory: the list is on the heap. */
#pragma once

#include "server/models/packed_reader.h"

#include <stddef.h>

/* Rows as they lie in the file: row r begins at tensor.data_offset + r * row_stride_bytes, with its
 * scale and bias where it has them, and its values row_offset_bytes further on. */
struct eb_source_table {
    char *name;
    struct eb_tensor tensor;
    enum eb_type type;
    uint64_t row_stride_bytes;
    uint64_t row_offset_bytes;
};

/* Some bytes of a table's rows. */
struct eb_source_range {
    uint64_t from;
    uint64_t bytes;
};

struct eb_source_file {
    const char *path; /* borrowed */
    struct eb_table_file file;
    bool is_open;
    bool is_packed;
    struct eb_packed_reader reader; /* of a packed file, which has one table */
    size_t table_count;
    struct eb_source_table *tables;
};

/* Whether a file of this name can be opened here. */
bool eb_source_file_is_known(const char *path);

/* Reads and checks what describes the tables, not their rows. false: *fault, without the path;
 * nothing is open then. */
bool eb_source_file_open(
    struct eb_source_file *source, const char *path, struct eb_file_fault *fault);
/* Accepts a zeroed source. */
void eb_source_file_close(struct eb_source_file *source);

/* Reads some bytes of a table's rows; those of a packed file are compared with their checksums. */
bool eb_source_file_read(struct eb_source_file *source, const struct eb_source_table *table,
    struct eb_source_range range, void *out, struct eb_file_fault *fault);
