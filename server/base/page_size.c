#include "server/base/page_size.h"

#include "server/base/cgroup.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define TRANSPARENT_FILE "sys/kernel/mm/transparent_hugepage/enabled"
#define GIANT_FILE "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"

const char *const eb_page_size_names[] = {
#define X(name, text) text,
    EB_PAGE_SIZE_LIST(X)
#undef X
        NULL};

static const char *transparent_hint(const char *root)
{
    char text[EB_CGROUP_TEXT_BYTES];
    if (!eb_cgroup_read(root, TRANSPARENT_FILE, text)) {
        return "this kernel has no transparent huge pages: set huge_pages to off, or to 1g if the "
               "system has a pool of 1 GiB pages";
    }
    if (strstr(text, "[never]")) {
        return "the system forbids transparent huge pages: write madvise to /" TRANSPARENT_FILE
               ", then load again";
    }
    if (eb_cgroup_read(root, "proc/self/status", text) && strstr(text, "\nTHP_enabled:\t0")) {
        return "transparent huge pages were disabled when the process was started (prctl "
               "PR_SET_THP_DISABLE): start it without that";
    }
    return "memory was short or fragmented: free some, or write 1 to /proc/sys/vm/compact_memory, "
           "then load again";
}

static void advise_giant(uint64_t bytes, const char *root, char out[EB_PAGE_HINT_BYTES])
{
    char count[EB_CGROUP_TEXT_BYTES];
    uint64_t pages = bytes / EB_PAGE_1G_BYTES + (bytes % EB_PAGE_1G_BYTES != 0);
    if (!eb_cgroup_read(root, GIANT_FILE, count)) {
        snprintf(
            out, EB_PAGE_HINT_BYTES, "this system has no pages of 1 GiB: set huge_pages to 2m");
        return;
    }
    snprintf(out, EB_PAGE_HINT_BYTES,
        "free pages of 1 GiB needed: %" PRIu64
        ", pages in the whole pool: %.*s; start the system with "
        "hugepagesz=1G hugepages=N, or write N to /" GIANT_FILE ", then load again",
        pages, (int)strcspn(count, "\n"), count);
}

void eb_page_size_hint(
    enum eb_page_size wanted, uint64_t bytes, const char *root, char out[EB_PAGE_HINT_BYTES])
{
    if (wanted == EB_PAGE_1G) {
        advise_giant(bytes, root, out);
    } else {
        snprintf(out, EB_PAGE_HINT_BYTES, "%s", transparent_hint(root));
    }
}
