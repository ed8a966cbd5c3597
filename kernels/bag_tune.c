#include "kernels/bag_tune.h"

#include "kernels/bag_stream.h"
#include "kernels/bag_variant.h"
#include "kernels/mix64.h"

#include <time.h>
#include <unistd.h>

/* Least gain over the default with which a candidate is chosen: 5 %, more than the noise of times
 * that are the least of several. */
#define GAIN_MIN 0.05
/* Least share of the rounds with such a gain, in percent. */
#define LED_PERCENT_MIN 70

/* Least memory to measure on: this many times the L2 cache, and no less than BYTES_MIN. */
#define BYTES_PER_CACHE 32
#define BYTES_MIN (UINT64_C(64) << 20)
/* A table of up to this many times the size of L2 is nearby: its rows come from L2 or L3. */
#define CACHES_NEARBY 8
#define L1_BYTES_UNKNOWN (UINT64_C(32) << 10)
#define L2_BYTES_UNKNOWN (UINT64_C(1) << 20)
/* The most rows that 32 random bits can choose from. */
#define ROWS_MAX UINT32_MAX
#define NS_PER_MS UINT64_C(1000000)

/* Each piece has two jobs, one for each storage if two are measured. */
#define PIECE_JOBS 2
#define JOBS_MAX (PIECE_JOBS * EB_BAG_TUNE_PIECES_MAX)

static_assert(JOBS_MAX <= EB_BAG_TUNE_BAGS, "every job has a bag");

/* The candidates beside the default. All have pool functions of their own (enum form in
 * bag_float_tmpl.c); other schedules cost more instructions than they gain. */
static const struct eb_bag_schedule candidates[] = {
    {64, false, 32, false},
    {128, false, 64, false},
    {64, false, 16, false},
    {0, false, 64, false},
    {0, false, 32, false},
    {0, false, 8, true},
    {0, false, 12, true},
    {0, false, 16, true},
    {0, false, 24, true},
    {0, false, 48, true},
    {0, false, 0, false},
};

#define CANDIDATE_COUNT (sizeof candidates / sizeof candidates[0])

static_assert(CANDIDATE_COUNT < EB_BAG_TUNE_CANDIDATES_MAX, "the default is one more");

struct trial {
    struct eb_bag_tune_scratch *scratch;
    uint64_t (*wall_ns)(void);
    uint64_t (*cpu_ns)(void);
    uint64_t random;
    const struct eb_bag_tune_ground *ground;
    unsigned job_count;
    struct eb_table tables[JOBS_MAX];  /* the pieces, as tables of a class's rows */
    struct eb_bag_job jobs[JOBS_MAX];  /* their bags; the last may have more than the others */
    struct eb_bag_schedules schedules; /* of_class[class] is being measured */
    struct eb_bag_stream stream;
    unsigned class;
    uint32_t bag_rows; /* rows of each bag */
};

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000 * NS_PER_MS + (uint64_t)now.tv_nsec;
}

static uint64_t read_wall_clock(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

/* Does not count the time in which other threads or processes run in this thread's place. */
static uint64_t read_cpu_clock(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t eb_bag_tune_l1_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    return bytes > 0 ? (uint64_t)bytes : L1_BYTES_UNKNOWN;
}

uint64_t eb_bag_tune_l2_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? (uint64_t)bytes : L2_BYTES_UNKNOWN;
}

/* On Zen 3, prefetching also pays for rows in L2. On Zen 4 it does not. Elsewhere that has not been
 * measured. */
uint64_t eb_bag_tune_cached_bytes(enum eb_processor_family family)
{
    bool is_zen2 = family == EB_PROCESSOR_ZEN2 || family == EB_PROCESSOR_ZEN3;
    return is_zen2 ? eb_bag_tune_l1_bytes() : eb_bag_tune_l2_bytes() / 2;
}

void eb_bag_tune_find_defaults(struct eb_bag_schedules *out)
{
    struct eb_processor processor = eb_processor_read();
    enum eb_processor_family family = eb_processor_family_of(&processor);
    *out = *eb_bag_schedules_of(family);
    out->cached_bytes = eb_bag_tune_cached_bytes(family);
    out->generic_cached_bytes = eb_bag_tune_l2_bytes();
    out->nearby_bytes = CACHES_NEARBY * eb_bag_tune_l2_bytes();
}

uint64_t eb_bag_tune_bytes_min(void)
{
    uint64_t bytes = eb_bag_tune_l2_bytes() * BYTES_PER_CACHE;
    return bytes > BYTES_MIN ? bytes : BYTES_MIN;
}

/* ---- the choice ---- */

static bool is_clearly_less(double ns, double than_ns)
{
    return ns < than_ns * (1 - GAIN_MIN);
}

/* Returns a candidate's time in its fastest round. */
static double find_least(const struct eb_bag_tune_figures *figures, unsigned candidate)
{
    double least = figures->of_round[0][candidate];
    for (unsigned round = 1; round < figures->round_count; round++) {
        double ns = figures->of_round[round][candidate];
        least = ns < least ? ns : least;
    }
    return least;
}

struct eb_bag_tune_verdict eb_bag_tune_choose(const struct eb_bag_tune_figures *figures)
{
    struct eb_bag_tune_verdict verdict = {.fastest = 0};
    for (unsigned i = 0; i < figures->candidate_count; i++) {
        verdict.least[i] = find_least(figures, i);
        verdict.fastest = verdict.least[i] < verdict.least[verdict.fastest] ? i : verdict.fastest;
    }
    for (unsigned round = 0; round < figures->round_count; round++) {
        const double *ns = figures->of_round[round];
        verdict.led_count += is_clearly_less(ns[verdict.fastest], ns[0]);
    }
    double least = verdict.least[verdict.fastest];
    verdict.gain = 1 - least / verdict.least[0];
    if (is_clearly_less(least, verdict.least[0]) &&
        verdict.led_count * 100 >= figures->round_count * LED_PERCENT_MIN) {
        verdict.chosen = verdict.fastest;
    }
    return verdict;
}

/* ---- the memory to measure on ---- */

void eb_bag_tune_add(struct eb_bag_tune_ground *ground, const struct eb_table *table)
{
    struct eb_bag_tune_piece piece = {table->rows, table->row_count * table->row_stride_bytes};
    bool is_full = ground->count == EB_BAG_TUNE_PIECES_MAX;
    unsigned at = is_full ? ground->count - 1 : ground->count;
    if (piece.bytes < EB_BAG_TUNE_PIECE_BYTES_MIN) {
        return;
    }
    unsigned class = eb_bag_lines_find(table, 0, table->row_elements).row_class;
    bool is_converted = eb_storage_is_converted(table->storage);
    ground->has_converted[class] = ground->has_converted[class] || is_converted;
    ground->has_plain[class] = ground->has_plain[class] || !is_converted;
    if (is_full && piece.bytes <= ground->pieces[at].bytes) {
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

/* ---- the measurement ---- */

/* Returns the first of a job's bags. */
static uint32_t bag_first_of(const struct trial *trial, unsigned job)
{
    return job * EB_BAG_TUNE_BAGS / trial->job_count;
}

/* Makes a job of sums, as in most lookups. */
static void init_job(struct trial *trial, unsigned job)
{
    uint32_t bag_first = bag_first_of(trial, job);
    trial->jobs[job] = (struct eb_bag_job){
        .table = &trial->tables[job],
        .starts = trial->scratch->starts,
        .bag_count = bag_first_of(trial, job + 1) - bag_first,
        .reduction = EB_REDUCTION_SUM,
        .output_type = EB_F32,
        .default_row = -1,
    };
}

static void init(struct trial *trial, const struct eb_bag_tune_task *task, unsigned piece_count)
{
    trial->scratch = task->scratch;
    trial->wall_ns = task->wall_ns ? task->wall_ns : read_wall_clock;
    trial->cpu_ns = task->cpu_ns ? task->cpu_ns : read_cpu_clock;
    trial->random = 0;
    trial->ground = task->ground;
    trial->job_count = piece_count * PIECE_JOBS;
    for (unsigned i = 0; i < trial->job_count; i++) {
        init_job(trial, i);
    }
    trial->schedules.cached_bytes = 0;
    trial->schedules.nearby_bytes = 0;
    eb_bag_stream_init(&trial->stream, task->ops, &trial->schedules);
}

/* Returns the storage as which a job's rows are measured. */
static enum eb_storage choose_storage(const struct trial *trial, unsigned class, unsigned job)
{
    bool has_plain = trial->ground->has_plain[class];
    bool has_converted = trial->ground->has_converted[class];
    if (has_plain != has_converted) {
        return has_plain ? EB_STORAGE_F32 : EB_STORAGE_INT8;
    }
    return job % PIECE_JOBS == 0 ? EB_STORAGE_F32 : EB_STORAGE_INT8;
}

/* Makes a table of a piece: as many rows of the class's size as it holds, in the layout of our own
 * tables. The memory may hold any values: processors with vector functions compute with subnormals
 * and NaNs nearly as fast as with other numbers. */
static struct eb_table make_table(
    const struct eb_bag_tune_piece *piece, enum eb_storage storage, unsigned class)
{
    uint32_t row_bytes = (uint32_t)EB_LINE_BYTES << class;
    uint32_t elements = row_bytes * 8 / eb_storage_bits(storage);
    struct eb_row_format format = eb_row_format_of(storage, elements);
    uintptr_t to_line = -(uintptr_t)piece->base & (EB_LINE_BYTES - 1);
    const uint8_t *base = (const uint8_t *)piece->base + to_line;
    bool is_code = eb_storage_is_code(storage);
    uint64_t row_count = (piece->bytes - to_line) / format.stride_bytes;
    return (struct eb_table){
        .rows = base + format.row_offset_bytes,
        .row_count = row_count < ROWS_MAX ? row_count : ROWS_MAX,
        .row_stride_bytes = format.stride_bytes,
        .scales = is_code ? base : NULL,
        .scale_stride_bytes = is_code ? format.stride_bytes : 0,
        .row_elements = elements,
        .storage = storage,
        .type = EB_F32,
        .unknown_row = -1,
    };
}

/* Sets up rows of the class's size. */
static void take_class(struct trial *trial, unsigned class)
{
    uint8_t *out = trial->scratch->out;
    trial->class = class;
    trial->bag_rows = EB_BAG_TUNE_BAG_ROWS(class);
    for (uint32_t bag = 0; bag <= EB_BAG_TUNE_BAGS; bag++) {
        trial->scratch->starts[bag] = bag * trial->bag_rows;
    }
    for (unsigned i = 0; i < trial->job_count; i++) {
        const struct eb_bag_tune_piece *piece = &trial->ground->pieces[i / PIECE_JOBS];
        struct eb_table *table = &trial->tables[i];
        struct eb_bag_job *job = &trial->jobs[i];
        *table = make_table(piece, choose_storage(trial, class, i), class);
        job->lines = eb_bag_lines_find(table, 0, table->row_elements);
        job->rows = trial->scratch->rows + bag_first_of(trial, i) * trial->bag_rows;
        job->out = out;
        job->out_stride_bytes = table->row_elements * sizeof(float);
        out += job->bag_count * job->out_stride_bytes;
    }
}

/* Returns a random number below `bound`, which must be less than 2^32. */
static uint64_t draw(struct trial *trial, uint64_t bound)
{
    trial->random += EB_MIX64_STEP;
    return (eb_mix64(trial->random) >> 32) * bound >> 32;
}

static void draw_rows(struct trial *trial)
{
    for (unsigned job = 0; job < trial->job_count; job++) {
        uint32_t first = bag_first_of(trial, job) * trial->bag_rows;
        uint32_t end = bag_first_of(trial, job + 1) * trial->bag_rows;
        for (uint32_t i = first; i < end; i++) {
            trial->scratch->rows[i] = (int64_t)draw(trial, trial->tables[job].row_count);
        }
    }
}

/* Draws the order in which the candidates of a round are measured, so that none always comes after
 * the same other, or at the same time of a periodic disturbance. */
static void draw_order(struct trial *trial, unsigned count, unsigned *order)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned other = (unsigned)draw(trial, i + 1);
        order[i] = order[other];
        order[other] = i;
    }
}

/* Measures a schedule once. Returns ns per row. */
static double measure_schedule(struct trial *trial, const struct eb_bag_schedule *schedule)
{
    struct eb_bag_tile tile = {
        .jobs = trial->jobs,
        .job_count = trial->job_count,
        .bag_end = trial->jobs[trial->job_count - 1].bag_count,
        .element_end = UINT32_MAX,
    };
    draw_rows(trial);
    trial->schedules.of_class[trial->class] = *schedule;
    uint64_t begin_ns = trial->cpu_ns();
    eb_bag_stream_pool(&trial->stream, &tile, NULL);
    return (double)(trial->cpu_ns() - begin_ns) / (EB_BAG_TUNE_BAGS * trial->bag_rows);
}

/* Measures every candidate once. Returns false if time ran out. Does not count a round in which the
 * clock stood still, as coarse clocks do. */
static bool run_round(struct trial *trial, uint64_t end_ns, struct eb_bag_tune_figures *figures)
{
    unsigned order[EB_BAG_TUNE_CANDIDATES_MAX] = {0};
    double *ns = figures->of_round[figures->round_count];
    bool has_zero = false;
    draw_order(trial, figures->candidate_count, order);
    for (unsigned i = 0; i < figures->candidate_count; i++) {
        unsigned candidate = order[i];
        if (trial->wall_ns() >= end_ns) {
            return false;
        }
        ns[candidate] = measure_schedule(trial, &figures->candidates[candidate]);
        has_zero = has_zero || ns[candidate] <= 0;
    }
    figures->round_count += !has_zero;
    return true;
}

static bool is_same_schedule(const struct eb_bag_schedule *a, const struct eb_bag_schedule *b)
{
    return a->far_rows == b->far_rows && a->far_is_whole == b->far_is_whole &&
           a->near_rows == b->near_rows && a->near_is_l1 == b->near_is_l1;
}

/* Lists the default first, and then the other candidates. */
static void list_candidates(
    const struct eb_bag_schedule *standard, struct eb_bag_tune_figures *figures)
{
    figures->candidates[0] = *standard;
    figures->candidate_count = 1;
    for (size_t i = 0; i < CANDIDATE_COUNT; i++) {
        if (!is_same_schedule(&candidates[i], standard)) {
            figures->candidates[figures->candidate_count++] = candidates[i];
        }
    }
}

/* Measures a class until `end_ns` at most. */
static void measure_class(struct trial *trial, uint64_t end_ns, struct eb_bag_tune_class *out)
{
    unsigned tried = 0;
    while (tried < EB_BAG_TUNE_ROUNDS && run_round(trial, end_ns, &out->figures)) {
        tried++;
    }
    out->is_measured = out->figures.round_count >= EB_BAG_TUNE_ROUNDS_MIN;
    if (out->is_measured) {
        out->verdict = eb_bag_tune_choose(&out->figures);
    }
}

void eb_bag_tune(const struct eb_bag_tune_task *task, struct eb_bag_schedules *schedules,
    struct eb_bag_tune_report *report)
{
    struct trial trial;
    *report = (struct eb_bag_tune_report){0};
    unsigned piece_count = eb_bag_tune_pieces_needed(task->ground);
    if (piece_count == 0 || !eb_bag_ops_variant(task->ops)->prefetches) {
        return;
    }
    init(&trial, task, piece_count);
    uint64_t begin_ns = trial.wall_ns();
    uint64_t end_ns = begin_ns + EB_BAG_TUNE_MS_MAX * NS_PER_MS;
    /* Long rows come first: they warm the page tables as serving does. */
    for (unsigned class = EB_BAG_ROW_CLASS_COUNT; class -- > 0;) {
        struct eb_bag_tune_class *of_class = &report->of_class[class];
        uint64_t now_ns = trial.wall_ns();
        uint64_t left_ns = now_ns < end_ns ? end_ns - now_ns : 0;
        /* Long rows take the most time. What a class leaves is for the next. */
        left_ns = class > 0 ? left_ns / 2 : left_ns;
        list_candidates(&schedules->of_class[class], &of_class->figures);
        take_class(&trial, class);
        measure_class(&trial, now_ns + left_ns, of_class);
        schedules->of_class[class] = of_class->figures.candidates[of_class->verdict.chosen];
    }
    report->piece_count = piece_count;
    report->elapsed_ns = trial.wall_ns() - begin_ns;
}
