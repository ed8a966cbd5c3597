/* One mapping of memory for tables, with its pages: anonymous memory in small pages or pages of 2
 * MiB, pages of 1 GiB from the system's pool, or a resident file (resident_dir.h), which outlives
 * the process. Several versions may hold a mapping; it is unmapped when the last of them gives it
 * up.
 * Thread: one at a time until it is sealed. Then it is read-only, and any thread may take and give
 * it. Memory: mmap, and a struct on the heap; the last holder frees both. */
#pragma once

#include "server/base/failure.h"
#include "server/base/page_size.h"
#include "server/tables/numa_policy.h"
#include "server/tables/resident_dir.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Most bytes that are sealed or given back at once, except in pages of 1 GiB. During that time no
 * other thread of the process can get memory from the system or give it back. On a busy machine,
 * giving back 3 GiB of small pages at once blocked them for 90 to 150 ms, and giving back slices of
 * 8 MiB for 0.2 to 4 ms each. */
#define EB_TABLE_MAPPING_SLICE_BYTES (UINT64_C(8) << 20)
/* Most bytes of a file that get their pages, or are mapped, by one system call. It takes 0.2 or
 * 0.5 ms. */
#define EB_TABLE_MAPPING_FILE_SLICE_BYTES (UINT64_C(64) << 20)
/* Least percentage of a new file that must be in pages of 2 MiB. Finding a row in small pages takes
 * four times as long as in the huge pages of anonymous memory. */
#define EB_TABLE_MAPPING_HUGE_PERCENT_MIN 95u

enum eb_table_backing {
    EB_TABLE_BACKING_ANONYMOUS,
    EB_TABLE_BACKING_POOL, /* pages of 1 GiB */
    EB_TABLE_BACKING_FILE, /* resident file */
};

struct eb_table_mapping {
    atomic_uint holders;
    enum eb_table_backing backing;
    bool is_sealed;    /* read-only */
    uint8_t *reserved; /* address range to unmap when the mapping is freed */
    uint64_t reserved_bytes;
    uint8_t *base;       /* aligned to 2 MiB, or to 1 GiB in the pool */
    uint64_t bytes;      /* whole pages */
    uint64_t used_bytes; /* bytes that tables have taken */
    int numa_error;      /* negative errno if its pages could not be placed on nodes; else 0 */
    /* For page_collapse.h: offset of the page that is tried next, the last pass that has come here,
     * and how many pages it has still to try here. */
    uint64_t collapse_next;
    uint64_t collapse_pass;
    uint64_t collapse_left;
    /* Of a file. */
    struct eb_resident_dir *dir;
    char name[EB_RESIDENT_NAME_BYTES]; /* tmp-N until it is complete */
    int descriptor;                    /* while it is being filled; else -1 */
    uint64_t shared_bytes;             /* bytes that eb_machine_add_shared has counted */
    bool is_adopted;                   /* the file was there before this process mapped it */
    bool is_compared; /* its tables have been, or are being, compared with the files that they were
                         made from; used only by the thread that starts comparisons */
    atomic_bool is_outdated; /* a table in it differs from those files: its tables are no longer
                                shared, and must be loaded again */
};

/* The outcome of making a file. */
enum eb_table_mapping_file {
    EB_TABLE_MAPPING_MADE,
    EB_TABLE_MAPPING_FULL,  /* the file system has too little room */
    EB_TABLE_MAPPING_FAILED /* another error */
};

/* Makes a mapping of `bytes` bytes, a multiple of 2 MiB, of anonymous memory, aligned to 2 MiB.
 * Pages become present when they are first written. EB_PAGE_1G is treated as EB_PAGE_2M. Returns
 * NULL with errno set if that fails. */
struct eb_table_mapping *eb_table_mapping_create(
    uint64_t bytes, enum eb_page_size pages, enum eb_numa numa);
/* Makes a mapping of `bytes` bytes, a multiple of 1 GiB, from the system's pool, with all pages
 * present. Returns NULL if that fails. */
struct eb_table_mapping *eb_table_mapping_create_pool(uint64_t bytes, enum eb_numa numa);

/* Makes a file tmp-N of `bytes` bytes, a multiple of 2 MiB, reserves room for all of them, and maps
 * the file for writing; its bytes are zeros. Sets *mapping if the outcome is MADE. Otherwise
 * *failure has the reason; if the outcome is FULL, it names the bytes that are needed and those
 * that are free. */
enum eb_table_mapping_file eb_table_mapping_create_file(struct eb_resident_dir *dir, uint64_t bytes,
    enum eb_numa numa, struct eb_table_mapping **mapping, struct eb_failure *failure);
/* Returns the number of slices of a file. */
uint64_t eb_table_mapping_slice_count(const struct eb_table_mapping *mapping);
/* Makes the pages of one slice of a new file present, and joins small ones into pages of 2 MiB.
 * Returns how many bytes of the slice are in such pages. Threads may work on different slices. */
uint64_t eb_table_mapping_populate(const struct eb_table_mapping *mapping, uint64_t slice);
/* Completes a file that has been filled: maps it read-only at the same address, which seals the
 * mapping, and gives the file its name. Returns false with *failure set if the file cannot be
 * mapped, for example because another file has the name tmp-N now; the mapping can then only be
 * given up. Otherwise returns true, even if the file cannot be given its name, for example because
 * this process no longer owns the directory: the mapping then stays usable as long as it is held,
 * its name is empty, and *failure says why. */
bool eb_table_mapping_commit(
    struct eb_table_mapping *mapping, const char *name, struct eb_failure *failure);
/* Maps a complete file read-only and makes its pages present. `descriptor` is a result of
 * eb_resident_dir_find for `name`; the caller still closes it. Returns NULL with *failure set if
 * that fails. */
struct eb_table_mapping *eb_table_mapping_open_file(struct eb_resident_dir *dir, const char *name,
    int descriptor, uint64_t bytes, struct eb_failure *failure);

/* Joins the small pages in the 2 MiB at `offset` into one page. Others may read them meanwhile.
 * Returns 0, also if it is one page already, or a negative errno: -ENOMEM or -EBUSY if no page of
 * 2 MiB is to be had, and -EINVAL if the kernel cannot join these pages. */
int eb_table_mapping_collapse(const struct eb_table_mapping *mapping, uint64_t offset);

/* Makes the mapping read-only. Huge pages stay huge. Returns 0 or a negative errno. Does nothing if
 * the mapping is sealed already. */
int eb_table_mapping_seal(struct eb_table_mapping *mapping);
/* Adds a holder; one must exist during the call. */
void eb_table_mapping_take(struct eb_table_mapping *mapping);
/* Gives up one hold. When the last one is given up, the memory is unmapped. If it is a file in a
 * directory that this process owns, the file is deleted too, unless the process is ending. Accepts
 * NULL. */
void eb_table_mapping_give(struct eb_table_mapping *mapping);
/* Returns whether the address lies in the mapping. */
bool eb_table_mapping_has(const struct eb_table_mapping *mapping, const void *address);
/* Returns whether the mapping has more than one holder. */
bool eb_table_mapping_is_joint(const struct eb_table_mapping *mapping);
