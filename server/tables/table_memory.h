/* Memory for the tables of one model version, in the pages and on the memory nodes that are asked
 * for. In pages of 2 MiB or small ones a table of 2 MiB or more has a mapping of its own, smaller
 * ones share one, which is as large as they together. In pages of 1 GiB, which are taken from the
 * system's pool, all tables lie one behind the other; where the pool has too few they go to pages
 * of 2 MiB.
 *
 * A mapping may be held by several versions, whose tables are then the same: it goes with the last
 * of them.
 *
 * Huge pages of 2 MiB are what the kernel has at hand when memory is first written: page_report.h
 * tells what became of the wish.
 * Thread: one at a time until sealed; then read-only, and may be shared and given up on any.
 * Memory: mmap; munmap by the last who holds it. */
#pragma once

#include "server/base/failure.h"
#include "server/base/page_size.h"
#include "server/tables/numa_policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_TABLE_MEMORY_ALIGNMENT 64 /* of a table that shares a mapping */
/* Sealed and given back at a time, pages of 1 GiB apart: as long as that takes, no other thread of
 * the process gets memory from the system or gives it any. 3 GiB of small pages given back at once
 * held them up for 90 to 150 ms, and by 8 MiB for 0.2 to 4, on a busy machine. */
#define EB_TABLE_MEMORY_SLICE_BYTES (UINT64_C(8) << 20)

struct eb_table_mapping;
struct eb_table_hold;

/* Zeroed: pages of 2 MiB, spread over all nodes. */
struct eb_table_memory_options {
    enum eb_page_size pages;
    enum eb_numa numa;
};

/* What tables will take. Zeroed, it is of none. */
struct eb_table_need {
    uint64_t whole_bytes;  /* of tables that have mappings of their own */
    uint64_t common_bytes; /* of those that share one */
};

/* Zeroed but for its options, it is ready. */
struct eb_table_memory {
    struct eb_table_memory_options options;
    struct eb_table_hold *holds;     /* singly linked */
    struct eb_table_mapping *common; /* the one that tables are cut from; may be NULL */
    uint64_t common_bytes;           /* of the next one, as reserved; 0: nothing is */
    uint64_t mapped_bytes;
    uint64_t shared_bytes; /* of these, those that another had already */
    bool is_pool_short;    /* pages of 1 GiB were wanted and refused */
    int numa_error; /* of the last mapping that could not be placed on nodes: a negative errno */
};

/* `bytes` zeroed bytes, writable, aligned to 64 and, from 2 MiB on but for pages of 1 GiB, to 2
 * MiB. Pages of 1 GiB are there already, others come when they are first written. NULL: *failure
 * says how much was wanted. */
void *eb_table_memory_take(
    struct eb_table_memory *memory, uint64_t bytes, struct eb_failure *failure);
/* Makes a place for the tables that the need was counted of, which are taken next, in any order:
 * they take as much as eb_table_memory_need_bytes says. Where pages of 1 GiB are wanted, takes as
 * many as these tables need, all or none, so that no part of a page is lost between them. Whether
 * they are there: no further memory is needed then. */
bool eb_table_memory_reserve(struct eb_table_memory *memory, const struct eb_table_need *need);
/* Makes everything read-only: done once, when a version is complete. Huge pages stay huge. false:
 * *failure. */
bool eb_table_memory_seal(struct eb_table_memory *memory, struct eb_failure *failure);
/* The mapping in which `taken`, which a sealed memory gave out, lies. NULL: in the pool's pages,
 * which are not shared. */
struct eb_table_mapping *eb_table_memory_find(
    const struct eb_table_memory *memory, const void *taken);
/* Holds a mapping that another memory, which stays meanwhile, has. false: *failure, out of memory.
 */
bool eb_table_memory_share(
    struct eb_table_memory *memory, struct eb_table_mapping *mapping, struct eb_failure *failure);
/* Bytes of mappings that another memory holds too, at this moment. */
uint64_t eb_table_memory_joint_bytes(const struct eb_table_memory *memory);
/* Unmaps all that nobody else holds. Accepts a zeroed struct. */
void eb_table_memory_deinit(struct eb_table_memory *memory);

/* What `bytes` bytes occupy once taken: whole pages of 2 MiB, or a share of them. UINT64_MAX where
 * that is more than an address space can hold. */
uint64_t eb_table_memory_footprint(uint64_t bytes);
/* Of rows with an index (0: none) behind them, in one piece, which is shared as a whole. At most
 * UINT64_MAX. */
uint64_t eb_table_memory_join(uint64_t rows_bytes, uint64_t index_bytes);
/* Counts a table of `bytes` bytes. */
void eb_table_memory_need_add(struct eb_table_need *need, uint64_t bytes);
/* What the tables take together: whole pages of 2 MiB; at most UINT64_MAX. Pages of 1 GiB are more
 * by what the last of them has left. */
uint64_t eb_table_memory_need_bytes(const struct eb_table_need *need);
