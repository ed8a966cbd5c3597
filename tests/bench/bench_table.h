/* A table to measure on, filled with finite values, and the same values as the peer wants them:
 * rows of codes with scale and bias inside, or the very same rows.
 * Thread: one; read-only once made. Memory: mappings, until deinit. */
#pragma once

#include "kernels/bag.h"
#include "server/tables/page_report.h"
#include "server/tables/table_memory.h"

/* Most elements of a row. */
#define EB_BENCH_DIM_MAX 8192

struct eb_bench_table_spec {
    enum eb_storage storage;
    uint32_t dim;
    uint64_t row_count;
    uint64_t seed;         /* of its values */
    bool has_scales_apart; /* codes: in an array of their own, not as our tables have them */
    enum eb_page_size pages;
    bool has_peer; /* the peer's rows are wanted too */
    enum eb_page_size peer_pages;
};

struct eb_bench_table {
    struct eb_table table;
    const void *peer_rows; /* our own where they serve; NULL: not wanted */
    uint64_t peer_stride_bytes;
    struct eb_page_count pages;      /* of the rows, as they really are */
    struct eb_page_count peer_pages; /* likewise */
    struct eb_table_memory memory;
    struct eb_table_memory peer_memory;
};

/* Bytes of a row that a lookup must read: its elements, and the scale and bias of codes. */
uint64_t eb_bench_table_row_bytes(enum eb_storage storage, uint32_t dim);

/* Makes and fills the table, which says on stderr how far it is where that takes seconds. false:
 * *error; *out may be deinited. */
bool eb_bench_table_init(
    struct eb_bench_table *out, const struct eb_bench_table_spec *spec, struct eb_failure *failure);
/* Accepts a zeroed table. */
void eb_bench_table_deinit(struct eb_bench_table *table);

/* "2m", "1g", "4k" where more than 99 % of the bytes lie in such pages, else "mixed". */
const char *eb_bench_table_page_name(const struct eb_page_count *pages);
