#include "server/tables/table_mapping.h"

#include "server/base/machine.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/mman.h>

#define PAGE_BYTES EB_PAGE_2M_BYTES

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns a mapping with one holder and nothing mapped, or NULL with errno set. */
static struct eb_table_mapping *make_mapping(uint64_t bytes, enum eb_table_backing backing)
{
    struct eb_table_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping) {
        errno = ENOMEM;
        return NULL;
    }
    atomic_init(&mapping->holders, 1);
    mapping->backing = backing;
    mapping->bytes = bytes;
    mapping->descriptor = -1;
    return mapping;
}

/* Reserves addresses for the mapping. Returns false with errno set if there are none. */
static bool reserve_addresses(struct eb_table_mapping *mapping)
{
    /* The surplus of the reservation stays inaccessible. Otherwise the kernel could join neighbours
     * into one mapping, and their pages could not be counted separately. */
    mapping->reserved_bytes = mapping->bytes + PAGE_BYTES;
    mapping->reserved =
        mmap(NULL, mapping->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping->reserved == MAP_FAILED) {
        mapping->reserved = NULL;
        return false;
    }
    mapping->base = mapping->reserved + -(uintptr_t)mapping->reserved % PAGE_BYTES;
    return true;
}

/* Frees the struct and its addresses. Keeps errno. */
static void free_mapping(struct eb_table_mapping *mapping)
{
    int error = errno;
    if (mapping->reserved) {
        /* Fails only if the system cannot split a mapping any more. Then it stays mapped. */
        (void)munmap(mapping->reserved, mapping->reserved_bytes);
    }
    eb_machine_remove_shared(mapping->shared_bytes);
    free(mapping);
    errno = error;
}

/* Counts the pages of a file, which may be charged to another process's control group. Those of
 * hugetlbfs are in no limit on memory. */
static void count_shared(struct eb_table_mapping *mapping)
{
    mapping->shared_bytes = mapping->dir->fs == EB_RESIDENT_TMPFS ? mapping->bytes : 0;
    eb_machine_add_shared(mapping->shared_bytes);
}

static void place_on_nodes(struct eb_table_mapping *mapping, enum eb_numa numa)
{
    int rc = eb_numa_policy_apply(numa, mapping->base, mapping->bytes);
    mapping->numa_error = rc < 0 ? rc : 0;
}

/* ---- anonymous memory ---- */

struct eb_table_mapping *eb_table_mapping_create(
    uint64_t bytes, enum eb_page_size pages, enum eb_numa numa)
{
    struct eb_table_mapping *mapping = make_mapping(bytes, EB_TABLE_BACKING_ANONYMOUS);
    if (!mapping) {
        return NULL;
    }
    if (!reserve_addresses(mapping) ||
        mprotect(mapping->base, bytes, PROT_READ | PROT_WRITE) != 0) {
        free_mapping(mapping);
        return NULL;
    }
    /* If the system has no huge pages left, small ones work too. */
    (void)madvise(mapping->base, bytes, pages == EB_PAGE_SMALL ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    place_on_nodes(mapping, numa);
    return mapping;
}

/* Makes the pool's pages present now, while pages of 2 MiB are still an alternative. If a limit on
 * the pool's pages is exceeded later, a signal kills the process. */
static bool populate_pool(const struct eb_table_mapping *mapping)
{
    /* EINVAL means that the kernel is too old for MADV_POPULATE_WRITE. */
    return madvise(mapping->base, mapping->bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

struct eb_table_mapping *eb_table_mapping_create_pool(uint64_t bytes, enum eb_numa numa)
{
    struct eb_table_mapping *mapping = make_mapping(bytes, EB_TABLE_BACKING_POOL);
    if (!mapping) {
        return NULL;
    }
    mapping->reserved_bytes = bytes;
    mapping->reserved = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_1GB, -1, 0);
    if (mapping->reserved == MAP_FAILED) {
        mapping->reserved = NULL;
        free_mapping(mapping);
        return NULL;
    }
    mapping->base = mapping->reserved;
    place_on_nodes(mapping, numa);
    if (!populate_pool(mapping)) {
        free_mapping(mapping);
        return NULL;
    }
    return mapping;
}

/* ---- resident files ---- */

/* Maps the open file over the mapping's addresses, in slices, and makes its pages present. Returns
 * 0 or a negative errno. */
static int map_file(const struct eb_table_mapping *mapping, int descriptor, int protection)
{
    uint64_t bytes;
    for (uint64_t done = 0; done < mapping->bytes; done += bytes) {
        bytes = least(mapping->bytes - done, EB_TABLE_MAPPING_FILE_SLICE_BYTES);
        uint8_t *at = mapping->base + done;
        if (mmap(at, bytes, protection, MAP_SHARED | MAP_FIXED, descriptor, (off_t)done) ==
            MAP_FAILED) {
            return -errno;
        }
        (void)madvise(at, bytes, MADV_HUGEPAGE); /* hugetlbfs refuses it and needs none */
        bool is_populated = protection & PROT_WRITE || madvise(at, bytes, MADV_POPULATE_READ) == 0;
        if (!is_populated && errno != EINVAL) {
            return -errno;
        }
    }
    return 0;
}

/* Gives all of the file its pages. Returns 0 or a negative errno, such as -ENOSPC. */
static int fill_file(const struct eb_table_mapping *mapping)
{
    uint64_t bytes;
    for (uint64_t done = 0; done < mapping->bytes; done += bytes) {
        bytes = least(mapping->bytes - done, EB_TABLE_MAPPING_FILE_SLICE_BYTES);
        int rc;
        do {
            rc = fallocate(mapping->descriptor, 0, (off_t)done, (off_t)bytes) == 0 ? 0 : -errno;
        } while (rc == -EINTR);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

uint64_t eb_table_mapping_slice_count(const struct eb_table_mapping *mapping)
{
    uint64_t unit = EB_TABLE_MAPPING_FILE_SLICE_BYTES;
    return (mapping->bytes + unit - 1) / unit;
}

uint64_t eb_table_mapping_populate(const struct eb_table_mapping *mapping, uint64_t slice)
{
    uint64_t begin = slice * EB_TABLE_MAPPING_FILE_SLICE_BYTES;
    uint64_t bytes = least(mapping->bytes - begin, EB_TABLE_MAPPING_FILE_SLICE_BYTES);
    uint8_t *at = mapping->base + begin;
    bool is_populated = madvise(at, bytes, MADV_POPULATE_WRITE) == 0;
    if (mapping->dir->fs == EB_RESIDENT_HUGETLBFS) {
        return bytes;
    }
    uint64_t huge_bytes = 0;
    for (uint64_t done = 0; is_populated && done < bytes; done += PAGE_BYTES) {
        bool is_huge = eb_table_mapping_collapse(mapping, begin + done) == 0;
        huge_bytes += is_huge ? PAGE_BYTES : 0;
    }
    return huge_bytes;
}

int eb_table_mapping_collapse(const struct eb_table_mapping *mapping, uint64_t offset)
{
    return madvise(mapping->base + offset, PAGE_BYTES, MADV_COLLAPSE) == 0 ? 0 : -errno;
}

/* Deletes a file that is not complete, and frees its mapping. */
static void drop_file(struct eb_table_mapping *mapping)
{
    int descriptor = mapping->descriptor;
    eb_resident_dir_unlink(mapping->dir, mapping->name);
    free_mapping(mapping);
    (void)close(descriptor);
}

/* Sets *failure to say why a file could not be made. It is deleted already, so that the bytes that
 * it had count as free. */
static enum eb_table_mapping_file refuse_file(
    const struct eb_resident_dir *dir, uint64_t bytes, int rc, struct eb_failure *failure)
{
    if (rc != -ENOSPC && rc != -ENOMEM && rc != -EDQUOT) {
        eb_failure_set(failure, "%s: a file of %" PRIu64 " bytes cannot be made: %s", dir->path,
            bytes, strerror(-rc));
        return EB_TABLE_MAPPING_FAILED;
    }
    eb_failure_set(failure,
        "%s: a file of %" PRIu64 " bytes does not fit, %" PRIu64 " bytes are free (%s)", dir->path,
        bytes, eb_resident_dir_free_bytes(dir), strerror(-rc));
    return EB_TABLE_MAPPING_FULL;
}

/* Maps the new file and reserves its room. Returns 0 or a negative errno. */
static int prepare_file(struct eb_table_mapping *mapping, enum eb_numa numa)
{
    if (!reserve_addresses(mapping)) {
        return -errno;
    }
    int rc = map_file(mapping, mapping->descriptor, PROT_READ | PROT_WRITE);
    if (rc == 0) {
        place_on_nodes(mapping, numa);
        rc = fill_file(mapping);
    }
    return rc;
}

enum eb_table_mapping_file eb_table_mapping_create_file(struct eb_resident_dir *dir, uint64_t bytes,
    enum eb_numa numa, struct eb_table_mapping **out, struct eb_failure *failure)
{
    *out = NULL;
    struct eb_table_mapping *mapping = make_mapping(bytes, EB_TABLE_BACKING_FILE);
    if (!mapping) {
        eb_failure_set(failure, "out of memory");
        return EB_TABLE_MAPPING_FAILED;
    }
    mapping->dir = dir;
    mapping->descriptor = eb_resident_dir_create(dir, bytes, mapping->name, failure);
    if (mapping->descriptor < 0) {
        free_mapping(mapping);
        return EB_TABLE_MAPPING_FAILED;
    }
    int rc = prepare_file(mapping, numa);
    if (rc < 0) {
        drop_file(mapping);
        return refuse_file(dir, bytes, rc, failure);
    }
    count_shared(mapping);
    *out = mapping;
    return EB_TABLE_MAPPING_MADE;
}

/* Opens the file again by its name, read-only. Returns the descriptor or a negative errno: -ESTALE
 * if the name belongs to another file. */
static int open_read_only(const struct eb_table_mapping *mapping)
{
    struct stat written;
    struct stat found;
    int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int descriptor = openat(mapping->dir->descriptor, mapping->name, flags);
    if (descriptor < 0) {
        return -errno;
    }
    int rc =
        fstat(mapping->descriptor, &written) == 0 && fstat(descriptor, &found) == 0 ? 0 : -errno;
    if (rc == 0 && (written.st_dev != found.st_dev || written.st_ino != found.st_ino)) {
        rc = -ESTALE;
    }
    if (rc < 0) {
        (void)close(descriptor);
        return rc;
    }
    return descriptor;
}

/* Maps the file read-only in place of the writable mapping. */
static bool reopen_file(struct eb_table_mapping *mapping, struct eb_failure *failure)
{
    int descriptor = open_read_only(mapping);
    int rc = descriptor >= 0 ? map_file(mapping, descriptor, PROT_READ) : descriptor;
    mapping->is_sealed = rc == 0;
    if (descriptor >= 0) {
        (void)close(descriptor);
    }
    if (rc < 0) {
        eb_failure_set(failure, "%s/%s cannot be mapped: %s", mapping->dir->path, mapping->name,
            strerror(-rc));
        return eb_failure_blame(failure, -rc);
    }
    return true;
}

/* Gives the file its name, and notes that it is in use. */
static bool name_file(
    struct eb_table_mapping *mapping, const char *name, struct eb_failure *failure)
{
    if (!eb_resident_dir_note_use(mapping->dir, name)) {
        eb_resident_dir_unlink(mapping->dir, mapping->name);
        return eb_failure_set(failure, "out of memory");
    }
    if (!eb_resident_dir_commit(mapping->dir, mapping->descriptor, mapping->name, name, failure)) {
        eb_resident_dir_end_use(mapping->dir, name);
        return false;
    }
    return true;
}

bool eb_table_mapping_commit(
    struct eb_table_mapping *mapping, const char *name, struct eb_failure *failure)
{
    assert(mapping->backing == EB_TABLE_BACKING_FILE && mapping->descriptor >= 0);
    if (!reopen_file(mapping, failure)) {
        return false;
    }
    bool is_named = name_file(mapping, name, failure);
    (void)snprintf(mapping->name, sizeof mapping->name, "%s", is_named ? name : "");
    (void)close(mapping->descriptor);
    mapping->descriptor = -1;
    return true;
}

struct eb_table_mapping *eb_table_mapping_open_file(struct eb_resident_dir *dir, const char *name,
    int descriptor, uint64_t bytes, struct eb_failure *failure)
{
    struct eb_table_mapping *mapping = make_mapping(bytes, EB_TABLE_BACKING_FILE);
    if (!mapping || !reserve_addresses(mapping)) {
        eb_failure_set(failure, "%s/%s cannot be mapped: %s", dir->path, name, strerror(errno));
        if (mapping) {
            free_mapping(mapping);
        }
        return NULL;
    }
    int rc = map_file(mapping, descriptor, PROT_READ);
    if (rc == 0 && !eb_resident_dir_note_use(dir, name)) {
        rc = -ENOMEM;
    }
    if (rc < 0) {
        eb_failure_set(failure, "%s/%s cannot be mapped: %s", dir->path, name, strerror(-rc));
        free_mapping(mapping);
        return NULL;
    }
    mapping->dir = dir;
    mapping->is_sealed = true;
    mapping->is_adopted = true;
    count_shared(mapping);
    (void)snprintf(mapping->name, sizeof mapping->name, "%s", name);
    return mapping;
}

/* ---- sealing and sharing ---- */

/* Returns the number of bytes in the slice that begins at `done` in the mapping. The last slice may
 * be shorter. */
static uint64_t slice_bytes(const struct eb_table_mapping *mapping, uint64_t done)
{
    bool is_pool = mapping->backing == EB_TABLE_BACKING_POOL;
    return least(mapping->bytes - done, is_pool ? EB_PAGE_1G_BYTES : EB_TABLE_MAPPING_SLICE_BYTES);
}

int eb_table_mapping_seal(struct eb_table_mapping *mapping)
{
    if (mapping->is_sealed) {
        return 0; /* Others may hold the mapping too and read is_sealed. */
    }
    uint64_t bytes;
    for (uint64_t done = 0; done < mapping->bytes; done += bytes) {
        bytes = slice_bytes(mapping, done);
        if (mprotect(mapping->base + done, bytes, PROT_READ) != 0) {
            return -errno;
        }
    }
    mapping->is_sealed = true;
    return 0;
}

void eb_table_mapping_take(struct eb_table_mapping *mapping)
{
    atomic_fetch_add_explicit(&mapping->holders, 1, memory_order_relaxed);
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

/* Unmaps a complete file, which is deleted if nobody needs it any more. The open descriptor keeps
 * the pages until they are unmapped, so that they are freed when it is closed, without a lock on
 * the process's memory. */
static void give_file(struct eb_table_mapping *mapping)
{
    struct eb_failure unused;
    uint64_t bytes;
    int descriptor = eb_resident_dir_find(mapping->dir, mapping->name, &bytes, &unused);
    eb_resident_dir_end_use(mapping->dir, mapping->name);
    give_pages(mapping);
    free_mapping(mapping);
    if (descriptor >= 0) {
        (void)close(descriptor);
    }
}

void eb_table_mapping_give(struct eb_table_mapping *mapping)
{
    if (!mapping || atomic_fetch_sub_explicit(&mapping->holders, 1, memory_order_acq_rel) > 1) {
        return;
    }
    if (mapping->descriptor >= 0) {
        drop_file(mapping);
    } else if (mapping->backing == EB_TABLE_BACKING_FILE && mapping->name[0] != '\0') {
        give_file(mapping);
    } else {
        give_pages(mapping);
        free_mapping(mapping);
    }
}

bool eb_table_mapping_has(const struct eb_table_mapping *mapping, const void *address)
{
    return (uintptr_t)address - (uintptr_t)mapping->base < mapping->bytes;
}

bool eb_table_mapping_is_joint(const struct eb_table_mapping *mapping)
{
    return atomic_load_explicit(&mapping->holders, memory_order_relaxed) > 1;
}
