#include "tests/bench/bench_table.h"

#include "client/cli/load_clock.h"
#include "client/cli/workload.h"
#include "kernels/float_row.h"
#include "kernels/fused_row.h"
#include "kernels/table.h"
#include "server/base/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PROGRESS_US 2e6
/* Rows between two checks of the clock. */
#define PROGRESS_ROWS 4096
/* Codes have scales of 1 to 64 of these units, and biases in [-1, 1). f16 represents both
 * exactly. */
#define SCALE_UNIT 0x1p-12f
/* fp8 without its largest exponents: no NaN, no infinity, and small sums. */
#define FP8_MASK UINT64_C(0xbfbfbfbfbfbfbfbf)

uint64_t eb_bench_table_row_bytes(enum eb_storage storage, uint32_t dim)
{
    return eb_storage_row_bytes(storage, dim) +
           (eb_storage_is_code(storage) ? sizeof(struct eb_row_scale) : 0);
}

/* State of filling a table. The values of a row come from the hash of generated test tables: f32
 * values for f32, f64, f16 and bf16, and the bytes of the hash itself for the other storages. */
struct filling {
    const struct eb_bench_table_spec *spec;
    uint8_t *rows;
    uint64_t stride_bytes;
    uint8_t *scales;
    uint64_t scale_stride_bytes;
    float values[EB_BENCH_DIM_MAX];
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xD6E8FEB86659FD93);
    x ^= x >> 32;
    x *= UINT64_C(0xD6E8FEB86659FD93);
    return x ^ x >> 32;
}

static void fill_bytes(const struct filling *filling, uint64_t row, uint64_t mask)
{
    uint8_t *out = filling->rows + row * filling->stride_bytes;
    uint64_t bytes = eb_storage_row_bytes(filling->spec->storage, filling->spec->dim);
    uint64_t state = mix(filling->spec->seed + row);
    for (uint64_t at = 0; at < bytes; at += sizeof state) {
        uint64_t word = mix(state += UINT64_C(0x9E3779B97F4A7C15)) & mask;
        memcpy(out + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word);
    }
}

static void fill_f64(const struct filling *filling, uint64_t row)
{
    double *out = (double *)(filling->rows + row * filling->stride_bytes);
    for (uint32_t i = 0; i < filling->spec->dim; i++) {
        out[i] = (double)filling->values[i];
    }
}

static void fill_row(struct filling *filling, uint64_t row)
{
    const struct eb_bench_table_spec *spec = filling->spec;
    uint8_t *out = filling->rows + row * filling->stride_bytes;
    if (filling->scales) {
        fill_bytes(filling, row, UINT64_MAX);
        uint64_t bits = mix(spec->seed ^ ~row);
        struct eb_row_scale scale = {.scale = (float)(bits % 64 + 1) * SCALE_UNIT,
            .bias = (float)((int)(bits >> 8 & 255) - 128) / 128};
        memcpy(filling->scales + row * filling->scale_stride_bytes, &scale, sizeof scale);
        return;
    }
    switch (spec->storage) {
    case EB_STORAGE_F32: eb_workload_fill_row(spec->seed, row, (float *)out, spec->dim); return;
    case EB_STORAGE_F64:
        eb_workload_fill_row(spec->seed, row, filling->values, spec->dim);
        fill_f64(filling, row);
        return;
    case EB_STORAGE_F16:
    case EB_STORAGE_BF16:
        eb_workload_fill_row(spec->seed, row, filling->values, spec->dim);
        eb_float_row_narrow(spec->storage, filling->values, spec->dim, out);
        return;
    case EB_STORAGE_F8_E4M3:
    case EB_STORAGE_F8_E5M2: fill_bytes(filling, row, FP8_MASK); return;
    default: fill_bytes(filling, row, UINT64_MAX); return;
    }
}

/* Calls `fill` for each row, and prints progress on stderr every two seconds. */
static void fill_rows(
    const char *what, uint64_t row_count, void (*fill)(void *, uint64_t), void *context)
{
    double last_us = eb_load_clock_read_us();
    bool is_told = false;
    for (uint64_t row = 0; row < row_count; row++) {
        fill(context, row);
        if (row % PROGRESS_ROWS == 0 && eb_load_clock_read_us() - last_us > PROGRESS_US) {
            last_us = eb_load_clock_read_us();
            is_told = true;
            fprintf(stderr, "filling %s: %.0f %%\n", what, 100 * (double)row / (double)row_count);
        }
    }
    if (is_told) {
        fprintf(stderr, "filling %s: done\n", what);
    }
}

static void fill_own(void *context, uint64_t row)
{
    fill_row(context, row);
}

/* Allocates memory for rows and scales in the layout of the spec. */
static bool lay_out(struct eb_bench_table *out, const struct eb_bench_table_spec *spec,
    struct filling *filling, struct eb_failure *failure)
{
    bool is_code = eb_storage_is_code(spec->storage);
    bool is_apart = is_code && spec->has_scales_apart;
    struct eb_row_format format = eb_row_format_of(spec->storage, spec->dim);
    if (is_apart) {
        format.row_offset_bytes = 0;
        format.bytes_max = eb_storage_row_bytes(spec->storage, spec->dim);
        format.stride_bytes = eb_row_stride(format.bytes_max);
    }
    uint64_t bytes = spec->row_count * format.stride_bytes + format.bytes_max;
    uint8_t *base = eb_table_memory_take(&out->memory, bytes, failure);
    if (!base) {
        return false;
    }
    filling->rows = base + format.row_offset_bytes;
    filling->stride_bytes = format.stride_bytes;
    filling->scales = is_code ? base : NULL;
    filling->scale_stride_bytes = format.stride_bytes;
    if (is_apart) {
        filling->scale_stride_bytes = sizeof(struct eb_row_scale);
        filling->scales = eb_table_memory_take(
            &out->memory, spec->row_count * sizeof(struct eb_row_scale), failure);
    }
    return filling->scales || !is_code;
}

static bool make_own(
    struct eb_bench_table *out, const struct eb_bench_table_spec *spec, struct eb_failure *failure)
{
    struct filling filling = {.spec = spec};
    out->memory.options.pages = spec->pages;
    if (!lay_out(out, spec, &filling, failure)) {
        return false;
    }
    fill_rows("the table", spec->row_count, fill_own, &filling);
    out->table = (struct eb_table){
        .rows = filling.rows,
        .row_count = spec->row_count,
        .row_stride_bytes = filling.stride_bytes,
        .scales = filling.scales,
        .scale_stride_bytes = filling.scales ? filling.scale_stride_bytes : 0,
        .row_elements = spec->dim,
        .storage = spec->storage,
        .type = eb_storage_type(spec->storage),
        .unknown_row = -1,
    };
    return true;
}

/* State of copying our rows into the peer's format. */
struct copying {
    const struct eb_table *table;
    struct eb_fused_format format; /* layout of the peer's rows of codes */
    uint8_t *rows;
    uint64_t stride_bytes;
};

static void copy_row(void *context, uint64_t row)
{
    const struct copying *copying = context;
    const struct eb_table *table = copying->table;
    const uint8_t *own = (const uint8_t *)table->rows + row * table->row_stride_bytes;
    uint8_t *out = copying->rows + row * copying->stride_bytes;
    if (table->scales) {
        struct eb_row_scale scale = eb_table_scale(table, row);
        (void)eb_fused_row_join(&copying->format, own, &scale, out);
    } else {
        memcpy(out, own, copying->stride_bytes);
    }
}

static bool make_table_peer(
    struct eb_bench_table *out, const struct eb_bench_table_spec *spec, struct eb_failure *failure)
{
    const struct eb_table *table = &out->table;
    if (!table->scales && spec->pages == spec->peer_pages) {
        out->peer_rows = table->rows;
        out->peer_stride_bytes = table->row_stride_bytes;
        return true;
    }
    struct copying copying = {.table = table,
        .format = {.storage = spec->storage,
            .layout = spec->storage == EB_STORAGE_INT8 ? EB_FUSED_F32_LAST : EB_FUSED_F16_LAST,
            .elements = spec->dim},
        .stride_bytes = table->row_stride_bytes};
    if (table->scales) {
        copying.stride_bytes = eb_fused_row_bytes(&copying.format);
    }
    out->peer_memory.options.pages = spec->peer_pages;
    copying.rows =
        eb_table_memory_take(&out->peer_memory, spec->row_count * copying.stride_bytes, failure);
    if (!copying.rows) {
        return false;
    }
    fill_rows("the peer's table", spec->row_count, copy_row, &copying);
    out->peer_rows = copying.rows;
    out->peer_stride_bytes = copying.stride_bytes;
    return true;
}

static void count_pages(struct eb_bench_table *table)
{
    struct eb_page_report report;
    if (eb_page_report_open(&report, "") != 0) {
        return;
    }
    uint64_t rows = table->table.row_count;
    table->pages =
        eb_page_report_count(&report, table->table.rows, rows * table->table.row_stride_bytes);
    if (table->peer_rows) {
        table->peer_pages =
            eb_page_report_count(&report, table->peer_rows, rows * table->peer_stride_bytes);
    }
    eb_page_report_close(&report);
}

/* Checks that there is enough memory for the approximate size of our rows and the peer's. Pages are
 * allocated only when they are written, and a system that runs out of memory kills processes. */
static bool check_room(const struct eb_bench_table_spec *spec, struct eb_failure *failure)
{
    uint64_t bytes = spec->row_count * eb_bench_table_row_bytes(spec->storage, spec->dim);
    bool is_copied = eb_storage_is_code(spec->storage) || spec->pages != spec->peer_pages;
    bytes *= spec->has_peer && is_copied ? 2 : 1;
    uint64_t available = eb_machine_available_bytes();
    return bytes <= available ||
           eb_failure_set(failure,
               "the table takes %" PRIu64 " bytes, but only %" PRIu64 " are available", bytes,
               available);
}

bool eb_bench_table_init(
    struct eb_bench_table *out, const struct eb_bench_table_spec *spec, struct eb_failure *failure)
{
    *out = (struct eb_bench_table){0};
    if (!check_room(spec, failure) || !make_own(out, spec, failure) ||
        (spec->has_peer && !make_table_peer(out, spec, failure))) {
        return false;
    }
    count_pages(out);
    return true;
}

void eb_bench_table_deinit(struct eb_bench_table *table)
{
    eb_table_memory_deinit(&table->memory);
    eb_table_memory_deinit(&table->peer_memory);
    *table = (struct eb_bench_table){0};
}

const char *eb_bench_table_page_name(const struct eb_page_count *pages)
{
    double bytes = (double)pages->bytes;
    if (pages->bytes == 0) {
        return "unknown";
    }
    if ((double)pages->bytes_2m > 0.99 * bytes) {
        return "2m";
    }
    if ((double)pages->bytes_1g > 0.99 * bytes) {
        return "1g";
    }
    return (double)(pages->bytes_2m + pages->bytes_1g) < 0.01 * bytes ? "4k" : "mixed";
}
