/* Memory that counts what is lent, checks what is given back, and can fail at any one request. */
#pragma once

#include "proto/memory.h"

struct lender {
    struct eb_memory memory;
    size_t taken_count;   /* requests so far, the failed one included */
    size_t fail_at;       /* which request fails, counted from 1; 0: none */
    size_t lent_count;    /* pieces not given back */
    size_t lent_bytes;    /* the sum of their sizes */
    size_t largest_bytes; /* the largest request */
};

/* `lender` must not move, because lender->memory points at it. */
void lender_init(struct lender *lender, size_t fail_at);
