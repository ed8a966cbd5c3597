#include "tests/bench/bench_roofline.h"

#include <assert.h>
#include <string.h>

/* Locality arguments of __builtin_prefetch: 3 is the L1 cache, 2 is L2. */
#define LEVEL_L1 3
#define LEVEL_L2 2

struct way {
    const char *name;
    uint64_t (*read)(const struct eb_bench_rows *rows);
};

static inline const uint8_t *line_of(const uint8_t *row)
{
    return row - (uintptr_t)row % EB_LINE_BYTES;
}

static inline uint64_t load_word(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Reads one word of every cache line of a row. This stays within the table's memory, which begins
 * and ends at a cache line. */
static inline uint64_t read_row(const struct eb_bench_rows *rows, uint64_t i)
{
    const uint8_t *row = rows->rows[i];
    const uint8_t *end = row + rows->row_bytes;
    uint64_t sum = rows->scales ? load_word(rows->scales[i]) : 0;
    for (const uint8_t *line = line_of(row); line < end; line += EB_LINE_BYTES) {
        sum += load_word(line);
    }
    return sum;
}

#define CALL_ROW(rows, i, level)                                                                   \
    do {                                                                                           \
        const uint8_t *end = (rows)->rows[i] + (rows)->row_bytes;                                  \
        for (const uint8_t *line = line_of((rows)->rows[i]); line < end; line += EB_LINE_BYTES) {  \
            __builtin_prefetch(line, 0, level);                                                    \
        }                                                                                          \
        if ((rows)->scales) {                                                                      \
            __builtin_prefetch((rows)->scales[i], 0, level);                                       \
        }                                                                                          \
    } while (0)

/* Defines a function that prefetches whole rows `near` rows ahead into a cache level, and their
 * first cache lines `far` rows ahead. */
#define DEFINE_WAY(way_name, near, level, far)                                                     \
    static uint64_t way_name(const struct eb_bench_rows *rows)                                     \
    {                                                                                              \
        uint64_t sum = 0;                                                                          \
        for (uint64_t i = 0; i < rows->count; i++) {                                               \
            if ((far) > 0 && i + (far) < rows->count) {                                            \
                __builtin_prefetch(rows->rows[i + (far)], 0, LEVEL_L2);                            \
            }                                                                                      \
            if ((near) > 0 && i + (near) < rows->count) {                                          \
                CALL_ROW(rows, i + (near), level);                                                 \
            }                                                                                      \
            sum += read_row(rows, i);                                                              \
        }                                                                                          \
        return sum;                                                                                \
    }

DEFINE_WAY(read_plainly, 0, LEVEL_L1, 0)
DEFINE_WAY(read_l1_16, 16, LEVEL_L1, 0)
DEFINE_WAY(read_l2_16, 16, LEVEL_L2, 0)
DEFINE_WAY(read_l2_32, 32, LEVEL_L2, 0)
DEFINE_WAY(read_l2_64, 64, LEVEL_L2, 0)
DEFINE_WAY(read_l2_32_far_64, 32, LEVEL_L2, 64)
DEFINE_WAY(read_l2_64_far_128, 64, LEVEL_L2, 128)

/* Prefetches whole rows into L2, and then into L1 shortly before they are read. */
static uint64_t read_l2_64_l1_4(const struct eb_bench_rows *rows)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < rows->count; i++) {
        if (i + 64 < rows->count) {
            CALL_ROW(rows, i + 64, LEVEL_L2);
        }
        if (i + 4 < rows->count) {
            CALL_ROW(rows, i + 4, LEVEL_L1);
        }
        sum += read_row(rows, i);
    }
    return sum;
}

static const struct way ways[] = {
    {"no prefetch", read_plainly},
    {"l1:16", read_l1_16},
    {"l2:16", read_l2_16},
    {"l2:32", read_l2_32},
    {"l2:64", read_l2_64},
    {"first line 64, l2:32", read_l2_32_far_64},
    {"first line 128, l2:64", read_l2_64_far_128},
    {"l2:64, l1:4", read_l2_64_l1_4},
};

#define WAY_COUNT (sizeof ways / sizeof ways[0])

unsigned eb_bench_roofline_way_count(void)
{
    return WAY_COUNT;
}

const char *eb_bench_roofline_way_name(unsigned way)
{
    assert(way < WAY_COUNT);
    return ways[way].name;
}

static void prepare_roofline(void *self, uint64_t position)
{
    struct eb_bench_roofline *roofline = self;
    eb_bench_rows_list(&roofline->rows, roofline->bench, roofline->thread, position);
    if (roofline->bench->state == EB_BENCH_FLUSHED) {
        eb_bench_rows_flush(&roofline->rows);
    }
}

static void run_roofline(void *self)
{
    struct eb_bench_roofline *roofline = self;
    for (uint32_t i = 0; i < roofline->repeat_count; i++) {
        roofline->sum += ways[roofline->way].read(&roofline->rows);
        __asm__ volatile("" : : "r"(roofline->sum) : "memory");
    }
}

void eb_bench_roofline_init(struct eb_bench_roofline *roofline, const struct eb_bench_case *bench,
    unsigned thread, uint32_t call_count)
{
    *roofline = (struct eb_bench_roofline){.bench = bench, .thread = thread};
    roofline->repeat_count = bench->state == EB_BENCH_HOT ? call_count : 1;
    eb_bench_rows_init(&roofline->rows, bench, call_count / roofline->repeat_count);
}

void eb_bench_roofline_deinit(struct eb_bench_roofline *roofline)
{
    eb_bench_rows_deinit(&roofline->rows);
    *roofline = (struct eb_bench_roofline){0};
}

struct eb_bench_runner eb_bench_roofline_runner(struct eb_bench_roofline *roofline)
{
    return (struct eb_bench_runner){
        .self = roofline, .prepare = prepare_roofline, .run = run_roofline};
}
