/* The page sizes for tables: 2 MiB pages that the kernel makes of small ones (transparent huge
 * pages), 1 GiB pages of a reserved pool (hugetlbfs), or small pages. Also tells an operator what
 * to do if the system has too few of the large ones.
 * Thread: any. Memory: none. */
#pragma once

#include <stdint.h>

#define EB_PAGE_2M_BYTES (UINT64_C(2) << 20)
#define EB_PAGE_1G_BYTES (UINT64_C(1) << 30)

/* X(NAME, text): the text is the setting's value. */
#define EB_PAGE_SIZE_LIST(X)                                                                       \
    X(2M, "2m")                                                                                    \
    X(1G, "1g")                                                                                    \
    X(SMALL, "off")

#define X(name, text) EB_PAGE_##name,
enum eb_page_size { EB_PAGE_SIZE_LIST(X) EB_PAGE_SIZE_COUNT };
#undef X

/* The values of the setting, indexed by enum eb_page_size, with NULL at the end. */
extern const char *const eb_page_size_names[];

#define EB_PAGE_HINT_BYTES 320

/* Writes what to do if tables of `bytes` bytes should be in `wanted` pages (2M or 1G) but are in
 * smaller ones. `root` is a prefix of /proc and /sys: "" except in tests. */
void eb_page_size_hint(
    enum eb_page_size wanted, uint64_t bytes, const char *root, char out[EB_PAGE_HINT_BYTES]);
