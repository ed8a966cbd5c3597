/* A table to measure, filled with finite values, and the same values in the peer's format: rows of
 * codes that contain scale and bias, or the same memory as our rows.
 * Thread: one; read-only after initialisation. Memory: mappings, until deinit. */
#pragma once

#include "kernels/bag.h"
#include "server/tables/page_report.h"
#include "server/tables/table_memory.h"

/* Limit on the elements of a row. */
#define EB_BENCH_DIM_MAX 8192

struct eb_bench_table_spec {
    enum eb_storage storage;
    uint32_t dim;
    uint64_t row_count;
    uint64_t seed;         /* seed of its values */
    bool has_scales_apart; /* codes: scales in a separate array, unlike in the server's tables */
    enum eb_page_size pages;
    bool has_peer; /* whether to make the peer's rows too */
    enum eb_page_size peer_pages;
};

struct eb_bench_table {
    struct eb_table table;
    const void *peer_rows; /* our own rows if the peer can use them; NULL: none */
    uint64_t peer_stride_bytes;
    struct eb_page_count pages;      /* actual pages of the rows */
    struct eb_page_count peer_pages; /* actual pages of the peer's rows */
    struct eb_table_memory memory;
    struct eb_table_memory peer_memory;
};

/* Returns the bytes of a row that a lookup must read: its elements, and scale and bias of codes. */
uint64_t eb_bench_table_row_bytes(enum eb_storage storage, uint32_t dim);

/* Allocates and fills the table, and prints progress on stderr if that takes seconds. Returns false
 * and sets *failure; then *out may be deinited. */
bool eb_bench_table_init(
    struct eb_bench_table *out, const struct eb_bench_table_spec *spec, struct eb_failure *failure);
/* Frees the table. Accepts a zeroed struct. */
void eb_bench_table_deinit(struct eb_bench_table *table);

/* Returns "2m", "1g" or "4k" if more than 99 % of the bytes are in such pages, otherwise "mixed",
 * or "unknown" if the pages could not be counted. */
const char *eb_bench_table_page_name(const struct eb_page_count *pages);
