#include "server/tables/table_memory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <linux/mman.h>

#define PAGE_BYTES EB_PAGE_2M_BYTES

struct eb_table_mapping {
    atomic_uint holders;
    bool is_pooled; /* it consists of pages of 1 GiB */
    bool is_sealed;
    uint8_t *reserved; /* address range to unmap when the mapping is freed */
    uint64_t reserved_bytes;
    uint8_t *base;  /* aligned to a page */
    uint64_t bytes; /* whole pages */
    uint64_t used_bytes;
};

/* The reference of one struct eb_table_memory to a mapping. */
struct eb_table_hold {
    struct eb_table_hold *next;
    struct eb_table_mapping *mapping;
};

uint64_t eb_table_memory_footprint(uint64_t bytes)
{
    if (bytes > PTRDIFF_MAX - PAGE_BYTES) {
        return UINT64_MAX;
    }
    uint64_t unit = bytes >= PAGE_BYTES ? PAGE_BYTES : EB_TABLE_MEMORY_ALIGNMENT;
    /* A table without rows needs an address too. */
    return bytes == 0 ? unit : (bytes + unit - 1) / unit * unit;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t whole_pages(uint64_t bytes)
{
    return add_saturated(bytes, PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

uint64_t eb_table_memory_join(uint64_t rows_bytes, uint64_t index_bytes)
{
    uint64_t unit = EB_TABLE_MEMORY_ALIGNMENT;
    return index_bytes == 0
               ? rows_bytes
               : add_saturated(add_saturated(rows_bytes, unit - 1) / unit * unit, index_bytes);
}

void eb_table_memory_need_add(struct eb_table_need *need, uint64_t bytes)
{
    uint64_t footprint = eb_table_memory_footprint(bytes);
    uint64_t *sum = footprint >= PAGE_BYTES ? &need->whole_bytes : &need->common_bytes;
    *sum = add_saturated(*sum, footprint);
}

uint64_t eb_table_memory_need_bytes(const struct eb_table_need *need)
{
    return add_saturated(need->whole_bytes, whole_pages(need->common_bytes));
}

/* Maps mapping->bytes bytes, a multiple of 2 MiB, aligned to 2 MiB. Returns false with errno set if
 * that fails. */
static bool map_pages(struct eb_table_mapping *mapping, enum eb_page_size pages)
{
    /* The surplus of the reservation stays inaccessible. Otherwise the kernel could join neighbours
     * into one mapping, and their pages could not be counted separately. */
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
    /* If the system has no huge pages left, small ones work too. */
    (void)madvise(
        mapping->base, mapping->bytes, pages == EB_PAGE_SMALL ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    return true;
}

/* Maps mapping->bytes bytes, a multiple of 1 GiB, from the system's pool. */
static bool map_giant_pages(struct eb_table_mapping *mapping)
{
    mapping->reserved_bytes = mapping->bytes;
    mapping->reserved = mmap(NULL, mapping->bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_1GB, -1, 0);
    mapping->base = mapping->reserved;
    return mapping->reserved != MAP_FAILED;
}

/* Makes the pool's pages present now, while pages of 2 MiB are still an alternative. If a limit on
 * the pool's pages is exceeded later, a signal kills the process. */
static bool populate(const struct eb_table_mapping *mapping)
{
    /* EINVAL means that the kernel is too old for MADV_POPULATE_WRITE. */
    return madvise(mapping->base, mapping->bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

static void place_on_nodes(struct eb_table_memory *memory, const struct eb_table_mapping *mapping)
{
    int rc = eb_numa_policy_apply(memory->options.numa, mapping->base, mapping->bytes);
    if (rc < 0) {
        memory->numa_error = rc;
    }
}

/* Makes a mapping of `bytes` bytes, not mapped yet, and the hold that puts it in a memory's list.
 * Returns NULL if out of memory. */
static struct eb_table_hold *make_hold(uint64_t bytes)
{
    struct eb_table_hold *hold = malloc(sizeof *hold);
    struct eb_table_mapping *mapping = calloc(1, sizeof *mapping);
    if (!hold || !mapping) {
        free(hold);
        free(mapping);
        return NULL;
    }
    mapping->bytes = bytes;
    atomic_init(&mapping->holders, 1);
    hold->mapping = mapping;
    return hold;
}

static void free_hold(struct eb_table_hold *hold)
{
    free(hold->mapping);
    free(hold);
}

static void keep_mapping(struct eb_table_memory *memory, struct eb_table_hold *hold)
{
    hold->next = memory->holds;
    memory->holds = hold;
    memory->mapped_bytes += hold->mapping->bytes;
}

static struct eb_table_mapping *add_mapping(struct eb_table_memory *memory, uint64_t bytes)
{
    struct eb_table_hold *hold = make_hold(bytes);
    if (!hold) {
        return NULL;
    }
    if (!map_pages(hold->mapping, memory->options.pages)) {
        free_hold(hold);
        return NULL;
    }
    place_on_nodes(memory, hold->mapping);
    keep_mapping(memory, hold);
    return hold->mapping;
}

/* Adds a mapping in whole pages of 1 GiB with room for `bytes` bytes. Returns NULL if that fails;
 * later mappings are then made of smaller pages. */
static struct eb_table_mapping *add_giant_mapping(struct eb_table_memory *memory, uint64_t bytes)
{
    struct eb_table_hold *hold =
        bytes <= PTRDIFF_MAX - EB_PAGE_1G_BYTES
            ? make_hold((bytes + EB_PAGE_1G_BYTES - 1) / EB_PAGE_1G_BYTES * EB_PAGE_1G_BYTES)
            : NULL;
    memory->is_pool_short = true;
    if (!hold) {
        return NULL;
    }
    struct eb_table_mapping *mapping = hold->mapping;
    mapping->is_pooled = true;
    if (!map_giant_pages(mapping)) {
        free_hold(hold);
        return NULL;
    }
    place_on_nodes(memory, mapping);
    if (!populate(mapping)) {
        (void)munmap(mapping->reserved, mapping->reserved_bytes);
        free_hold(hold);
        return NULL;
    }
    memory->is_pool_short = false;
    keep_mapping(memory, hold);
    return mapping;
}

static bool wants_giant_pages(const struct eb_table_memory *memory)
{
    return memory->options.pages == EB_PAGE_1G && !memory->is_pool_short;
}

static bool reserve_giant_pages(struct eb_table_memory *memory, uint64_t bytes)
{
    if (!wants_giant_pages(memory) || bytes == 0) {
        return false;
    }
    struct eb_table_mapping *mapping = add_giant_mapping(memory, bytes);
    memory->common = mapping ? mapping : memory->common;
    return mapping;
}

bool eb_table_memory_reserve(struct eb_table_memory *memory, const struct eb_table_need *need)
{
    if (reserve_giant_pages(memory, add_saturated(need->whole_bytes, need->common_bytes))) {
        return true;
    }
    memory->common_bytes = whole_pages(need->common_bytes);
    return false;
}

/* Adds the next mapping for small tables. */
static struct eb_table_mapping *add_common(struct eb_table_memory *memory)
{
    uint64_t bytes = memory->common_bytes > 0 ? memory->common_bytes : PAGE_BYTES;
    struct eb_table_mapping *common = add_mapping(memory, bytes);
    if (common) {
        memory->common = common;
        memory->common_bytes = 0;
    }
    return common;
}

/* Returns the mapping from which the next `bytes` bytes are taken, or NULL if there is no
 * memory. */
static struct eb_table_mapping *find_mapping(struct eb_table_memory *memory, uint64_t bytes)
{
    struct eb_table_mapping *common = memory->common;
    bool may_join = bytes < PAGE_BYTES || wants_giant_pages(memory);
    if (may_join && common && common->bytes - common->used_bytes >= bytes) {
        return common;
    }
    if (reserve_giant_pages(memory, bytes)) {
        return memory->common;
    }
    return bytes >= PAGE_BYTES ? add_mapping(memory, bytes) : add_common(memory);
}

void *eb_table_memory_take(
    struct eb_table_memory *memory, uint64_t bytes, struct eb_failure *failure)
{
    uint64_t footprint = eb_table_memory_footprint(bytes);
    errno = ENOMEM;
    struct eb_table_mapping *mapping =
        footprint == UINT64_MAX ? NULL : find_mapping(memory, footprint);
    if (!mapping) {
        eb_failure_set(failure,
            "the system refuses %" PRIu64 " bytes of memory (%s); allow the process more", bytes,
            strerror(errno));
        (void)eb_failure_blame(failure, ENOMEM);
        return NULL;
    }
    void *taken = mapping->base + mapping->used_bytes;
    mapping->used_bytes += footprint;
    assert(mapping->used_bytes <= mapping->bytes);
    return taken;
}

/* Returns the number of bytes in the slice that begins at `done` in the mapping. The last slice may
 * be shorter. */
static uint64_t slice_bytes(const struct eb_table_mapping *mapping, uint64_t done)
{
    uint64_t most = mapping->is_pooled ? EB_PAGE_1G_BYTES : EB_TABLE_MEMORY_SLICE_BYTES;
    return mapping->bytes - done < most ? mapping->bytes - done : most;
}

static bool seal_mapping(struct eb_table_mapping *mapping)
{
    uint64_t bytes;
    for (uint64_t done = 0; done < mapping->bytes; done += bytes) {
        bytes = slice_bytes(mapping, done);
        if (mprotect(mapping->base + done, bytes, PROT_READ) != 0) {
            return false;
        }
    }
    mapping->is_sealed = true;
    return true;
}

bool eb_table_memory_seal(struct eb_table_memory *memory, struct eb_failure *failure)
{
    for (struct eb_table_hold *hold = memory->holds; hold; hold = hold->next) {
        struct eb_table_mapping *mapping = hold->mapping;
        if (mapping->is_sealed) {
            continue; /* Another memory holds the mapping too and reads is_sealed. */
        }
        if (!seal_mapping(mapping)) {
            return eb_failure_set(failure, "tables cannot be made read-only: %s", strerror(errno));
        }
    }
    return true;
}

struct eb_table_mapping *eb_table_memory_find(
    const struct eb_table_memory *memory, const void *taken)
{
    const struct eb_table_hold *hold = memory->holds;
    while ((uintptr_t)taken - (uintptr_t)hold->mapping->base >= hold->mapping->bytes) {
        hold = hold->next;
        assert(hold);
    }
    assert(hold->mapping->is_sealed);
    return hold->mapping->is_pooled ? NULL : hold->mapping;
}

bool eb_table_memory_share(
    struct eb_table_memory *memory, struct eb_table_mapping *mapping, struct eb_failure *failure)
{
    struct eb_table_hold *hold = memory->holds;
    while (hold && hold->mapping != mapping) {
        hold = hold->next;
    }
    if (hold) {
        return true;
    }
    hold = malloc(sizeof *hold);
    if (!hold) {
        return eb_failure_set(failure, "out of memory");
    }
    atomic_fetch_add_explicit(&mapping->holders, 1, memory_order_relaxed);
    hold->mapping = mapping;
    keep_mapping(memory, hold);
    memory->shared_bytes += mapping->bytes;
    return true;
}

uint64_t eb_table_memory_joint_bytes(const struct eb_table_memory *memory)
{
    uint64_t bytes = 0;
    for (const struct eb_table_hold *hold = memory->holds; hold; hold = hold->next) {
        bool is_joint = atomic_load_explicit(&hold->mapping->holders, memory_order_relaxed) > 1;
        bytes += is_joint ? hold->mapping->bytes : 0;
    }
    return bytes;
}

static void give_pages(const struct eb_table_mapping *mapping)
{
    uint64_t bytes;
    for (uint64_t done = 0; done < mapping->bytes; done += bytes) {
        bytes = slice_bytes(mapping, done);
        /* If this fails, munmap gives the pages back. */
        (void)madvise(mapping->base + done, bytes, MADV_DONTNEED);
    }
}

static void give_mapping(struct eb_table_mapping *mapping)
{
    if (atomic_fetch_sub_explicit(&mapping->holders, 1, memory_order_acq_rel) == 1) {
        give_pages(mapping);
        /* Fails only if the system cannot split a mapping any more. Then it stays mapped. */
        (void)munmap(mapping->reserved, mapping->reserved_bytes);
        free(mapping);
    }
}

void eb_table_memory_deinit(struct eb_table_memory *memory)
{
    while (memory->holds) {
        struct eb_table_hold *hold = memory->holds;
        memory->holds = hold->next;
        give_mapping(hold->mapping);
        free(hold);
    }
    *memory = (struct eb_table_memory){0};
}
