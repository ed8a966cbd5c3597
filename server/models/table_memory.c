#include "server/models/table_memory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <linux/mman.h>

#define PAGE_BYTES EB_PAGE_2M_BYTES

struct eb_table_mapping {
    struct eb_table_mapping *next;
    uint8_t *reserved; /* what is unmapped in the end */
    uint64_t reserved_bytes;
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

/* Maps mapping->bytes bytes (whole pages) at a page's start; false with errno. */
static bool map_pages(struct eb_table_mapping *mapping, enum eb_page_size pages)
{
    /* What is reserved beyond stays out of bounds: neighbours that the kernel joined to one
     * mapping could no longer be told apart when their pages are counted. */
    mapping->reserved_bytes = mapping->bytes + PAGE_BYTES;
    mapping->reserved =
        mmap(NULL, mapping->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping->reserved == MAP_FAILED) {
        return false;
    }
    mapping->base = mapping->reserved + -(uintptr_t)mapping->reserved % PAGE_BYTES;
    if (mprotect(mapping->base, mapping->bytes, PROT_READ | PROT_WRITE) != 0) {
        int error = errno;
        (void)munmap(mapping->reserved, mapping->reserved_bytes);
        errno = error;
        return false;
    }
    /* Where the system has no huge pages to give, small ones serve as well. */
    (void)madvise(
        mapping->base, mapping->bytes, pages == EB_PAGE_SMALL ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    return true;
}

/* Maps mapping->bytes bytes (whole pages of 1 GiB) from the system's pool. */
static bool map_giant_pages(struct eb_table_mapping *mapping)
{
    mapping->reserved_bytes = mapping->bytes;
    mapping->reserved = mmap(NULL, mapping->bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_1GB, -1, 0);
    mapping->base = mapping->reserved;
    return mapping->reserved != MAP_FAILED;
}

/* Makes the pool's pages present now, while there is a choice: a limit on them that the mapping
 * did not meet would be met by a signal later. */
static bool populate(const struct eb_table_mapping *mapping)
{
    /* EINVAL: the kernel is older than the advice. */
    return madvise(mapping->base, mapping->bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

static void place_on_nodes(struct eb_table_memory *memory, const struct eb_table_mapping *mapping)
{
    int code = eb_numa_policy_apply(memory->options.numa, mapping->base, mapping->bytes);
    if (code < 0) {
        memory->numa_error = code;
    }
}

/* Takes the mapping up. */
static void keep(struct eb_table_memory *memory, struct eb_table_mapping *mapping)
{
    mapping->next = memory->mappings;
    memory->mappings = mapping;
    memory->mapped_bytes += mapping->bytes;
}

static struct eb_table_mapping *add_mapping(struct eb_table_memory *memory, uint64_t bytes)
{
    struct eb_table_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping) {
        return NULL;
    }
    mapping->bytes = bytes;
    if (!map_pages(mapping, memory->options.pages)) {
        free(mapping);
        return NULL;
    }
    place_on_nodes(memory, mapping);
    keep(memory, mapping);
    return mapping;
}

/* One of whole pages of 1 GiB with room for `bytes` bytes. NULL: from now on those are small. */
static struct eb_table_mapping *add_giant_mapping(struct eb_table_memory *memory, uint64_t bytes)
{
    struct eb_table_mapping *mapping =
        bytes <= PTRDIFF_MAX - EB_PAGE_1G_BYTES ? calloc(1, sizeof *mapping) : NULL;
    memory->is_pool_short = true;
    if (!mapping) {
        return NULL;
    }
    mapping->bytes = (bytes + EB_PAGE_1G_BYTES - 1) / EB_PAGE_1G_BYTES * EB_PAGE_1G_BYTES;
    if (!map_giant_pages(mapping)) {
        free(mapping);
        return NULL;
    }
    place_on_nodes(memory, mapping);
    if (!populate(mapping)) {
        (void)munmap(mapping->reserved, mapping->reserved_bytes);
        free(mapping);
        return NULL;
    }
    memory->is_pool_short = false;
    keep(memory, mapping);
    return mapping;
}

static bool wants_giant_pages(const struct eb_table_memory *memory)
{
    return memory->options.pages == EB_PAGE_1G && !memory->is_pool_short;
}

bool eb_table_memory_reserve(struct eb_table_memory *memory, uint64_t footprint_bytes)
{
    if (!wants_giant_pages(memory) || footprint_bytes == 0) {
        return false;
    }
    struct eb_table_mapping *mapping = add_giant_mapping(memory, footprint_bytes);
    memory->shared = mapping ? mapping : memory->shared;
    return mapping != NULL;
}

/* The mapping that the next `bytes` bytes are cut from. */
static struct eb_table_mapping *find_mapping(struct eb_table_memory *memory, uint64_t bytes)
{
    struct eb_table_mapping *shared = memory->shared;
    bool may_share = bytes < PAGE_BYTES || wants_giant_pages(memory);
    if (may_share && shared && shared->bytes - shared->used_bytes >= bytes) {
        return shared;
    }
    if (eb_table_memory_reserve(memory, bytes)) {
        return memory->shared;
    }
    if (bytes >= PAGE_BYTES) {
        return add_mapping(memory, bytes);
    }
    shared = add_mapping(memory, PAGE_BYTES);
    memory->shared = shared ? shared : memory->shared;
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
        (void)munmap(mapping->reserved, mapping->reserved_bytes);
        free(mapping);
    }
    *memory = (struct eb_table_memory){0};
}
