/* Memory for the tables of one model version: 2 MiB pages, tables under 2 MiB sharing a mapping.
 * Thread: one at a time until published; then read-only. Memory: mmap; munmap on deinit. */
#pragma once

#include "server/models/file_fault.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EB_TABLE_MEMORY_PAGE_BYTES (UINT64_C(2) << 20)
#define EB_TABLE_MEMORY_ALIGNMENT 64 /* of a table that shares a page */

struct eb_table_mapping;

struct eb_table_memory {
    struct eb_table_mapping *mappings; /* singly linked */
    struct eb_table_mapping *shared;   /* the one that small tables are cut from; may be NULL */
    uint64_t mapped_bytes;
};

/* `bytes` zeroed bytes aligned to at least 64 (2 MiB from that size on), advised to huge pages,
 * writable. NULL: *fault says how much was wanted. */
void *eb_table_memory_take(
    struct eb_table_memory *memory, uint64_t bytes, struct eb_file_fault *fault);
/* Makes everything read-only: done once, when a version is complete. false: *fault. */
bool eb_table_memory_seal(struct eb_table_memory *memory, struct eb_file_fault *fault);
/* Unmaps all. Accepts a zeroed struct. */
void eb_table_memory_deinit(struct eb_table_memory *memory);

/* What `bytes` bytes occupy once taken: whole pages, or a share of one. UINT64_MAX where that is
 * more than an address space can hold. */
uint64_t eb_table_memory_footprint(uint64_t bytes);
