#include "kernels/bag_schedule.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The sizes that eb_bag_tune_find_defaults sets on Zen 2 and 3 for an L1 cache of 32 KiB and an L2
 * cache of 1 MiB; elsewhere half of L2 counts as cached. */
#define CACHED_BYTES (UINT64_C(32) << 10)
#define GENERIC_CACHED_BYTES (UINT64_C(1) << 20)
#define NEARBY_BYTES (UINT64_C(8) << 20)

#define EVERY_CLASS(...)                                                                           \
    {                                                                                              \
        __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__                            \
    }

/* Chosen by measurements on Sapphire Rapids, before rows were prefetched by their index:
 * it was within 3 % of the best schedule for every class. Twice the distance gained nothing more,
 * and made a lookup of a hundred rows a tenth slower, since prefetching begins later. On Sapphire
 * Rapids, ns per row of 128, 256, 512 and 1024 bytes: 12.8, 18.4, 32.4 and 64.6; with 0:16:l1 18.2,
 * 27.4, 44.1 and 86.6. The schedule of nearby rows was measured there for rows that are converted
 * only: 16 000 rows of 256 columns, int8 11.6 ns instead of 14.0 with 64:32:l2, f16 17.5 instead of
 * 26.0. */
const struct eb_bag_schedules eb_bag_schedules_default = {
    .of_class = EVERY_CLASS({64, false, 32, false}),
    .cached_bytes = CACHED_BYTES,
    .generic_cached_bytes = GENERIC_CACHED_BYTES,
    .nearby_bytes = NEARBY_BYTES,
    .nearby = EVERY_CLASS({0, false, 16, true}),
};

/* Zen 2 and Zen 3. Measured on a Zen 3 virtual machine with 2 GB of f32, as FBGEMM's time divided
 * by ours, for rows of 256, 512 and 1024 bytes: 0.93, 0.99 and 0.87 with 0:16:l1; 1.00, 1.04
 * and 1.02 with 0:8:l1. For tables in L2, 0:12:l1 is good up to 512 bytes, and 0:8:l1 for 1024. */
static const struct eb_bag_schedules zen2_schedules = {
    .of_class = {{0, false, 16, true}, {0, false, 16, true}, {0, false, 8, true},
        {0, false, 8, true}, {0, false, 8, true}},
    .cached_bytes = CACHED_BYTES,
    .generic_cached_bytes = GENERIC_CACHED_BYTES,
    .nearby_bytes = NEARBY_BYTES,
    .nearby = {{0, false, 12, true}, {0, false, 12, true}, {0, false, 12, true},
        {0, false, 12, true}, {0, false, 8, true}},
};

/* Zen 4. Measured on a Zen 4 virtual machine. From DRAM, ns per row of 256, 512, 1024 and 2048
 * bytes of f32: 17.9, 46.0, 85.4 and 127 with 64:32:l2; 20.0, 40.9, 77.0 and 103 with 0:32:l2. For
 * tables of 4 MiB in L3, FBGEMM's time divided by ours: rows of at most 256 bytes 0.95 (f32, 256
 * bytes), 1.41 and 2.05 (int8 and int4, 136 bytes) with 0:24:l1; 0.91, 1.37 and 1.85 with 0:16:l1;
 * rows of 1024 bytes 1.02 with 0:8:l1, and 0.97 with 0:16:l1. For rows of 512 bytes 0:16:l1 and
 * 0:24:l1 differ by 2 %. */
static const struct eb_bag_schedules zen4_schedules = {
    .of_class = {{64, false, 32, false}, {64, false, 32, false}, {64, false, 32, false},
        {0, false, 32, false}, {0, false, 32, false}},
    .cached_bytes = CACHED_BYTES,
    .generic_cached_bytes = GENERIC_CACHED_BYTES,
    .nearby_bytes = NEARBY_BYTES,
    .nearby = {{0, false, 24, true}, {0, false, 24, true}, {0, false, 24, true},
        {0, false, 16, true}, {0, false, 8, true}},
};

/* Intel's servers before Sapphire Rapids. Their 10 to 12 line-fill buffers bound the misses that
 * are under way. Not measured. */
static const struct eb_bag_schedules haswell_schedules = {
    .of_class = EVERY_CLASS({0, false, 12, true}),
    .cached_bytes = CACHED_BYTES,
    .generic_cached_bytes = GENERIC_CACHED_BYTES,
    .nearby_bytes = NEARBY_BYTES,
    .nearby = EVERY_CLASS({0, false, 12, true}),
};

const struct eb_bag_schedules *eb_bag_schedules_of(enum eb_processor_family family)
{
    switch (family) {
    case EB_PROCESSOR_ZEN2:
    case EB_PROCESSOR_ZEN3: return &zen2_schedules;
    case EB_PROCESSOR_ZEN4: return &zen4_schedules;
    case EB_PROCESSOR_HASWELL:
    case EB_PROCESSOR_SKYLAKE:
    case EB_PROCESSOR_ICE_LAKE: return &haswell_schedules;
    case EB_PROCESSOR_ZEN5:
    case EB_PROCESSOR_SAPPHIRE_RAPIDS:
    case EB_PROCESSOR_OTHER:
    case EB_PROCESSOR_FAMILY_COUNT: break;
    }
    return &eb_bag_schedules_default;
}

unsigned eb_bag_schedule_row_class(uint64_t row_bytes)
{
    uint64_t more_lines = row_bytes > 0 ? (row_bytes - 1) / EB_LINE_BYTES : 0;
    /* The logarithm of the count of cache lines, rounded up. */
    unsigned class = more_lines > 0 ? 64 - (unsigned)__builtin_clzll(more_lines) : 0;
    return class < EB_BAG_ROW_CLASS_COUNT ? class : EB_BAG_ROW_CLASS_COUNT - 1;
}

/* Returns whether scales lie so close before their rows' columns that the same cache lines have
 * both. */
static bool has_scales_with_rows(const struct eb_table *table)
{
    return table->scale_stride_bytes == table->row_stride_bytes &&
           (uintptr_t)table->rows - (uintptr_t)table->scales < table->row_stride_bytes;
}

struct eb_bag_lines eb_bag_lines_find(
    const struct eb_table *table, uint32_t element_first, uint32_t element_end)
{
    uintptr_t rows = (uintptr_t)table->rows;
    bool has_scales_apart = table->scales && !has_scales_with_rows(table);
    uint64_t row_bytes = eb_storage_row_bytes(table->storage, table->row_elements);
    uintptr_t columns = rows + (uint64_t)element_first * eb_storage_bits(table->storage) / 8;
    uintptr_t columns_end = rows + eb_storage_row_bytes(table->storage, element_end);
    uintptr_t first = columns;
    if (table->scales && !has_scales_apart && element_first == 0) {
        first = (uintptr_t)table->scales;
    }
    uint64_t bytes = columns_end - first;
    uint64_t count = (bytes + EB_LINE_BYTES - 1) / EB_LINE_BYTES;
    uint64_t last_line_bytes = bytes - (count - 1) * EB_LINE_BYTES;
    /* Rows begin at multiples of the lowest bit that is set in base or stride. */
    uint64_t offset_bits = first | table->row_stride_bytes | EB_LINE_BYTES;
    count += last_line_bytes > (offset_bits & -offset_bits);
    uint64_t column_bytes = columns_end - columns;
    uint64_t compact_count = (column_bytes + EB_LINE_BYTES - 1) / EB_LINE_BYTES + !!table->scales;
    return (struct eb_bag_lines){
        .first = first,
        .table_bytes = table->row_count * table->row_stride_bytes,
        .bytes = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX,
        .count = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX,
        .row_class = (uint8_t)eb_bag_schedule_row_class(row_bytes),
        .is_compact = count <= compact_count && !has_scales_apart,
        .has_scales_apart = has_scales_apart,
    };
}

/* Reads the digits at *at, and moves *at past them. A number above EB_BAG_SCHEDULE_ROWS_MAX becomes
 * that limit + 1. */
static bool read_rows(const char **at, uint16_t *out)
{
    unsigned rows = 0;
    if (!isdigit((unsigned char)**at)) {
        return false;
    }
    for (; isdigit((unsigned char)**at); (*at)++) {
        rows = rows * 10 + (unsigned)(**at - '0');
        rows = rows <= EB_BAG_SCHEDULE_ROWS_MAX ? rows : EB_BAG_SCHEDULE_ROWS_MAX + 1;
    }
    *out = (uint16_t)rows;
    return true;
}

/* Reads a schedule. Returns whether the text has the form of a schedule. */
static bool read_form(const char *at, struct eb_bag_schedule *out)
{
    if (!read_rows(&at, &out->far_rows)) {
        return false;
    }
    out->far_is_whole = *at == 'w';
    at += *at == 'w';
    if (*at++ != ':' || !read_rows(&at, &out->near_rows)) {
        return false;
    }
    out->near_is_l1 = strcmp(at, ":l1") == 0;
    return out->near_is_l1 || strcmp(at, ":l2") == 0;
}

const char *eb_bag_schedule_parse(const char *text, struct eb_bag_schedule *out)
{
    struct eb_bag_schedule schedule = {0};
    if (strcmp(text, "off") == 0) {
        *out = schedule;
        return NULL;
    }
    if (!read_form(text, &schedule)) {
        return "expected off, FAR:NEAR:l1 or FAR:NEAR:l2, such as 128:64:l2, 64w:4:l1 or 0:16:l1";
    }
    if (schedule.far_rows > EB_BAG_SCHEDULE_ROWS_MAX ||
        schedule.near_rows > EB_BAG_SCHEDULE_ROWS_MAX) {
        return "FAR and NEAR may be at most 4096 rows";
    }
    if (schedule.far_rows > 0 && schedule.far_rows <= schedule.near_rows) {
        return "FAR must be greater than NEAR, or 0 to use one distance only";
    }
    *out = schedule;
    return NULL;
}

void eb_bag_schedule_format(
    const struct eb_bag_schedule *schedule, char out[EB_BAG_SCHEDULE_TEXT_BYTES])
{
    if (eb_bag_schedule_is_off(schedule)) {
        snprintf(out, EB_BAG_SCHEDULE_TEXT_BYTES, "off");
        return;
    }
    snprintf(out, EB_BAG_SCHEDULE_TEXT_BYTES, "%u%s:%u:%s", schedule->far_rows,
        schedule->far_is_whole ? "w" : "", schedule->near_rows, schedule->near_is_l1 ? "l1" : "l2");
}

void eb_bag_schedule_spread(const struct eb_bag_schedule *schedule, struct eb_bag_schedules *out)
{
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        out->of_class[class] = *schedule;
        out->nearby[class] = *schedule;
    }
    out->cached_bytes = eb_bag_schedule_is_off(schedule) ? UINT64_MAX : out->cached_bytes;
    out->generic_cached_bytes = out->cached_bytes;
    out->nearby_bytes = out->cached_bytes;
}
