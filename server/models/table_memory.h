/* Memory for the tables of one model version: 2 MiB pages, tables under 2 MiB sharing a mapping.
 * Thread: one at a time until published; then read-only. Memory: mmap; munmap on deinit. */
#pragma once

#include "server/models/tensor.h"

#include <stdbool.h>
#include <stddef.h>

struct eb_table_mapping;

struct eb_table_memory {
    struct eb_table_mapping *mappings; /* singly linked */
    uint64_t mapped_bytes;
};

/* `bytes` zeroed bytes aligned to at least 64 (2 MiB from that size on), advised to huge pages,
 * writable. NULL: *fault says how much was wanted and how much there is. */
void *eb_table_memory_take(
    struct eb_table_memory *memory, uint64_t bytes, struct eb_file_fault *fault);
/* Makes everything read-only: done once, when a version is complete. false: *fault. */
bool eb_table_memory_seal(struct eb_table_memory *memory, struct eb_file_fault *fault);
/* Unmaps all. Accepts a zeroed struct. */
void eb_table_memory_deinit(struct eb_table_memory *memory);

/* Bytes this process may still take: the least of the machine's available memory and its cgroup's
 * limit (v1 and v2) less what that holds already. */
uint64_t eb_memory_available_bytes(void);
