/* Memory for the tables of one model version, with the page size and on the memory nodes that the
 * options request. In small pages and in pages of 2 MiB, a table of 2 MiB or more has a mapping of
 * its own, and smaller tables share a mapping as large as all of them together. In pages of 1 GiB,
 * which come from the system's pool, all tables lie one after the other; if the pool has too few,
 * the tables go to pages of 2 MiB.
 *
 * Several versions with the same tables may hold a mapping. It is unmapped when the last version
 * gives it up.
 *
 * When memory is first written, the kernel decides whether the memory gets pages of 2 MiB.
 * page_report.h counts the pages that it got.
 * Thread: one at a time until sealed; then read-only, and may be shared and given up on any.
 * Memory: mmap; the last holder calls munmap. */
#pragma once

#include "server/tables/table_mapping.h"

#include <stddef.h>

#define EB_TABLE_MEMORY_ALIGNMENT 64 /* alignment of a table that shares a mapping */
struct eb_table_hold;

/* A zeroed struct requests pages of 2 MiB, spread over all nodes. */
struct eb_table_memory_options {
    enum eb_page_size pages;
    enum eb_numa numa;
};

/* The memory that tables will take; zeroed if there are no tables. */
struct eb_table_need {
    uint64_t whole_bytes;  /* bytes of tables that have mappings of their own */
    uint64_t common_bytes; /* bytes of tables that share a mapping */
};

/* The memory of one version. It is ready for use once it is zeroed and its options are set. */
struct eb_table_memory {
    struct eb_table_memory_options options;
    struct eb_table_hold *holds;     /* linked list of the mappings that it holds */
    struct eb_table_mapping *common; /* mapping from which small tables are taken; may be NULL */
    uint64_t common_bytes; /* size of the next such mapping, as reserved; 0 if none is reserved */
    uint64_t mapped_bytes;
    uint64_t shared_bytes; /* part of mapped_bytes: bytes of mappings made by another memory */
    bool is_pool_short;    /* the pool had too few pages of 1 GiB */
    int numa_error; /* negative errno of the last mapping that could not be placed on nodes */
};

/* Returns `bytes` zeroed, writable bytes. They are aligned to 64 bytes or, if they are 2 MiB or
 * more and not in pages of 1 GiB, to 2 MiB. Pages of 1 GiB are present already; other pages become
 * present when they are first written. Returns NULL if out of memory; *failure says how many bytes
 * were requested. */
void *eb_table_memory_take(
    struct eb_table_memory *memory, uint64_t bytes, struct eb_failure *failure);
/* Reserves room for the tables that `need` counts, which are taken next, in any order. They take as
 * many bytes as eb_table_memory_need_bytes returns. If the options request pages of 1 GiB, takes
 * all pages that these tables need or none, so that no part of a page is lost between tables.
 * Returns whether it has taken them; if so, the tables need no further memory. */
bool eb_table_memory_reserve(struct eb_table_memory *memory, const struct eb_table_need *need);
/* Makes all tables read-only. Called once, when a version is complete. Huge pages stay huge.
 * Returns false with *failure set if that fails. */
bool eb_table_memory_seal(struct eb_table_memory *memory, struct eb_failure *failure);
/* Returns the mapping that holds `taken`, a result of eb_table_memory_take. The memory must be
 * sealed. Returns NULL if `taken` is in pages of 1 GiB, which are not shared. */
struct eb_table_mapping *eb_table_memory_find(
    const struct eb_table_memory *memory, const void *taken);
/* Holds a mapping of another memory, which must stay during the call. Returns false with *failure
 * set if out of memory. */
bool eb_table_memory_share(
    struct eb_table_memory *memory, struct eb_table_mapping *mapping, struct eb_failure *failure);
/* Adds a mapping and takes over the caller's hold on it, even if that fails. The caller hands out
 * the mapping's bytes. Returns false with *failure set if out of memory. */
bool eb_table_memory_keep(
    struct eb_table_memory *memory, struct eb_table_mapping *mapping, struct eb_failure *failure);
/* Returns whether it holds a mapping with a table that differs from its source. */
bool eb_table_memory_is_outdated(const struct eb_table_memory *memory);
/* Returns whether it holds a file that was there already and whose tables have not been compared
 * with their source. */
bool eb_table_memory_has_uncompared(const struct eb_table_memory *memory);
/* Returns the bytes of the mappings that another memory also holds at present. */
uint64_t eb_table_memory_joint_bytes(const struct eb_table_memory *memory);
/* Calls `visit` for each mapping that it holds, until `visit` returns false. */
void eb_table_memory_visit(const struct eb_table_memory *memory,
    bool (*visit)(void *context, struct eb_table_mapping *mapping), void *context);
/* Unmaps all mappings that no other memory holds. Accepts a zeroed struct. */
void eb_table_memory_deinit(struct eb_table_memory *memory);

/* Returns how much memory a table of `bytes` bytes occupies: whole pages of 2 MiB or, if it is
 * smaller than one, its part of the mapping that small tables share. Returns UINT64_MAX if that is
 * more than an address space can hold. */
uint64_t eb_table_memory_footprint(uint64_t bytes);
/* Returns the bytes of a table's rows and of the index after them; index_bytes is 0 if there is no
 * index. Rows and index are taken as one piece of memory, and shared only together. Returns at most
 * UINT64_MAX. */
uint64_t eb_table_memory_join(uint64_t rows_bytes, uint64_t index_bytes);
/* Adds a table of `bytes` bytes to the need. */
void eb_table_memory_need_add(struct eb_table_need *need, uint64_t bytes);
/* Returns the bytes that the tables take together, in whole pages of 2 MiB, but at most UINT64_MAX.
 * In pages of 1 GiB they also take the unused rest of the last page. */
uint64_t eb_table_memory_need_bytes(const struct eb_table_need *need);
