#include "tests/variants/variant_memory.h"

#include "tests/variants/variant_draw.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PAGE_BYTES 4096

/* Returns the bytes to leave between the data and the guard page after it: EMBAG_TEST_SLACK_BYTES,
 * for emulators whose masked loads also read the elements that are masked out. */
static size_t find_slack(void)
{
    const char *slack = getenv("EMBAG_TEST_SLACK_BYTES");
    return slack ? strtoul(slack, NULL, 10) : 0;
}

bool guarded_map(struct guarded *guarded, size_t bytes)
{
    size_t slack = find_slack();
    size_t whole = (bytes + slack + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    *guarded = (struct guarded){0};
    uint8_t *base = mmap(NULL, whole + (size_t)2 * PAGE_BYTES, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return false;
    }
    if (mprotect(base + PAGE_BYTES, whole, PROT_READ | PROT_WRITE) != 0) {
        munmap(base, whole + (size_t)2 * PAGE_BYTES);
        return false;
    }
    guarded->begin = base + PAGE_BYTES;
    guarded->end = guarded->begin + whole - slack;
    return true;
}

void guarded_unmap(struct guarded *guarded)
{
    if (guarded->begin) {
        uint8_t *base = guarded->begin - PAGE_BYTES;
        munmap(base, (size_t)(guarded->end + find_slack() - base) + PAGE_BYTES);
    }
    *guarded = (struct guarded){0};
}

uint8_t *guarded_place(const struct guarded *guarded, size_t bytes)
{
    return draw(4) ? guarded->end - bytes : guarded->begin;
}
