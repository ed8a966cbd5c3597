#include "tests/unit/proto/lender.h"

static void *take(void *context, size_t bytes)
{
    struct lender *lender = context;
    if (++lender->taken_count == lender->fail_at) {
        return NULL;
    }
    void *memory = eb_memory_heap.take(eb_memory_heap.context, bytes);
    if (memory) {
        lender->lent_count++;
        lender->lent_bytes += bytes;
        lender->largest_bytes = bytes > lender->largest_bytes ? bytes : lender->largest_bytes;
    }
    return memory;
}

static void give(void *context, void *memory, size_t bytes)
{
    struct lender *lender = context;
    lender->lent_count--;
    lender->lent_bytes -= bytes;
    eb_memory_heap.give(eb_memory_heap.context, memory, bytes);
}

void lender_init(struct lender *lender, size_t fail_at)
{
    *lender = (struct lender){
        .memory = {.take = take, .give = give, .context = lender},
        .fail_at = fail_at,
    };
}
