#include "kernels/bag_tune.h"

#include "kernels/bag_stream.h"

#include <time.h>
#include <unistd.h>

/* Rounds of measurement. Each candidate's fastest round is used, since a disturbance can only make
 * a round slower. */
#define ROUNDS 5
/* If there is time only for fewer rounds, the class counts as not measured. */
#define ROUNDS_MIN 3
/* Least gain over the default with which a candidate is chosen: 5 %, more than the noise. */
#define GAIN_MIN 0.05

/* Least memory to measure on: this many times the L2 cache, and no less than BYTES_MIN. */
#define BYTES_PER_CACHE 32
#define BYTES_MIN (UINT64_C(64) << 20)
/* A table of up to this many times the size of L2 is nearby: its rows come from L3. For f32 the
 * processor's own reordering hides the time that L3 takes. For rows that are converted, reordering
 * does not hide it, so only those rows are prefetched. Measured with 2 MiB of L2, in ns per row
 * without and with prefetches:
 *
 *   40 000 rows of 256 codes of 8 bits   21.6   13.1
 *   40 000 rows of 256 codes of 4 bits   17.3   11.6
 *   40 000 rows of 128 columns of f16    10.6    8.0
 *   40 000 rows of 128 columns of f32    18.9   18.8   a quarter more for a hot part of the table
 *   16 MiB of 32 columns of f32           3.7    5.4
 *   32 MiB of 32 columns of f32           4.9    5.2
 *   64 MiB of 32 columns of f32           7.5    5.6   prefetches have begun to pay */
#define CACHES_NEARBY 8
#define CACHE_BYTES_UNKNOWN (UINT64_C(1) << 20)
/* The most rows that 32 random bits can choose from. */
#define ROWS_MAX UINT32_MAX

/* Measured on a Sapphire Rapids virtual machine with 2 GB of f32 in pages of 2 MiB and one thread,
 * in ns per row of 128, 256, 512 and 1024 bytes. On Zen 4 the last schedule was best for tables of
 * 12 GB. Rows of 64 bytes are bound by page walks: they take 12.4 ns with 0:16:l1, and 10.9 ns with
 * every other schedule. */
const struct eb_bag_schedule eb_bag_tune_candidates[EB_BAG_TUNE_CANDIDATE_COUNT] = {
    {64, false, 32, false},  /* 12.8 18.4 32.4 64.6 */
    {128, false, 64, false}, /* 12.8 17.4 32.6 64.7 */
    {64, false, 16, false},  /* 12.7 18.0 34.6 68.2 */
    {0, false, 64, false},   /* 13.9 20.4 32.9 66.2 */
    {0, false, 32, false},   /* best on Zen 4 for tables of 2 GB */
    {0, false, 16, true},    /* 18.2 27.4 44.1 86.6 */
    {0, false, 24, true},    /* best on Zen 5 for 256-byte rows of 32 tables of 32 MB */
    {0, false, 48, true},    /* best, or within 4 %, for such rows of one table of 64 MB to 1 GB */
    {64, false, 16, true},   /* for processors that ignore the hint for L2 */
    {0, false, 0, false}, {64, true, 4, true}, /* 14.2 19.6 35 72 */
};

struct trial {
    struct eb_bag_tune_scratch *scratch;
    uint64_t (*now_ns)(void);
    uint64_t random;
    unsigned piece_count;
    const struct eb_bag_tune_piece *pieces;
    struct eb_table tables[EB_BAG_TUNE_PIECES_MAX]; /* the pieces, as tables of a class's rows */
    struct eb_bag_job jobs[EB_BAG_TUNE_PIECES_MAX]; /* bags of each piece; the last may have more */
    struct eb_bag_schedules schedules;              /* of_class[class] is being measured */
    struct eb_bag_stream stream;
    unsigned class;
};

static uint64_t read_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t eb_bag_tune_cache_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? (uint64_t)bytes : CACHE_BYTES_UNKNOWN;
}

void eb_bag_tune_find_caches(struct eb_bag_schedules *out)
{
    out->cached_bytes = eb_bag_tune_cache_bytes();
    out->nearby_bytes = CACHES_NEARBY * eb_bag_tune_cache_bytes();
}

uint64_t eb_bag_tune_bytes_min(void)
{
    uint64_t bytes = eb_bag_tune_cache_bytes() * BYTES_PER_CACHE;
    return bytes > BYTES_MIN ? bytes : BYTES_MIN;
}

unsigned eb_bag_tune_choose(const double ns_per_row[EB_BAG_TUNE_CANDIDATE_COUNT])
{
    unsigned best = 0;
    for (unsigned i = 1; i < EB_BAG_TUNE_CANDIDATE_COUNT; i++) {
        best = ns_per_row[i] < ns_per_row[best] ? i : best;
    }
    return ns_per_row[best] < ns_per_row[0] * (1 - GAIN_MIN) ? best : 0;
}

void eb_bag_tune_add(struct eb_bag_tune_ground *ground, const struct eb_table *table)
{
    struct eb_bag_tune_piece piece = {table->rows, table->row_count * table->row_stride_bytes};
    bool is_full = ground->count == EB_BAG_TUNE_PIECES_MAX;
    unsigned at = is_full ? ground->count - 1 : ground->count;
    if (piece.bytes < EB_BAG_TUNE_PIECE_BYTES_MIN ||
        (is_full && piece.bytes <= ground->pieces[at].bytes)) {
        return;
    }
    ground->count = at + 1;
    for (; at > 0 && ground->pieces[at - 1].bytes < piece.bytes; at--) {
        ground->pieces[at] = ground->pieces[at - 1];
    }
    ground->pieces[at] = piece;
}

unsigned eb_bag_tune_pieces_needed(const struct eb_bag_tune_ground *ground)
{
    uint64_t bytes_min = eb_bag_tune_bytes_min();
    uint64_t bytes = 0;
    for (unsigned i = 0; i < ground->count; i++) {
        bytes += ground->pieces[i].bytes;
        if (bytes >= bytes_min) {
            return i + 1;
        }
    }
    return 0;
}

/* Returns the first of a piece's bags. */
static uint32_t bag_first_of(const struct trial *trial, unsigned piece)
{
    return piece * EB_BAG_TUNE_BAGS / trial->piece_count;
}

/* Makes a piece's table and job: sums of f32 rows, as in most lookups. The memory may hold any
 * values: processors with vector functions add subnormals and NaNs as fast as other numbers, or
 * nearly so. */
static void init_piece(struct trial *trial, unsigned piece)
{
    const uint8_t *base = trial->pieces[piece].base;
    uintptr_t to_line = -(uintptr_t)base & (EB_LINE_BYTES - 1);
    uint32_t bag_first = bag_first_of(trial, piece);
    trial->tables[piece] = (struct eb_table){
        .rows = base + to_line,
        .storage = EB_STORAGE_F32,
        .type = EB_F32,
        .unknown_row = -1,
    };
    trial->jobs[piece] = (struct eb_bag_job){
        .table = &trial->tables[piece],
        .rows = trial->scratch->rows + bag_first * EB_BAG_TUNE_BAG_ROWS,
        .starts = trial->scratch->starts,
        .bag_count = bag_first_of(trial, piece + 1) - bag_first,
        .reduction = EB_REDUCTION_SUM,
        .output_type = EB_F32,
        .default_row = -1,
    };
}

static void init(struct trial *trial, const struct eb_bag_tune_task *task, unsigned piece_count)
{
    trial->scratch = task->scratch;
    trial->now_ns = task->now_ns ? task->now_ns : read_clock;
    trial->random = 1;
    trial->piece_count = piece_count;
    trial->pieces = task->ground->pieces;
    for (unsigned i = 0; i < piece_count; i++) {
        init_piece(trial, i);
    }
    for (uint32_t bag = 0; bag <= EB_BAG_TUNE_BAGS; bag++) {
        task->scratch->starts[bag] = bag * EB_BAG_TUNE_BAG_ROWS;
    }
    trial->schedules.cached_bytes = 0;
    trial->schedules.nearby_bytes = 0;
    eb_bag_stream_init(&trial->stream, task->ops, &trial->schedules);
}

/* Sets up rows of the class's size, as many as the memory holds. */
static void take_class(struct trial *trial, unsigned class)
{
    uint64_t row_bytes = (uint64_t)EB_LINE_BYTES << class;
    trial->class = class;
    for (unsigned i = 0; i < trial->piece_count; i++) {
        const struct eb_bag_tune_piece *piece = &trial->pieces[i];
        struct eb_table *table = &trial->tables[i];
        struct eb_bag_job *job = &trial->jobs[i];
        uint64_t skipped = (uintptr_t)table->rows - (uintptr_t)piece->base;
        table->row_count = (piece->bytes - skipped) / row_bytes;
        if (table->row_count > ROWS_MAX) {
            table->row_count = ROWS_MAX;
        }
        table->row_stride_bytes = row_bytes;
        table->row_elements = (uint32_t)(row_bytes / sizeof(float));
        job->out = trial->scratch->out + bag_first_of(trial, i) * row_bytes;
        job->out_stride_bytes = row_bytes;
    }
}

/* Draws random rows from the upper bits of a linear congruential generator, which is good enough
 * here. */
static void draw_rows(struct trial *trial)
{
    unsigned piece = 0;
    for (uint32_t i = 0; i < EB_BAG_TUNE_ROWS; i++) {
        if (i == bag_first_of(trial, piece + 1) * EB_BAG_TUNE_BAG_ROWS) {
            piece++;
        }
        trial->random =
            trial->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        trial->scratch->rows[i] =
            (int64_t)((trial->random >> 32) * trial->tables[piece].row_count >> 32);
    }
}

/* Measures a schedule once. Returns ns per row. */
static double measure_schedule(struct trial *trial, const struct eb_bag_schedule *schedule)
{
    struct eb_bag_tile tile = {
        .jobs = trial->jobs,
        .job_count = trial->piece_count,
        .bag_end = trial->jobs[trial->piece_count - 1].bag_count,
        .element_end = UINT32_MAX,
    };
    draw_rows(trial);
    trial->schedules.of_class[trial->class] = *schedule;
    uint64_t begin_ns = trial->now_ns();
    eb_bag_stream_pool(&trial->stream, &tile, NULL);
    return (double)(trial->now_ns() - begin_ns) / EB_BAG_TUNE_ROWS;
}

/* Measures every candidate once, and updates the fastest time of each. Returns false if time ran
 * out; the times of the round are then discarded. */
static bool run_round(struct trial *trial, uint64_t end_ns, double *fastest, bool is_first)
{
    double figures[EB_BAG_TUNE_CANDIDATE_COUNT];
    for (unsigned i = 0; i < EB_BAG_TUNE_CANDIDATE_COUNT; i++) {
        if (trial->now_ns() >= end_ns) {
            return false;
        }
        figures[i] = measure_schedule(trial, &eb_bag_tune_candidates[i]);
    }
    for (unsigned i = 0; i < EB_BAG_TUNE_CANDIDATE_COUNT; i++) {
        fastest[i] = is_first || figures[i] < fastest[i] ? figures[i] : fastest[i];
    }
    return true;
}

static void measure_class(struct trial *trial, struct eb_bag_tune_class *out)
{
    uint64_t end_ns = trial->now_ns() + EB_BAG_TUNE_CLASS_MS_MAX * UINT64_C(1000000);
    unsigned round = 0;
    while (round < ROUNDS && run_round(trial, end_ns, out->ns_per_row, round == 0)) {
        round++;
    }
    out->is_measured = round >= ROUNDS_MIN;
    if (out->is_measured) {
        out->chosen = eb_bag_tune_choose(out->ns_per_row);
    }
}

void eb_bag_tune(const struct eb_bag_tune_task *task, struct eb_bag_schedules *out,
    struct eb_bag_tune_report *report)
{
    struct trial trial;
    *out = eb_bag_schedules_default;
    eb_bag_tune_find_caches(out);
    *report = (struct eb_bag_tune_report){0};
    unsigned piece_count = eb_bag_tune_pieces_needed(task->ground);
    if (piece_count == 0) {
        return;
    }
    init(&trial, task, piece_count);
    uint64_t begin_ns = trial.now_ns();
    /* Long rows come first: they warm the page tables as serving does. */
    for (unsigned n = EB_BAG_ROW_CLASS_COUNT; n-- > 0;) {
        take_class(&trial, n);
        if (!eb_bag_prefetch_is_on(&trial.stream.prefetch, &trial.tables[0])) {
            return;
        }
        measure_class(&trial, &report->of_class[n]);
        out->of_class[n] = eb_bag_tune_candidates[report->of_class[n].chosen];
    }
    report->piece_count = piece_count;
    report->elapsed_ns = trial.now_ns() - begin_ns;
}
