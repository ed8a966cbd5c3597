#include "server/models/table_memory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES EB_TABLE_MEMORY_PAGE_BYTES

struct eb_table_mapping {
    struct eb_table_mapping *next;
    uint8_t *base;  /* aligned to a page */
    uint64_t bytes; /* whole pages */
    uint64_t used_bytes;
};

uint64_t eb_table_memory_footprint(uint64_t bytes)
{
    if (bytes > PTRDIFF_MAX - PAGE_BYTES) {
        return UINT64_MAX;
    }
    uint64_t unit = bytes >= PAGE_BYTES ? PAGE_BYTES : EB_TABLE_MEMORY_ALIGNMENT;
    return (bytes + unit - 1) / unit * unit;
}

/* Maps `bytes` bytes (whole pages) at a page's start; NULL with errno. */
static uint8_t *map_pages(uint64_t bytes)
{
    uint64_t reserved = bytes + PAGE_BYTES;
    uint8_t *start =
        mmap(NULL, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        return NULL;
    }
    uint64_t before = -(uintptr_t)start % PAGE_BYTES;
    uint8_t *base = start + before;
    uint64_t behind = PAGE_BYTES - before;
    if ((before > 0 && munmap(start, before) != 0) || munmap(base + bytes, behind) != 0) {
        int error = errno;
        (void)munmap(start, reserved);
        errno = error;
        return NULL;
    }
    /* Where the system has no huge pages to give, small ones serve as well. */
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    return base;
}

static struct eb_table_mapping *add_mapping(struct eb_table_memory *memory, uint64_t bytes)
{
    struct eb_table_mapping *mapping = malloc(sizeof *mapping);
    if (!mapping) {
        return NULL;
    }
    *mapping = (struct eb_table_mapping){
        .next = memory->mappings, .base = map_pages(bytes), .bytes = bytes};
    if (!mapping->base) {
        free(mapping);
        return NULL;
    }
    memory->mappings = mapping;
    memory->mapped_bytes += bytes;
    return mapping;
}

/* The mapping that the next `bytes` bytes are cut from. */
static struct eb_table_mapping *find_mapping(struct eb_table_memory *memory, uint64_t bytes)
{
    if (bytes >= PAGE_BYTES) {
        return add_mapping(memory, bytes);
    }
    struct eb_table_mapping *shared = memory->shared;
    if (!shared || shared->bytes - shared->used_bytes < bytes) {
        shared = add_mapping(memory, PAGE_BYTES);
        memory->shared = shared ? shared : memory->shared;
    }
    return shared;
}

void *eb_table_memory_take(
    struct eb_table_memory *memory, uint64_t bytes, struct eb_file_fault *fault)
{
    uint64_t footprint = eb_table_memory_footprint(bytes);
    errno = ENOMEM;
    struct eb_table_mapping *mapping =
        footprint == UINT64_MAX ? NULL : find_mapping(memory, footprint);
    if (!mapping) {
        eb_file_fault_set(fault,
            "%" PRIu64 " bytes of memory are refused by the system (%s); give the process more",
            bytes, strerror(errno));
        return NULL;
    }
    void *taken = mapping->base + mapping->used_bytes;
    mapping->used_bytes += footprint;
    assert(mapping->used_bytes <= mapping->bytes);
    return taken;
}

bool eb_table_memory_seal(struct eb_table_memory *memory, struct eb_file_fault *fault)
{
    for (struct eb_table_mapping *mapping = memory->mappings; mapping; mapping = mapping->next) {
        if (mprotect(mapping->base, mapping->bytes, PROT_READ) != 0) {
            return eb_file_fault_set(fault, "tables cannot be made read-only: %s", strerror(errno));
        }
    }
    return true;
}

void eb_table_memory_deinit(struct eb_table_memory *memory)
{
    while (memory->mappings) {
        struct eb_table_mapping *mapping = memory->mappings;
        memory->mappings = mapping->next;
        /* Fails only where the system cannot split a mapping any more: then it stays. */
        (void)munmap(mapping->base, mapping->bytes);
        free(mapping);
    }
    *memory = (struct eb_table_memory){0};
}
