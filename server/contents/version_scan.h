/* Lists the contents of a version directory, as the headers of its files describe them. The
 * contents are pieces. Each piece is a whole table, some of a table's rows, or keys of its rows.
 * Thread: one at a time. Memory: the lists are on the heap. */
#pragma once

#include "server/formats/packed_format.h"
#include "server/formats/table_file.h"
#include "server/formats/tensor.h"

struct eb_model_config;

/* Bytes of memory that must be available for each byte of a safetensors header, or of a list of
 * tensors, before it is read. Reading it takes up to 2, or 4 for a list;
 * the pieces made from the shortest
 * descriptions of tensors took 5, and 9 if no tensor can be a table. */
#define EB_VERSION_SCAN_JSON_MEMORY UINT64_C(20)

struct eb_scanned_file {
    char *path;
    struct eb_table_file stamp; /* the closed file, as it was when its header was read */
    bool has_digest;            /* the manifest lists it, and it is not newer than the manifest */
    uint64_t digest;            /* as in the manifest; 0 if has_digest is false */
};

/* Consecutive rows or keys in one file. */
struct eb_piece {
    char *name; /* name of the table in the file */
    bool is_keys;
    uint32_t number;
    uint32_t count; /* number of pieces; 0 if the table is not split */
    size_t file;    /* index in eb_version_scan.files */
    struct eb_tensor tensor;
    struct eb_packed_format *packed; /* header of a packed file; NULL for other formats */
    char *unfit;                     /* reason why it cannot be a table; NULL if it can */
    bool is_left_out;                /* private: left out by model.yaml's patterns */
};

/* Number of items of a kind that a note names; the rest are only counted. */
#define EB_LOAD_NOTES_NAMED_MAX 3

struct eb_load_note {
    size_t count;
    struct eb_failure first; /* the first item with its reason; empty if there is none */
    struct eb_failure named; /* the first items, each with its reason; empty if there are none */
};

/* For the log: files, tensors and fields that were passed over, and patterns of model.yaml that
 * match nothing. */
struct eb_load_notes {
    struct eb_load_note tensors;  /* tensors of safetensors files that cannot be tables */
    struct eb_load_note files;    /* files of formats that must be converted first */
    struct eb_load_note patterns; /* patterns of only and exclude that match no table */
    struct eb_load_note fields;   /* safetensors files with fields that were passed over */
    struct eb_load_note stale;    /* files that are newer than the manifest that lists them */
};

struct eb_version_scan {
    size_t file_count;
    struct eb_scanned_file *files;
    size_t piece_count;
    struct eb_piece *pieces; /* sorted by name, then rows before keys, then by number */
    size_t unfit_count;    /* further pieces that cannot be tables, after these in the same order */
    size_t left_out_count; /* number of tables that model.yaml's patterns leave out */
    struct eb_load_notes notes;
};

/* Reads the files in `directory` that `config`, which may be NULL, does not leave out. npy and
 * packed files that are left out are not opened. If `is_in_parts`, the directory has only some
 * tables of a version in parts: a manifest in it is passed over, and patterns that match no table
 * are not noted. Returns false with *scan empty. *failure names the
 * file and the error: a broken header, a list of tensors that the files do not match, a piece of a
 * split safetensors file that no such list names, a manifest that is not valid or that the files do
 * not match (version_manifest.h), or too little memory. */
bool eb_version_scan_read(const char *directory, const struct eb_model_config *config,
    bool is_in_parts, struct eb_version_scan *scan, struct eb_failure *failure);
/* Returns the tensor called `name` that cannot be a table, or NULL if there is none. */
const struct eb_piece *eb_version_scan_find_unfit(
    const struct eb_version_scan *scan, const char *name);
/* Accepts a zeroed scan. */
void eb_version_scan_deinit(struct eb_version_scan *scan);
