#include "kernels/bag_schedule.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Within 3 % of the best schedule for every class. Times on a Sapphire Rapids virtual machine with
 * 2 GB of f32, in ns per row of 128, 256, 512 and 1024 bytes: 12.8, 18.4, 32.4 and 64.6 with this
 * schedule; 13.9, 20.4, 32.9 and 66.2 without the far prefetches; 18.2, 27.4, 44.1 and 86.6 if rows
 * are prefetched 16 rows ahead into L1 instead. Twice the distance gains nothing more, and makes a
 * lookup of a hundred rows a tenth slower, since prefetching begins later. */
const struct eb_bag_schedules eb_bag_schedules_default = {
    .of_class = {{64, false, 32, false}, {64, false, 32, false}, {64, false, 32, false},
        {64, false, 32, false}, {64, false, 32, false}},
    /* The sizes that eb_bag_tune_find_caches sets for an L2 cache of 1 MiB. */
    .cached_bytes = 1 << 20,
    .nearby_bytes = 8 << 20,
    /* Times per row with this schedule and with 64:32:l2, for 16 000 rows of 256 columns: int8 11.6
     * ns instead of 14.0, int4 10.0 ns instead of 12.1, f16 17.5 ns instead of 26.0. */
    .nearby = {0, false, 16, true},
};

unsigned eb_bag_schedule_row_class(uint64_t row_bytes)
{
    uint64_t more_lines = row_bytes > 0 ? (row_bytes - 1) / EB_LINE_BYTES : 0;
    /* The logarithm of the count of cache lines, rounded up. */
    unsigned class = more_lines > 0 ? 64 - (unsigned)__builtin_clzll(more_lines) : 0;
    return class < EB_BAG_ROW_CLASS_COUNT ? class : EB_BAG_ROW_CLASS_COUNT - 1;
}

const struct eb_bag_schedule *eb_bag_schedule_find(
    const struct eb_bag_schedules *schedules, const struct eb_table *table)
{
    if (table->row_count * table->row_stride_bytes <= schedules->nearby_bytes) {
        return &schedules->nearby;
    }
    uint64_t row_bytes = eb_storage_row_bytes(table->storage, table->row_elements);
    return &schedules->of_class[eb_bag_schedule_row_class(row_bytes)];
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

bool eb_bag_schedule_is_off(const struct eb_bag_schedule *schedule)
{
    return schedule->far_rows == 0 && schedule->near_rows == 0;
}

void eb_bag_schedule_spread(const struct eb_bag_schedule *schedule, struct eb_bag_schedules *out)
{
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        out->of_class[class] = *schedule;
    }
    out->cached_bytes = eb_bag_schedule_is_off(schedule) ? UINT64_MAX : out->cached_bytes;
    out->nearby_bytes = out->cached_bytes;
    out->nearby = *schedule;
}
