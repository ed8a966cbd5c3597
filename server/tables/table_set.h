/* The tables of one version in memory, and the options with which set_load.h loads them.
 * Thread: any one while it is filled; afterwards immutable. Memory: owns its tables. */
#pragma once

#include "kernels/bag.h"
#include "kernels/key_index.h"
#include "server/contents/version_scan.h"
#include "server/formats/parts_manifest.h"
#include "server/formats/tensor.h"
#include "server/tables/page_report.h"
#include "server/tables/table_memory.h"

#include <stdatomic.h>

struct eb_bag_ops;
struct eb_memory_claims;
struct eb_model_config;
struct eb_table_set;

/* How tables are kept in resident files. */
struct eb_resident_options {
    struct eb_resident_dir *dir; /* NULL if tables are not kept in resident files */
    enum eb_numa numa;
    bool is_checked_whole; /* all rows of a file are compared with their hashes before it is
                              adopted; otherwise some are */
    bool may_be_small;     /* files may be in small pages */
    const char *model;     /* model and version that is being loaded, for source keys */
    uint64_t version;
    const char *embag_version;
};

/* How tables are loaded: which of them are refused, and how the others are stored in memory. */
struct eb_table_options {
    uint64_t row_bytes_max;
    uint32_t name_bytes_max;
    uint32_t group_features_max; /* most features of a group; 0 means no limit */
    unsigned load_threads;       /* threads that load rows; 0 means one */
    struct eb_part_choice part;  /* the part of a version in parts that is loaded */
    bool is_router; /* versions in parts are loaded as a router needs them: tables placed everywhere
                       are loaded, all others become remote. part.parts is then 0 */
    const struct eb_bag_ops *ops; /* functions that convert rows; NULL: the fastest here */
    struct eb_table_memory_options memory;
    struct eb_resident_options resident;
    struct eb_memory_claims *claims; /* shared with the loads that run at the same time; NULL if
                                        there are none */
    const struct eb_model_config *config; /* configuration of the model; may be NULL */
    /* Sets in memory with which the loaded one shares equal tables. They must stay in memory during
     * the load. */
    const struct eb_table_set *const *residents;
    size_t resident_count;
};

/* Where the rows of a table are that lie on other servers. */
struct eb_remote_rows {
    enum eb_placement placement; /* WHOLE or ROWS */
    uint32_t part;               /* of WHOLE */
    struct eb_part_rule rule;    /* how rows or keys are divided; by_key tells whether the table is
                                    keyed, also for WHOLE */
    bool has_unknown_key;        /* the row for unknown ids has a key, which the manifest names */
    int64_t unknown_key;
};

/* A table. A remote table has no rows here: table.rows, table.scales, base, index, chunk_hashes and
 * resident_bytes are 0, and table.keys is &eb_key_index_remote if it is keyed. Its other members
 * describe the whole table as if it were in memory undivided. */
struct eb_named_table {
    char *name;
    uint32_t rank; /* rank of the whole table, at least 1 */
    uint64_t dims[EB_TENSOR_RANK_MAX];
    uint64_t resident_bytes;    /* bytes of rows, gaps between them, keys and their index */
    struct eb_page_count pages; /* pages that resident_bytes had when the table was published */
    /* 1 + the part whose rows these are; 0: the table is not divided. Each query reads it, so it is
     * next to what else a query reads. */
    uint32_t part;
    bool is_remote;
    struct eb_table table;
    struct eb_remote_rows remote; /* set if is_remote */
    enum eb_placement placement;  /* set if its version is in parts */
    const uint8_t *base;          /* beginning of its rows and the gaps between them */
    struct eb_key_index keys;     /* the index that table.keys points to if it is not NULL */
    const void *index; /* keys and index after the rows, index_bytes long; NULL if not keyed */
    uint64_t index_bytes;
    void *vector; /* the default vector that table.vector points to, on the heap; may be NULL */
    uint64_t *chunk_hashes; /* XXH3-64 of each chunk of its rows (row_load.h), on the heap */
    uint64_t digest;        /* digest of its content (table_digest.h); of a remote table, made of
                               the digests of its files (part_plan.h) */
    uint64_t origin;        /* key of the files that it was read from (source_key.h); 0 if it was
                               opened without them */
    uint64_t source_key;    /* the one in its resident file, if it is in one */
    bool is_in_file;        /* it is in a resident file */
    size_t file_slot;       /* its position in its resident file, if it is in one */
    /* Defaults for requests that do not set the same members. */
    enum eb_missing missing; /* UNSPECIFIED means ERROR */
    bool has_default;
    int64_t default_index; /* a row or -1; for a keyed table, a key */
};

struct eb_table_set {
    size_t count;
    struct eb_named_table *tables; /* sorted by name */
    uint64_t bytes;                /* bytes of memory that all tables take, in whole pages */
    uint64_t digest;               /* digest of the names and contents of all tables */
    uint64_t manifest; /* digest of the manifest of a version in parts; 0: it is in no parts */
    struct eb_part_choice part; /* the part that this is; its `parts` is 0 if it is in no parts */
    bool is_router; /* tables that are not here are remote; part.parts is set, part.part is 0 */
    char *lineage;  /* of its manifest; "" if there is none. Not NULL once it is loaded */
    char *manifest_yaml;    /* text of the manifest; NULL if it is in no parts */
    uint64_t adopted_bytes; /* bytes of resident files that were there already */
    struct eb_table_memory memory;
    struct eb_page_count pages;      /* pages of all tables when they were published */
    struct eb_page_count file_pages; /* those of tables in resident files */
    /* The members bytes_2m of `pages` and `file_pages` as they are now: pages may be joined later
     * (page_collapse.h). */
    atomic_uint_fast64_t bytes_2m;
    atomic_uint_fast64_t file_bytes_2m;
    enum eb_resident_fs file_fs; /* file system of these files; not set if there are none */
    int pages_error; /* 0, or a negative errno if huge pages could not be counted; all such counts
                        are then 0 */
    struct eb_load_notes notes; /* files and tensors in its directory that are not tables */
};

/* Accepts a zeroed set. */
void eb_table_set_deinit(struct eb_table_set *set);

/* Returns the pages of the table's rows, keys and index. */
struct eb_page_count eb_table_set_count_pages(
    const struct eb_named_table *table, const struct eb_page_report *report);

/* Returns the bytes that one copy of the table takes: its resident_bytes or, if it is remote, the
 * bytes of all its rows and the gaps between them on other servers, but at most UINT64_MAX. */
uint64_t eb_table_set_copy_bytes(const struct eb_named_table *table);
/* Returns the table of that name, or NULL if there is none. */
const struct eb_named_table *eb_table_set_find(const struct eb_table_set *set, const char *name);
