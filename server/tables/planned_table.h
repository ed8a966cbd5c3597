/* A table as the files of a version describe it, before any of its rows is read, and the plan that
 * holds all tables of a version. table_plan.h fills them in.
 * Thread: one at a time. Memory: the plan's. */
#pragma once

#include "kernels/fused_row.h"
#include "kernels/table.h"
#include "server/contents/model_config.h"
#include "server/contents/version_scan.h"
#include "server/tables/table_set.h"

struct eb_resident_file;

/* Pieces of the scan that follow one another: a table's rows, or its keys. */
struct eb_piece_range {
    const struct eb_piece *pieces;
    size_t count;
};

struct eb_planned_table {
    char *name;
    const struct eb_model_config_table *config; /* NULL if model.yaml does not mention it */
    /* The whole table: its shape, and how its files store it. data_bytes is the sum over all
     * pieces. */
    struct eb_tensor tensor;
    bool is_fused;                /* the files have FBGEMM's rows of codes, in the format `fused` */
    struct eb_fused_format fused; /* if has_scales, only its storage and elements describe the rows;
                                     its layout gives the type of the scales */
    bool has_scales;              /* rows in the files hold only codes; `scales` has their scales */
    struct eb_piece_range scales;
    struct eb_piece_range biases; /* its count is 0 if all biases are 0 */
    uint64_t scale_bytes;         /* bytes of scales and biases in the files */
    uint64_t file_row_bytes; /* bytes of a row in the files; a packed file has rows as they lie in
                                memory */
    /* The next members describe the table in memory. */
    enum eb_type type;
    enum eb_storage storage;
    uint64_t row_bytes; /* bytes of a row, with its scale and bias */
    uint64_t row_offset_bytes;
    uint64_t row_stride_bytes;
    uint64_t rows_bytes; /* bytes of all rows; UINT64_MAX if they are more than 64 bits can count */
    int64_t unknown_row; /* row for unknown ids, or EB_ROW_VECTOR; -1 if there is none */
    uint32_t part;       /* as in struct eb_named_table */
    enum eb_placement placement; /* as in struct eb_named_table */
    bool is_remote;              /* its rows are on other servers: it has no pieces */
    struct eb_remote_rows remote;
    uint64_t remote_digest; /* as `digest` in struct eb_named_table, if is_remote */
    void *vector;           /* default vector, on the heap; NULL if there is none */
    struct eb_piece_range rows;
    struct eb_piece_range keys; /* its count is 0 if there are no files of keys */
    bool is_keyed;              /* it has keys, in files of keys or in packed files */
    bool has_index;       /* a packed file has the index ready-made; otherwise it must be built */
    uint64_t index_bytes; /* bytes of keys and index together, after the rows; 0 if not keyed */
    /* Set by table_share.h. */
    uint64_t origin;
    uint64_t source_key;                   /* names its resident file */
    const struct eb_named_table *resident; /* the same table in memory; NULL if it must be loaded */
    const struct eb_table_set *resident_set;
    bool is_open; /* its files have to be read to know whether it is resident */
    /* Set by resident_tables.h. */
    struct eb_resident_file *file; /* its file; NULL if tables are not kept in files */
    size_t slot;                   /* its position among the tables of the file */
    uint64_t file_offset;          /* of its rows in the file */
    bool is_adopted;               /* the file existed already, so nothing is loaded */
    bool has_pages;                /* the file is new and has its pages: no more memory is needed */
};

struct eb_table_plan {
    struct eb_version_scan scan;
    uint64_t manifest; /* as in struct eb_table_set, like the next four members */
    struct eb_part_choice part;
    bool is_router;
    char *lineage;
    char *manifest_yaml;
    size_t table_count;              /* tables that are loaded */
    size_t remote_count;             /* remote tables */
    struct eb_planned_table *tables; /* [table_count] in the order of the files, and of the data in
                                        each file; then [remote_count] the remote tables */
    /* Sums over the tables that must be loaded, as far as is known. */
    uint64_t work_bytes;       /* bytes to be read, plus bytes of indexes to be built */
    struct eb_table_need need; /* memory for rows and indexes */
    struct eb_table_need most; /* need if all tables with is_open must be loaded too */
    uint64_t key_bytes;        /* memory that building the largest index takes in addition */
};
