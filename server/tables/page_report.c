#include "server/tables/page_report.h"

#include "server/base/page_size.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 512 /* only lines with a path, which is not needed, are longer */
#define EXTENTS_FIRST 16

/* A mapping with huge pages. */
struct eb_page_extent {
    uint64_t begin;
    uint64_t end;
    uint64_t page_bytes; /* the mapping's page size according to the kernel; small if the kernel may
                            join its pages into huge ones, which huge_bytes counts */
    uint64_t huge_bytes;
};

/* Reads the bytes from a line "KEY:    123 kB". Returns false if it is another line. */
static bool read_page_field(const char *line, const char *key, uint64_t *bytes)
{
    size_t length = strlen(key);
    uint64_t kibibytes;
    if (strncmp(line, key, length) != 0 || sscanf(line + length, "%" SCNu64, &kibibytes) != 1) {
        return false;
    }
    *bytes = kibibytes * 1024;
    return true;
}

/* Reads the fields about huge pages from a line of a mapping. */
static void read_page_line(struct eb_page_extent *extent, const char *line)
{
    uint64_t bytes;
    if (read_page_field(line, "KernelPageSize:", &bytes)) {
        extent->page_bytes = bytes;
    } else if (read_page_field(line, "AnonHugePages:", &bytes) ||
               read_page_field(line, "ShmemPmdMapped:", &bytes) ||
               read_page_field(line, "Private_Hugetlb:", &bytes) ||
               read_page_field(line, "Shared_Hugetlb:", &bytes)) {
        extent->huge_bytes += bytes;
    }
}

/* Adds the mapping to the report if it has huge pages. *room is the number of extents that the
 * report has room for. Returns 0 or -ENOMEM. */
static int keep_extent(
    struct eb_page_report *report, size_t *room, const struct eb_page_extent *extent)
{
    if (extent->huge_bytes == 0) {
        return 0;
    }
    if (report->count == *room) {
        size_t more = *room ? *room * 2 : EXTENTS_FIRST;
        struct eb_page_extent *extents = realloc(report->extents, more * sizeof *extents);
        if (!extents) {
            return -ENOMEM;
        }
        report->extents = extents;
        *room = more;
    }
    report->extents[report->count++] = *extent;
    return 0;
}

static int read_mappings(struct eb_page_report *report, FILE *file)
{
    struct eb_page_extent extent = {0};
    size_t room = 0;
    int rc = 0;
    char line[LINE_BYTES];
    while (rc == 0 && fgets(line, sizeof line, file)) {
        uint64_t begin;
        uint64_t end;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2) {
            rc = keep_extent(report, &room, &extent);
            extent = (struct eb_page_extent){.begin = begin, .end = end};
        } else {
            read_page_line(&extent, line);
        }
    }
    if (rc == 0 && ferror(file)) {
        rc = -EIO;
    }
    return rc == 0 ? keep_extent(report, &room, &extent) : rc;
}

int eb_page_report_open(struct eb_page_report *report, const char *root)
{
    char path[512];
    *report = (struct eb_page_report){0};
    snprintf(path, sizeof path, "%s/proc/self/smaps", root);
    FILE *file = fopen(path, "re");
    if (!file) {
        return -errno;
    }
    int rc = read_mappings(report, file);
    fclose(file);
    if (rc < 0) {
        eb_page_report_close(report);
    }
    return rc;
}

void eb_page_report_close(struct eb_page_report *report)
{
    free(report->extents);
    *report = (struct eb_page_report){0};
}

/* Returns the index of the first extent that ends after `address`. */
static size_t find_extent(const struct eb_page_report *report, uint64_t address)
{
    size_t low = 0;
    size_t high = report->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (report->extents[middle].end <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Returns how many of `bytes` bytes of the extent are in huge pages, as if huge pages were spread
 * evenly over the extent. */
static uint64_t share_of_huge_pages(const struct eb_page_extent *extent, uint64_t bytes)
{
    uint64_t extent_bytes = extent->end - extent->begin;
    if (extent->huge_bytes >= extent_bytes) {
        return bytes;
    }
    double part = (double)extent->huge_bytes / (double)extent_bytes;
    return (uint64_t)((double)bytes * part);
}

struct eb_page_count eb_page_report_count(
    const struct eb_page_report *report, const void *base, uint64_t bytes)
{
    struct eb_page_count count = {.bytes = bytes};
    uint64_t begin = (uintptr_t)base;
    assert(bytes <= UINT64_MAX - begin);
    uint64_t end = begin + bytes;
    for (size_t i = find_extent(report, begin); i < report->count; i++) {
        const struct eb_page_extent *extent = &report->extents[i];
        uint64_t from = extent->begin > begin ? extent->begin : begin;
        uint64_t to = extent->end < end ? extent->end : end;
        if (from >= to) {
            break;
        }
        bool is_giant = extent->page_bytes >= EB_PAGE_1G_BYTES;
        *(is_giant ? &count.bytes_1g : &count.bytes_2m) += share_of_huge_pages(extent, to - from);
    }
    return count;
}
