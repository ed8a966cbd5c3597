/* In which pages memory really lies: what the kernel says of this process's mappings.
 * Thread: any. Memory: the list is on the heap. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eb_page_extent;

/* The mappings that had huge pages when they were looked at. */
struct eb_page_report {
    size_t count;
    struct eb_page_extent *extents; /* by address */
};

/* Bytes of memory, and how many of them lie in pages of 2 MiB and of 1 GiB. */
struct eb_page_count {
    uint64_t bytes;
    uint64_t bytes_2m;
    uint64_t bytes_1g;
};

/* Reads /proc/self/smaps, which takes a moment where gigabytes lie in small pages: once for many
 * ranges. `root` is put before /proc: "" but in tests. 0, or a negative errno: it cannot be told,
 * *report is empty. */
int eb_page_report_open(struct eb_page_report *report, const char *root);
/* Accepts a zeroed report. */
void eb_page_report_close(struct eb_page_report *report);

/* The pages of `bytes` bytes at `base`. Exact where a mapping lies in pages of one size; of one
 * that lies partly in huge pages, a range has its proportional share. */
struct eb_page_count eb_page_report_count(
    const struct eb_page_report *report, const void *base, uint64_t bytes);
