/* The resident files (resident_dir.h) of one version's tables: maps those that are there already,
 * makes files for the other tables, and completes each file once its tables are filled.
 *
 * A file is adopted if all of it is as the plan would make it: source keys, types, shapes, offsets
 * and sizes. Before that, a sample of the rows, or all of them, is compared with the hashes in the
 * footer. If a file does not match, it is deleted and its tables are loaded. If a file cannot be
 * made, its tables get anonymous memory; a log line says why.
 * Thread: one at a time, except that several threads may call commit for different files.
 * Memory: the lists are on the heap. */
#pragma once

#include "server/tables/planned_table.h"
#include "server/tables/table_memory.h"

#include <stdatomic.h>

/* Number of chunks, over all files, that are compared with their hashes before files are adopted.
 * At least one of each table is compared. 256 chunks of 512 KiB take some 20 ms. */
#define EB_RESIDENT_TABLES_SAMPLE 256u

/* The tables of one file: a table of 2 MiB or more, or all smaller ones. */
struct eb_resident_file {
    enum eb_resident_kind kind;
    char name[EB_RESIDENT_NAME_BYTES];
    size_t table_count;
    struct eb_planned_table **tables;
    struct eb_table_mapping *mapping; /* held by the memory; NULL if the tables are not in a file */
    struct eb_resident_footer footer; /* of an adopted file; else empty */
    bool is_adopted;
    atomic_uint_fast64_t huge_bytes; /* of a new file: bytes in pages of 2 MiB */
};

struct eb_resident_tables {
    struct eb_resident_options options;
    const struct eb_table_plan *plan;
    const char *directory; /* of the version */
    size_t file_count;
    struct eb_resident_file *files;
    struct eb_planned_table **tables; /* of all files */
    uint64_t sample_step; /* one of every sample_step chunks is checked before a file is adopted */
};

/* Lists the files of those of the plan's tables that no other version in memory has. Nothing is
 * opened. The plan and `directory` must outlive the lists. Returns false with *failure set if out
 * of memory. */
bool eb_resident_tables_init(struct eb_resident_tables *tables, struct eb_table_plan *plan,
    const struct eb_resident_options *options, const char *directory, struct eb_failure *failure);
/* Accepts a zeroed struct. */
void eb_resident_tables_deinit(struct eb_resident_tables *tables);

/* Maps the files that exist, adds them to `memory`, and marks their tables as adopted. Logs the
 * files that are rejected. Returns the bytes of the adopted tables. */
uint64_t eb_resident_tables_adopt(
    struct eb_resident_tables *tables, struct eb_table_memory *memory);
/* Returns whether files are made in a hugetlbfs. Their pages come from a pool of the system, which
 * counts neither as available memory nor towards a limit on memory, so whether there is room shows
 * only when a file is made. */
bool eb_resident_tables_has_pool(const struct eb_resident_tables *tables);
/* If the process owns the directory, makes files for the other tables, adds them to `memory`, and
 * makes their pages present with thread_count threads. Logs the files that cannot be made. */
void eb_resident_tables_create(
    struct eb_resident_tables *tables, struct eb_table_memory *memory, unsigned thread_count);

/* Returns the address of a table's rows in its file, or NULL if it is not in one. */
uint8_t *eb_resident_tables_rows(const struct eb_planned_table *planned);
/* Returns the table's description in the footer of the adopted file. */
const struct eb_resident_table *eb_resident_tables_find(const struct eb_planned_table *planned);

/* Completes a file whose tables are all filled. named[i] is file->tables[i] as it is in the set.
 * Returns false with *failure set if the memory of the file can no longer be used, so that the load
 * must fail. Otherwise returns true. If the file cannot be completed, that is only logged. */
bool eb_resident_tables_commit(struct eb_resident_tables *tables, struct eb_resident_file *file,
    const struct eb_named_table *const *named, struct eb_failure *failure);
