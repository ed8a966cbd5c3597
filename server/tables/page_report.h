/* The sizes of the pages that memory really has, as the kernel reports them for this process's
 * mappings.
 * Thread: any. Memory: the list is on the heap. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eb_page_extent;

/* The mappings that had huge pages when the report was made. */
struct eb_page_report {
    size_t count;
    struct eb_page_extent *extents; /* sorted by address */
};

/* The size of some memory, and how many bytes of it are in pages of 2 MiB and of 1 GiB. */
struct eb_page_count {
    uint64_t bytes;
    uint64_t bytes_2m;
    uint64_t bytes_1g;
};

/* Reads /proc/self/smaps. This takes a while if gigabytes are in small pages, so use one report for
 * many ranges. `root` is a prefix of /proc: "" except in tests. Returns 0, or a negative errno with
 * *report empty. */
int eb_page_report_open(struct eb_page_report *report, const char *root);
/* Accepts a zeroed report. */
void eb_page_report_close(struct eb_page_report *report);

/* Returns the pages of `bytes` bytes at `base`. This is exact if a mapping has pages of one size.
 * If only a part of a mapping is in huge pages, a range gets its proportional share. */
struct eb_page_count eb_page_report_count(
    const struct eb_page_report *report, const void *base, uint64_t bytes);
