/* The pages that tables may be kept in: 2 MiB ones that the kernel makes of small ones
 * (transparent huge pages), 1 GiB ones of a pool that is set apart for them (hugetlbfs), or small
 * ones, and what an operator does where the system has too few of the large ones.
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

/* By number, ended by NULL. */
extern const char *const eb_page_size_names[];

#define EB_PAGE_HINT_BYTES 320

/* What to do where `wanted` (2M or 1G) tables of `bytes` bytes are in smaller pages. `root` is put
 * before /proc and /sys: "" but in tests. */
void eb_page_size_hint(
    enum eb_page_size wanted, uint64_t bytes, const char *root, char out[EB_PAGE_HINT_BYTES]);
