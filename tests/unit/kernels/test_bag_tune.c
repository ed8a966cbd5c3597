#include "kernels/bag_schedule.h"
#include "kernels/bag_tune.h"
#include "kernels/bag_variant.h"
#include "kernels/mix64.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define MEASUREMENTS_MAX (EB_BAG_ROW_CLASS_COUNT * EB_BAG_TUNE_ROUNDS * EB_BAG_TUNE_CANDIDATES_MAX)

/* Memory between two inaccessible pages, and a task that measures on it. */
struct ground {
    uint8_t *mapping;
    uint64_t mapped_bytes;
    struct eb_bag_tune_ground tables;
    struct eb_bag_tune_task task;
    struct eb_bag_schedules schedules;
    struct eb_bag_tune_report report;
};

/* One measurement, as seen by pool functions that pool nothing. */
struct visit {
    struct eb_bag_schedule schedule;
    unsigned class;
    unsigned round;     /* of the class */
    uint64_t row_count; /* of both storages */
    uint64_t code_count;
};

/* A script replaces the clocks and the pool functions. */
static struct {
    double (*ns_per_row)(const struct visit *visit);
    uint64_t wall_tick_ns; /* wall time that a measurement takes */
    uint64_t random;
    uint64_t wall_ns;
    uint64_t cpu_ns;
    bool is_measuring;
    unsigned visit_count;
    struct visit visits[MEASUREMENTS_MAX];
} script;

static uint64_t read_wall_clock(void)
{
    return script.wall_ns;
}

static bool is_same(const struct eb_bag_schedule *a, const struct eb_bag_schedule *b)
{
    return a->far_rows == b->far_rows && a->far_is_whole == b->far_is_whole &&
           a->near_rows == b->near_rows && a->near_is_l1 == b->near_is_l1;
}

/* Counts the complete measurements of a class with the last one's schedule. */
static unsigned count_rounds(const struct visit *last)
{
    unsigned count = 0;
    for (const struct visit *at = script.visits; at < last; at++) {
        count += at->class == last->class && is_same(&at->schedule, &last->schedule);
    }
    return count;
}

/* The first reading begins a measurement, the second ends it, and so on. */
static uint64_t read_cpu_clock(void)
{
    struct visit *visit = &script.visits[script.visit_count];
    script.is_measuring = !script.is_measuring;
    if (script.is_measuring) {
        assert_true(script.visit_count < MEASUREMENTS_MAX);
        *visit = (struct visit){.class = 0};
        return script.cpu_ns;
    }
    visit->round = count_rounds(visit);
    script.visit_count++;
    script.wall_ns += script.wall_tick_ns;
    script.cpu_ns += (uint64_t)(script.ns_per_row(visit) * (double)visit->row_count);
    return script.cpu_ns;
}

static void pool_nothing(const struct eb_bag_range *range, const struct eb_bag_ahead *ahead)
{
    const struct eb_table *table = range->job->table;
    struct visit *visit = &script.visits[script.visit_count];
    uint64_t row_count = eb_bag_range_rows(range);
    assert_true(script.is_measuring);
    visit->class = range->job->lines.row_class;
    visit->schedule = ahead ? *ahead->schedule : (struct eb_bag_schedule){0};
    visit->row_count += row_count;
    visit->code_count += table->storage == EB_STORAGE_INT8 ? row_count : 0;
}

static const struct eb_bag_variant scripted_variant = {
    .name = "scripted",
    .pool = {[EB_STORAGE_F32] = pool_nothing, [EB_STORAGE_INT8] = pool_nothing},
    .prefetches = true,
};
static const struct eb_bag_ops scripted_ops = {.variant = &scripted_variant};

static double take_equal_time(const struct visit *visit)
{
    (void)visit;
    return 20;
}

static int reset_script(void **state)
{
    (void)state;
    script.ns_per_row = take_equal_time;
    script.wall_tick_ns = MS / 10;
    script.random = 0;
    return 0;
}

static void add(struct eb_bag_tune_ground *ground, const uint8_t *base, uint64_t bytes)
{
    struct eb_table table = {
        .rows = base,
        .row_count = bytes,
        .row_stride_bytes = 1,
        .row_elements = 1,
        .storage = EB_STORAGE_I8,
        .type = EB_I8,
    };
    eb_bag_tune_add(ground, &table);
}

/* Makes `bytes` of memory that ends right before an inaccessible page, and begins right after
 * another if it consists of whole pages. Pages that are never written are all the same page. */
static void make_ground(struct ground *ground, uint64_t bytes, int protection)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t inner = (bytes + page - 1) / page * page;
    ground->mapped_bytes = inner + 2 * page;
    ground->mapping = mmap(
        NULL, ground->mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(ground->mapping, MAP_FAILED);
    assert_int_equal(mprotect(ground->mapping + page, inner, protection), 0);
    ground->tables = (struct eb_bag_tune_ground){0};
    add(&ground->tables, ground->mapping + page + inner - bytes, bytes);
    ground->task = (struct eb_bag_tune_task){
        .ops = eb_bag_ops_find(NULL),
        .ground = &ground->tables,
        .scratch = malloc(sizeof *ground->task.scratch),
    };
    assert_non_null(ground->task.scratch);
    memset(ground->task.scratch, 0xa5, sizeof *ground->task.scratch);
    memset(&ground->report, 0xa5, sizeof ground->report);
    ground->schedules = eb_bag_schedules_default;
}

static void drop_ground(struct ground *ground)
{
    free(ground->task.scratch);
    assert_int_equal(munmap(ground->mapping, ground->mapped_bytes), 0);
}

static void tune(struct ground *ground)
{
    eb_bag_tune(&ground->task, &ground->schedules, &ground->report);
}

/* Tunes with the script, of which reset_script or the test has set the upper part. */
static void tune_by_script(struct ground *ground)
{
    script.wall_ns = 1000 * MS;
    script.cpu_ns = 0;
    script.is_measuring = false;
    script.visit_count = 0;
    ground->task.ops = &scripted_ops;
    ground->task.wall_ns = read_wall_clock;
    ground->task.cpu_ns = read_cpu_clock;
    tune(ground);
}

/* Tunes once more, beginning with the default schedules. */
static void tune_again(struct ground *ground)
{
    ground->schedules = eb_bag_schedules_default;
    tune_by_script(ground);
}

static void assert_same_schedule(
    const struct eb_bag_schedule *schedule, const struct eb_bag_schedule *expected)
{
    char text[EB_BAG_SCHEDULE_TEXT_BYTES];
    char expected_text[EB_BAG_SCHEDULE_TEXT_BYTES];
    eb_bag_schedule_format(schedule, text);
    eb_bag_schedule_format(expected, expected_text);
    assert_string_equal(text, expected_text);
}

static void assert_defaults(const struct ground *ground)
{
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        assert_int_equal(ground->report.of_class[class].verdict.chosen, 0);
        assert_same_schedule(
            &ground->schedules.of_class[class], &eb_bag_schedules_default.of_class[class]);
    }
}

static void assert_measured(const struct ground *ground, bool is_measured)
{
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        assert_int_equal(ground->report.of_class[class].is_measured, is_measured);
    }
}

/* ---- the defaults and the candidates ---- */

static void finds_the_defaults_of_this_processor(void **state)
{
    (void)state;
    struct eb_processor processor = eb_processor_read();
    const struct eb_bag_schedules *expected =
        eb_bag_schedules_of(eb_processor_family_of(&processor));
    struct eb_bag_schedules schedules;
    eb_bag_tune_find_defaults(&schedules);
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        assert_same_schedule(&schedules.of_class[class], &expected->of_class[class]);
        assert_same_schedule(&schedules.nearby[class], &expected->nearby[class]);
    }
    uint64_t cached_bytes = eb_bag_tune_cached_bytes(eb_processor_family_of(&processor));
    assert_int_equal(schedules.cached_bytes, cached_bytes);
    assert_int_equal(schedules.generic_cached_bytes, eb_bag_tune_l2_bytes());
    assert_int_equal(eb_bag_tune_cached_bytes(EB_PROCESSOR_ZEN3), eb_bag_tune_l1_bytes());
    assert_int_equal(
        eb_bag_tune_cached_bytes(EB_PROCESSOR_SAPPHIRE_RAPIDS), eb_bag_tune_l2_bytes() / 2);
    assert_int_equal(schedules.nearby_bytes, 8 * eb_bag_tune_l2_bytes());
    assert_true(schedules.cached_bytes > 0 && schedules.cached_bytes < schedules.nearby_bytes);
}

static void expect_schedules(const struct eb_bag_schedule *of_class, const char *const *expected)
{
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        char text[EB_BAG_SCHEDULE_TEXT_BYTES];
        eb_bag_schedule_format(&of_class[class], text);
        assert_string_equal(text, expected[class]);
    }
}

static void has_defaults_for_each_family(void **state)
{
    (void)state;
    static const char *const far[] = {"64:32:l2", "64:32:l2", "64:32:l2", "64:32:l2", "64:32:l2"};
    static const char *const near_16[] = {"0:16:l1", "0:16:l1", "0:16:l1", "0:16:l1", "0:16:l1"};
    static const char *const near_12[] = {"0:12:l1", "0:12:l1", "0:12:l1", "0:12:l1", "0:12:l1"};
    static const char *const zen2[] = {"0:16:l1", "0:16:l1", "0:8:l1", "0:8:l1", "0:8:l1"};
    static const char *const zen2_nearby[] = {"0:12:l1", "0:12:l1", "0:12:l1", "0:12:l1", "0:8:l1"};
    static const char *const zen4[] = {"64:32:l2", "64:32:l2", "64:32:l2", "0:32:l2", "0:32:l2"};
    static const char *const zen4_nearby[] = {"0:24:l1", "0:24:l1", "0:24:l1", "0:16:l1", "0:8:l1"};
    expect_schedules(eb_bag_schedules_of(EB_PROCESSOR_ZEN4)->of_class, zen4);
    expect_schedules(eb_bag_schedules_of(EB_PROCESSOR_ZEN4)->nearby, zen4_nearby);
    for (enum eb_processor_family i = 0; i < EB_PROCESSOR_FAMILY_COUNT; i++) {
        if (i == EB_PROCESSOR_ZEN4) {
            continue;
        }
        const struct eb_bag_schedules *schedules = eb_bag_schedules_of(i);
        bool is_zen2 = i == EB_PROCESSOR_ZEN2 || i == EB_PROCESSOR_ZEN3;
        bool is_old_intel =
            i == EB_PROCESSOR_HASWELL || i == EB_PROCESSOR_SKYLAKE || i == EB_PROCESSOR_ICE_LAKE;
        expect_schedules(schedules->of_class, is_zen2 ? zen2 : is_old_intel ? near_12 : far);
        expect_schedules(schedules->nearby, is_zen2        ? zen2_nearby
                                            : is_old_intel ? near_12
                                                           : near_16);
    }
}

/* The default of a class is its first candidate, whether or not it is among those of all
 * classes. */
static void has_the_default_as_its_first_candidate(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    ground.schedules.of_class[1] = (struct eb_bag_schedule){0, false, 12, true};
    ground.schedules.of_class[2] = (struct eb_bag_schedule){0, false, 11, true};
    struct eb_bag_schedules defaults = ground.schedules;
    tune_by_script(&ground);
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        const struct eb_bag_tune_figures *figures = &ground.report.of_class[class].figures;
        assert_int_equal(figures->candidate_count,
            class == 2 ? EB_BAG_TUNE_CANDIDATES_MAX : EB_BAG_TUNE_CANDIDATES_MAX - 1);
        assert_same_schedule(&figures->candidates[0], &defaults.of_class[class]);
        for (unsigned i = 0; i < figures->candidate_count; i++) {
            for (unsigned n = 0; n < i; n++) {
                assert_false(is_same(&figures->candidates[i], &figures->candidates[n]));
            }
        }
    }
    drop_ground(&ground);
}

static void has_candidates_that_can_be_set_by_hand(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    tune_by_script(&ground);
    const struct eb_bag_tune_figures *figures = &ground.report.of_class[0].figures;
    for (unsigned i = 0; i < figures->candidate_count; i++) {
        char text[EB_BAG_SCHEDULE_TEXT_BYTES];
        struct eb_bag_schedule schedule;
        eb_bag_schedule_format(&figures->candidates[i], text);
        assert_null(eb_bag_schedule_parse(text, &schedule));
        assert_true(is_same(&schedule, &figures->candidates[i]));
    }
    drop_ground(&ground);
}

/* ---- the memory ---- */

static void leaves_small_memory_alone(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min() - 1, PROT_NONE);
    tune(&ground);
    assert_defaults(&ground);
    assert_measured(&ground, false);
    assert_int_equal(ground.report.piece_count, 0);
    drop_ground(&ground);
}

static void leaves_memory_alone_if_nothing_prefetches_rows(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    ground.task.ops = eb_bag_ops_find("ref");
    tune(&ground);
    assert_defaults(&ground);
    assert_measured(&ground, false);
    assert_int_equal(ground.report.piece_count, 0);
    drop_ground(&ground);
}

static void keeps_the_largest_tables(void **state)
{
    (void)state;
    uint64_t least = EB_BAG_TUNE_PIECE_BYTES_MIN;
    static uint8_t bases[EB_BAG_TUNE_PIECES_MAX + 5];
    struct eb_bag_tune_ground ground = {0};
    add(&ground, bases, least - 1);
    assert_int_equal(ground.count, 0);
    for (unsigned i = 0; i < EB_BAG_TUNE_PIECES_MAX; i++) {
        /* At odd positions the sizes grow, at even ones they shrink. */
        add(&ground, bases + i, least + (i % 2 > 0 ? i : 64 - i));
        assert_int_equal(ground.count, i + 1);
    }
    add(&ground, bases + EB_BAG_TUNE_PIECES_MAX, least); /* no larger than any of the others */
    assert_int_equal(ground.count, EB_BAG_TUNE_PIECES_MAX);
    add(&ground, bases + EB_BAG_TUNE_PIECES_MAX + 1, least + 1000);
    assert_int_equal(ground.count, EB_BAG_TUNE_PIECES_MAX);
    assert_ptr_equal(ground.pieces[0].base, bases + EB_BAG_TUNE_PIECES_MAX + 1);
    assert_ptr_equal(ground.pieces[1].base, bases);
    assert_int_equal(ground.pieces[1].bytes, least + 64);
    assert_int_equal(ground.pieces[EB_BAG_TUNE_PIECES_MAX - 1].bytes, least + 3);
    for (unsigned i = 1; i < EB_BAG_TUNE_PIECES_MAX; i++) {
        assert_true(ground.pieces[i - 1].bytes >= ground.pieces[i].bytes);
    }
}

static void takes_no_more_tables_than_it_needs(void **state)
{
    (void)state;
    static uint8_t base[1];
    uint64_t half = eb_bag_tune_bytes_min() / 2;
    struct eb_bag_tune_ground ground = {0};
    assert_int_equal(eb_bag_tune_pieces_needed(&ground), 0);
    add(&ground, base, half);
    assert_int_equal(eb_bag_tune_pieces_needed(&ground), 0);
    add(&ground, base, half - 1);
    assert_int_equal(eb_bag_tune_pieces_needed(&ground), 0);
    add(&ground, base, half);
    assert_int_equal(eb_bag_tune_pieces_needed(&ground), 2);
    add(&ground, base, 2 * half);
    assert_int_equal(eb_bag_tune_pieces_needed(&ground), 1);
}

/* The bags are drawn from three adjacent tables, the last of which ends before the inaccessible
 * page. */
static void measures_on_several_tables(void **state)
{
    (void)state;
    uint64_t bytes = eb_bag_tune_bytes_min() + 52;
    struct ground ground;
    make_ground(&ground, bytes, PROT_READ);
    struct eb_bag_tune_piece whole = ground.tables.pieces[0];
    uint64_t first = bytes / 2 + 1;
    uint64_t second = bytes / 3;
    ground.tables.count = 0;
    add(&ground.tables, whole.base, first);
    add(&ground.tables, (const uint8_t *)whole.base + first, second);
    add(&ground.tables, (const uint8_t *)whole.base + first + second, bytes - first - second);
    ground.task.wall_ns = read_wall_clock; /* stands still: a slow machine measures all the same */
    tune(&ground);
    if (eb_bag_ops_variant(ground.task.ops)->prefetches) {
        assert_int_equal(ground.report.piece_count, 3);
        /* The rows of the last measurement lie inside the tables of their bags. */
        const int64_t *rows = ground.task.scratch->rows;
        bool is_beyond_second = false;
        for (unsigned i = 0; i < EB_BAG_TUNE_ROWS_MAX; i++) {
            is_beyond_second |= rows[i] * EB_LINE_BYTES >= (int64_t)second;
            assert_in_range(rows[i], 0, first / EB_LINE_BYTES);
        }
        assert_true(is_beyond_second);
    }
    drop_ground(&ground);
}

/* As many tables as are ever measured have one bag of each storage. */
static void measures_on_the_most_tables(void **state)
{
    (void)state;
    struct ground ground;
    uint64_t bytes = EB_BAG_TUNE_PIECES_MAX * EB_BAG_TUNE_PIECE_BYTES_MIN;
    bytes = bytes > eb_bag_tune_bytes_min() ? bytes : eb_bag_tune_bytes_min();
    make_ground(&ground, bytes, PROT_READ);
    const uint8_t *base = ground.tables.pieces[0].base;
    uint64_t piece_bytes = bytes / EB_BAG_TUNE_PIECES_MAX;
    ground.tables.count = 0;
    for (unsigned i = 0; i < EB_BAG_TUNE_PIECES_MAX; i++) {
        add(&ground.tables, base + i * piece_bytes, piece_bytes);
    }
    tune(&ground);
    if (eb_bag_ops_variant(ground.task.ops)->prefetches) {
        assert_in_range(ground.report.piece_count, 2, EB_BAG_TUNE_PIECES_MAX);
    }
    tune_again(&ground);
    assert_measured(&ground, true);
    drop_ground(&ground);
}

/* The memory is only read, and nothing beside it is touched, wherever it begins. */
static void stays_inside_its_memory(void **state)
{
    (void)state;
    static const uint64_t more[] = {0, 1, 52};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        struct ground ground;
        make_ground(&ground, eb_bag_tune_bytes_min() + more[i], PROT_READ);
        tune(&ground);
        assert_int_equal(
            ground.report.piece_count > 0, eb_bag_ops_variant(ground.task.ops)->prefetches);
        drop_ground(&ground);
    }
}

/* ---- the measurement ---- */

static void chooses_among_its_candidates(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_READ);
    tune(&ground);
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        const struct eb_bag_tune_class *tuned = &ground.report.of_class[class];
        const struct eb_bag_tune_verdict *verdict = &tuned->verdict;
        if (!tuned->is_measured) {
            continue; /* the machine is busy, or has no vector functions */
        }
        assert_in_range(verdict->chosen, 0, tuned->figures.candidate_count - 1);
        assert_true(verdict->chosen == 0 || verdict->chosen == verdict->fastest);
        assert_same_schedule(
            &ground.schedules.of_class[class], &tuned->figures.candidates[verdict->chosen]);
        assert_in_range(tuned->figures.round_count, EB_BAG_TUNE_ROUNDS_MIN, EB_BAG_TUNE_ROUNDS);
        for (unsigned i = 0; i < tuned->figures.candidate_count; i++) {
            assert_true(verdict->least[i] > 0);
        }
    }
    drop_ground(&ground);
}

/* Classes of which nothing is known, and classes of tables of both kinds, are measured on both. */
static void measures_rows_as_they_are_stored(void **state)
{
    (void)state;
    static const uint64_t code_parts[EB_BAG_ROW_CLASS_COUNT] = {0, 2, 1, 1, 1}; /* halves */
    static const uint64_t rows[EB_BAG_ROW_CLASS_COUNT] = {4096, 4096, 4096, 2048, 1024};
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE); /* a table of class 0 */
    struct eb_table table = {
        .row_count = EB_BAG_TUNE_PIECE_BYTES_MIN / 64,
        .row_stride_bytes = 72,
        .row_elements = 65,
        .storage = EB_STORAGE_INT8,
        .type = EB_F32,
    };
    eb_bag_tune_add(&ground.tables, &table);
    table.storage = EB_STORAGE_F16;
    eb_bag_tune_add(&ground.tables, &table);
    table.row_elements = 33;
    table.storage = EB_STORAGE_F32;
    eb_bag_tune_add(&ground.tables, &table);
    table.row_elements = 65;
    table.row_count = 1000; /* too small to count */
    eb_bag_tune_add(&ground.tables, &table);
    tune_by_script(&ground);
    assert_measured(&ground, true);
    for (unsigned i = 0; i < script.visit_count; i++) {
        const struct visit *visit = &script.visits[i];
        assert_int_equal(visit->row_count, rows[visit->class]);
        assert_int_equal(visit->code_count * 2, visit->row_count * code_parts[visit->class]);
    }
    drop_ground(&ground);
}

/* Expects a round to measure each candidate once. */
static void check_round(const struct visit *round, unsigned candidate_count)
{
    for (unsigned i = 0; i < candidate_count; i++) {
        assert_int_equal(round[i].class, round[0].class);
        assert_int_equal(round[i].round, round[0].round);
        for (unsigned n = 0; n < i; n++) {
            assert_false(is_same(&round[i].schedule, &round[n].schedule));
        }
    }
}

static bool has_same_order(const struct visit *a, const struct visit *b, unsigned candidate_count)
{
    for (unsigned i = 0; i < candidate_count; i++) {
        if (!is_same(&a[i].schedule, &b[i].schedule)) {
            return false;
        }
    }
    return true;
}

static void measures_each_round_in_another_order(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    tune_by_script(&ground);
    unsigned candidate_count = ground.report.of_class[0].figures.candidate_count;
    unsigned round_count = EB_BAG_ROW_CLASS_COUNT * EB_BAG_TUNE_ROUNDS;
    assert_int_equal(script.visit_count, round_count * candidate_count);
    for (unsigned i = 0; i < round_count; i++) {
        const struct visit *round = &script.visits[i * candidate_count];
        check_round(round, candidate_count);
        for (unsigned n = 0; n < i; n++) {
            assert_false(
                has_same_order(round, &script.visits[n * candidate_count], candidate_count));
        }
    }
    drop_ground(&ground);
}

/* ---- the time ---- */

static void ends_when_its_time_is_over(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    script.wall_tick_ns = 20 * MS;
    tune_by_script(&ground);
    assert_defaults(&ground);
    assert_measured(&ground, false);
    assert_in_range(ground.report.elapsed_ns, EB_BAG_TUNE_MS_MAX * MS, 300 * MS);
    drop_ground(&ground);
}

static unsigned count_visits(unsigned class)
{
    unsigned count = 0;
    for (unsigned i = 0; i < script.visit_count; i++) {
        count += script.visits[i].class == class;
    }
    return count;
}

/* When the time is over, the complete rounds are used if there are enough of them. */
static void takes_what_is_known_when_its_time_is_over(void **state)
{
    (void)state;
    struct ground ground;
    bool has_cases[EB_BAG_TUNE_ROUNDS + 1] = {false};
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    for (uint64_t tick = 1; tick < 100; tick++) {
        script.wall_tick_ns = tick * MS / 10;
        tune_again(&ground);
        for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
            const struct eb_bag_tune_class *tuned = &ground.report.of_class[class];
            unsigned round_count = tuned->figures.round_count;
            assert_int_equal(round_count, count_visits(class) / tuned->figures.candidate_count);
            assert_int_equal(tuned->is_measured, round_count >= EB_BAG_TUNE_ROUNDS_MIN);
            has_cases[round_count] = true;
        }
        assert_true(ground.report.elapsed_ns <= 300 * MS);
    }
    for (unsigned i = 0; i <= EB_BAG_TUNE_ROUNDS; i++) {
        assert_true(has_cases[i]);
    }
    drop_ground(&ground);
}

/* Classes that need little time leave more to the others. */
static double take_long_for_short_rows(const struct visit *visit)
{
    script.wall_tick_ns = visit->class == 0 ? 2 * MS : MS / 10;
    return 20;
}

static void gives_time_to_the_classes_that_need_it(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    script.ns_per_row = take_long_for_short_rows;
    tune_by_script(&ground);
    assert_measured(&ground, true);
    assert_int_equal(ground.report.of_class[0].figures.round_count, EB_BAG_TUNE_ROUNDS);
    drop_ground(&ground);
}

static double take_no_time(const struct visit *visit)
{
    (void)visit;
    return 0;
}

static void keeps_the_default_if_the_clock_stands_still(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    script.ns_per_row = take_no_time;
    tune_by_script(&ground);
    assert_defaults(&ground);
    assert_measured(&ground, false);
    drop_ground(&ground);
}

/* ---- the choice ---- */

static bool is_default(const struct visit *visit)
{
    return is_same(&visit->schedule, &eb_bag_schedules_default.of_class[visit->class]);
}

static bool is_winner(const struct visit *visit)
{
    return visit->schedule.near_rows == 24 && visit->schedule.near_is_l1;
}

/* Returns a number from 0 to 999. */
static unsigned draw(void)
{
    return (unsigned)(eb_mix64(script.random += EB_MIX64_STEP) % 1000);
}

static double win_in_one_class(const struct visit *visit)
{
    return visit->class == 3 && is_winner(visit) ? 16 : 20;
}

static void chooses_a_clear_winner(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    script.ns_per_row = win_in_one_class;
    tune_by_script(&ground);
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        const struct eb_bag_tune_verdict *verdict = &ground.report.of_class[class].verdict;
        struct eb_bag_schedule expected = {0, false, 24, true};
        assert_int_equal(verdict->chosen, verdict->fastest);
        assert_same_schedule(&ground.schedules.of_class[class],
            class == 3 ? &expected : &eb_bag_schedules_default.of_class[class]);
        assert_int_equal(verdict->led_count, class == 3 ? EB_BAG_TUNE_ROUNDS : 0);
        assert_int_equal((int)(verdict->gain * 100 + 0.5), class == 3 ? 20 : 0);
    }
    drop_ground(&ground);
}

/* The winner's least time is clearly the least, but it leads in one round only. */
static double disturb_one_round(const struct visit *visit)
{
    double undisturbed = visit->round == 2 ? 18 : 20;
    return visit->round == 2 && !is_winner(visit) ? 90 : undisturbed;
}

static double disturb_all_rounds_but_one(const struct visit *visit)
{
    return visit->round != 2 && is_default(visit) ? 90 : 20;
}

/* Only the round in which nobody is disturbed counts for the least times. */
static void keeps_the_default_if_rounds_are_disturbed(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    script.ns_per_row = disturb_one_round;
    tune_by_script(&ground);
    assert_measured(&ground, true);
    assert_defaults(&ground);
    script.ns_per_row = disturb_all_rounds_but_one;
    tune_again(&ground);
    assert_measured(&ground, true);
    assert_defaults(&ground);
    drop_ground(&ground);
}

/* Three measurements of ten are disturbed, and take up to three times as long. */
static double disturb_at_random(const struct visit *visit)
{
    (void)visit;
    double disturbance = draw() < 300 ? draw() / 500. : 0;
    return 20 * (1 + disturbance + draw() / 50000.);
}

static void keeps_the_default_on_a_busy_machine(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    script.ns_per_row = disturb_at_random;
    for (unsigned i = 0; i < 100; i++) {
        tune_again(&ground);
        assert_measured(&ground, true);
        assert_defaults(&ground);
    }
    drop_ground(&ground);
}

static double win_on_a_busy_machine(const struct visit *visit)
{
    double disturbance = draw() < 100 ? draw() / 500. : 0;
    return (is_winner(visit) ? 16 : 20) * (1 + disturbance + draw() / 50000.);
}

static void chooses_a_clear_winner_on_a_busy_machine(void **state)
{
    (void)state;
    enum { TIMES = 100 };
    struct ground ground;
    unsigned win_count = 0;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    script.ns_per_row = win_on_a_busy_machine;
    for (unsigned i = 0; i < TIMES; i++) {
        tune_again(&ground);
        for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
            win_count += ground.schedules.of_class[class].near_rows == 24;
        }
    }
    assert_true(win_count > TIMES * EB_BAG_ROW_CLASS_COUNT * 9 / 10);
    drop_ground(&ground);
}

/* Makes figures of `round_count` rounds, in which three candidates take 100 ns. */
static struct eb_bag_tune_figures make_figures(unsigned round_count)
{
    struct eb_bag_tune_figures figures = {.candidate_count = 3, .round_count = round_count};
    for (unsigned round = 0; round < round_count; round++) {
        for (unsigned i = 0; i < 3; i++) {
            figures.of_round[round][i] = 100;
        }
    }
    return figures;
}

static void wants_a_lead_of_five_percent(void **state)
{
    (void)state;
    for (int ns = 90; ns <= 110; ns++) {
        struct eb_bag_tune_figures figures = make_figures(7);
        for (unsigned round = 0; round < 7; round++) {
            figures.of_round[round][2] = ns;
        }
        struct eb_bag_tune_verdict verdict = eb_bag_tune_choose(&figures);
        assert_int_equal(verdict.fastest, ns < 100 ? 2 : 0);
        assert_int_equal(verdict.led_count, ns < 95 ? 7 : 0);
        assert_int_equal(verdict.chosen, ns < 95 ? 2 : 0);
    }
}

static void wants_a_lead_in_most_rounds(void **state)
{
    (void)state;
    /* Rounds in which the fastest must lead, of 3, 4 and so on. */
    static const unsigned wanted[] = {3, 3, 4, 5, 5};
    for (unsigned round_count = 3; round_count <= 7; round_count++) {
        for (unsigned led_count = 0; led_count <= round_count; led_count++) {
            struct eb_bag_tune_figures figures = make_figures(round_count);
            for (unsigned round = 0; round < led_count; round++) {
                figures.of_round[round][1] = 80;
            }
            struct eb_bag_tune_verdict verdict = eb_bag_tune_choose(&figures);
            assert_int_equal(verdict.led_count, led_count);
            assert_int_equal(verdict.chosen, led_count >= wanted[round_count - 3] ? 1 : 0);
        }
    }
}

/* Pools four bags, which together name every row of a table once, but not in the order of the
 * table. */
static void pools_the_same_with_every_candidate(void **state)
{
    (void)state;
    enum { ROWS = 300, DIM = 48 };
    static float rows[ROWS * DIM];
    static int32_t indices[ROWS];
    for (int32_t i = 0; i < ROWS * DIM; i++) {
        rows[i] = (float)(i % 1009) / 7;
    }
    for (int32_t i = 0; i < ROWS; i++) {
        indices[i] = i * 7 % ROWS;
    }
    struct eb_table table = table_of(EB_F32, rows, ROWS, DIM);
    struct eb_bag_query query = query_of(&table);
    query.indices = INTS(indices);
    query.layout = EB_LAYOUT_PACKED;
    query.indices_per_bag = ROWS / 4;
    struct bag_fixture fixture;
    assert_true(bag_fixture_check(&fixture, &query));
    bag_fixture_pool(&fixture, eb_bag_ops_find("ref"));
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_NONE);
    tune_by_script(&ground);
    const struct eb_bag_tune_figures *figures = &ground.report.of_class[0].figures;
    for (unsigned i = 0; i < figures->candidate_count; i++) {
        uint8_t out[4 * DIM * sizeof(float)];
        struct eb_bag_schedules schedules = {.cached_bytes = 0};
        struct eb_bag_stream stream;
        struct eb_bag_job job = fixture.job;
        job.out = out;
        struct eb_bag_tile tile = {
            .jobs = &job, .job_count = 1, .bag_end = 4, .element_end = UINT32_MAX};
        eb_bag_schedule_spread(&figures->candidates[i], &schedules);
        eb_bag_stream_init(&stream, eb_bag_ops_find(NULL), &schedules);
        eb_bag_stream_pool(&stream, &tile, NULL);
        assert_memory_equal(out, fixture.out, sizeof out);
    }
    drop_ground(&ground);
    bag_fixture_release(&fixture);
}

EB_TEST_GROUP(bag_tune)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(has_defaults_for_each_family, reset_script),
        cmocka_unit_test_setup(finds_the_defaults_of_this_processor, reset_script),
        cmocka_unit_test_setup(has_the_default_as_its_first_candidate, reset_script),
        cmocka_unit_test_setup(has_candidates_that_can_be_set_by_hand, reset_script),
        cmocka_unit_test_setup(leaves_small_memory_alone, reset_script),
        cmocka_unit_test_setup(leaves_memory_alone_if_nothing_prefetches_rows, reset_script),
        cmocka_unit_test_setup(keeps_the_largest_tables, reset_script),
        cmocka_unit_test_setup(takes_no_more_tables_than_it_needs, reset_script),
        cmocka_unit_test_setup(measures_on_several_tables, reset_script),
        cmocka_unit_test_setup(measures_on_the_most_tables, reset_script),
        cmocka_unit_test_setup(stays_inside_its_memory, reset_script),
        cmocka_unit_test_setup(chooses_among_its_candidates, reset_script),
        cmocka_unit_test_setup(measures_rows_as_they_are_stored, reset_script),
        cmocka_unit_test_setup(measures_each_round_in_another_order, reset_script),
        cmocka_unit_test_setup(ends_when_its_time_is_over, reset_script),
        cmocka_unit_test_setup(takes_what_is_known_when_its_time_is_over, reset_script),
        cmocka_unit_test_setup(gives_time_to_the_classes_that_need_it, reset_script),
        cmocka_unit_test_setup(keeps_the_default_if_the_clock_stands_still, reset_script),
        cmocka_unit_test_setup(chooses_a_clear_winner, reset_script),
        cmocka_unit_test_setup(keeps_the_default_if_rounds_are_disturbed, reset_script),
        cmocka_unit_test_setup(keeps_the_default_on_a_busy_machine, reset_script),
        cmocka_unit_test_setup(chooses_a_clear_winner_on_a_busy_machine, reset_script),
        cmocka_unit_test_setup(wants_a_lead_of_five_percent, reset_script),
        cmocka_unit_test_setup(wants_a_lead_in_most_rounds, reset_script),
        cmocka_unit_test_setup(pools_the_same_with_every_candidate, reset_script),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
