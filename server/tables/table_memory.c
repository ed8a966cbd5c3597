#include "server/tables/table_memory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES EB_PAGE_2M_BYTES

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

/* Puts a mapping, whose hold the memory takes over, into the memory's list. Returns false if out of
 * memory, with the hold given up. */
static bool keep_mapping(struct eb_table_memory *memory, struct eb_table_mapping *mapping)
{
    struct eb_table_hold *hold = malloc(sizeof *hold);
    if (!hold) {
        eb_table_mapping_give(mapping);
        errno = ENOMEM;
        return false;
    }
    hold->mapping = mapping;
    hold->next = memory->holds;
    memory->holds = hold;
    memory->mapped_bytes += mapping->bytes;
    if (mapping->numa_error < 0) {
        memory->numa_error = mapping->numa_error;
    }
    return true;
}

static struct eb_table_mapping *add_mapping(struct eb_table_memory *memory, uint64_t bytes)
{
    const struct eb_table_memory_options *options = &memory->options;
    struct eb_table_mapping *mapping =
        eb_table_mapping_create(bytes, options->pages, options->numa);
    return mapping && keep_mapping(memory, mapping) ? mapping : NULL;
}

/* Adds a mapping in whole pages of 1 GiB with room for `bytes` bytes. Returns NULL if that fails;
 * later mappings are then made of smaller pages. */
static struct eb_table_mapping *add_giant_mapping(struct eb_table_memory *memory, uint64_t bytes)
{
    uint64_t unit = EB_PAGE_1G_BYTES;
    struct eb_table_mapping *mapping =
        bytes <= PTRDIFF_MAX - unit
            ? eb_table_mapping_create_pool((bytes + unit - 1) / unit * unit, memory->options.numa)
            : NULL;
    bool is_kept = mapping && keep_mapping(memory, mapping);
    memory->is_pool_short = !is_kept;
    return is_kept ? mapping : NULL;
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

bool eb_table_memory_seal(struct eb_table_memory *memory, struct eb_failure *failure)
{
    for (struct eb_table_hold *hold = memory->holds; hold; hold = hold->next) {
        int rc = eb_table_mapping_seal(hold->mapping);
        if (rc < 0) {
            return eb_failure_set(failure, "tables cannot be made read-only: %s", strerror(-rc));
        }
    }
    return true;
}

struct eb_table_mapping *eb_table_memory_find(
    const struct eb_table_memory *memory, const void *taken)
{
    const struct eb_table_hold *hold = memory->holds;
    while (!eb_table_mapping_has(hold->mapping, taken)) {
        hold = hold->next;
        assert(hold);
    }
    assert(hold->mapping->is_sealed);
    return hold->mapping->backing == EB_TABLE_BACKING_POOL ? NULL : hold->mapping;
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
    eb_table_mapping_take(mapping);
    if (!keep_mapping(memory, mapping)) {
        return eb_failure_set(failure, "out of memory");
    }
    memory->shared_bytes += mapping->bytes;
    return true;
}

bool eb_table_memory_keep(
    struct eb_table_memory *memory, struct eb_table_mapping *mapping, struct eb_failure *failure)
{
    return keep_mapping(memory, mapping) || eb_failure_set(failure, "out of memory");
}

bool eb_table_memory_is_outdated(const struct eb_table_memory *memory)
{
    for (const struct eb_table_hold *hold = memory->holds; hold; hold = hold->next) {
        if (atomic_load_explicit(&hold->mapping->is_outdated, memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

bool eb_table_memory_has_uncompared(const struct eb_table_memory *memory)
{
    for (const struct eb_table_hold *hold = memory->holds; hold; hold = hold->next) {
        if (hold->mapping->is_adopted && !hold->mapping->is_compared) {
            return true;
        }
    }
    return false;
}

uint64_t eb_table_memory_joint_bytes(const struct eb_table_memory *memory)
{
    uint64_t bytes = 0;
    for (const struct eb_table_hold *hold = memory->holds; hold; hold = hold->next) {
        bytes += eb_table_mapping_is_joint(hold->mapping) ? hold->mapping->bytes : 0;
    }
    return bytes;
}

void eb_table_memory_visit(const struct eb_table_memory *memory,
    bool (*visit)(void *context, struct eb_table_mapping *mapping), void *context)
{
    const struct eb_table_hold *hold = memory->holds;
    while (hold && visit(context, hold->mapping)) {
        hold = hold->next;
    }
}

void eb_table_memory_deinit(struct eb_table_memory *memory)
{
    while (memory->holds) {
        struct eb_table_hold *hold = memory->holds;
        memory->holds = hold->next;
        eb_table_mapping_give(hold->mapping);
        free(hold);
    }
    *memory = (struct eb_table_memory){0};
}
