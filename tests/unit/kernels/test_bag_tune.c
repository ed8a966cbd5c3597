#include "kernels/bag_schedule.h"
#include "kernels/bag_tune.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MS UINT64_C(1000000)

/* Memory between two inaccessible pages, and a task that measures on it. */
struct ground {
    uint8_t *mapping;
    uint64_t mapped_bytes;
    struct eb_bag_tune_ground tables;
    struct eb_bag_tune_task task;
    struct eb_bag_schedules schedules;
    struct eb_bag_tune_report report;
};

/* The time that the task's clock shows, and how far each reading advances it. */
static uint64_t clock_ns;
static uint64_t tick_ns;

static uint64_t read_test_clock(void)
{
    clock_ns += tick_ns;
    return clock_ns;
}

static void add(struct eb_bag_tune_ground *ground, const uint8_t *base, uint64_t bytes)
{
    struct eb_table table = {.rows = base, .row_count = bytes, .row_stride_bytes = 1};
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
    memset(&ground->schedules, 0xa5, sizeof ground->schedules);
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

/* Returns whether these functions prefetch rows at all. */
static bool has_vector_functions(const struct eb_bag_ops *ops)
{
    struct eb_bag_stream stream;
    eb_bag_stream_init(&stream, ops, &eb_bag_schedules_default);
    return stream.prefetch.block_elements[EB_STORAGE_F32] > 0;
}

static void assert_same_schedule(
    const struct eb_bag_schedule *schedule, const struct eb_bag_schedule *expected)
{
    assert_int_equal(schedule->far_rows, expected->far_rows);
    assert_int_equal(schedule->far_is_whole, expected->far_is_whole);
    assert_int_equal(schedule->near_rows, expected->near_rows);
    assert_int_equal(schedule->near_is_l1, expected->near_is_l1);
}

static void assert_defaults(const struct ground *ground)
{
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        assert_false(ground->report.of_class[class].is_measured);
        assert_int_equal(ground->report.of_class[class].chosen, 0);
        assert_same_schedule(
            &ground->schedules.of_class[class], &eb_bag_schedules_default.of_class[class]);
    }
    assert_int_equal(ground->schedules.cached_bytes, eb_bag_tune_cache_bytes());
    assert_int_equal(ground->schedules.nearby_bytes, 8 * eb_bag_tune_cache_bytes());
}

static void has_the_default_as_its_first_candidate(void **state)
{
    (void)state;
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        assert_same_schedule(&eb_bag_tune_candidates[0], &eb_bag_schedules_default.of_class[class]);
    }
}

static void has_candidates_that_can_be_set_by_hand(void **state)
{
    (void)state;
    for (unsigned i = 0; i < EB_BAG_TUNE_CANDIDATE_COUNT; i++) {
        char text[EB_BAG_SCHEDULE_TEXT_BYTES];
        struct eb_bag_schedule schedule;
        eb_bag_schedule_format(&eb_bag_tune_candidates[i], text);
        assert_null(eb_bag_schedule_parse(text, &schedule));
        assert_same_schedule(&schedule, &eb_bag_tune_candidates[i]);
    }
}

static void leaves_small_memory_alone(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min() - 1, PROT_NONE);
    tune(&ground);
    assert_defaults(&ground);
    assert_int_equal(ground.report.elapsed_ns, 0);
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
    tick_ns = MS / 100;
    ground.task.now_ns = read_test_clock;
    tune(&ground);
    if (has_vector_functions(ground.task.ops)) {
        assert_int_equal(ground.report.piece_count, 3);
        assert_true(ground.report.of_class[0].is_measured);
        /* The rows of the last measurement lie inside the tables of their bags. */
        const int64_t *rows = ground.task.scratch->rows;
        bool is_beyond_second = false;
        for (unsigned i = 0; i < EB_BAG_TUNE_ROWS; i++) {
            is_beyond_second |= rows[i] * EB_LINE_BYTES >= (int64_t)second;
            assert_in_range(rows[i], 0, first / EB_LINE_BYTES);
        }
        assert_true(is_beyond_second);
    }
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
        tick_ns = MS / 100;
        ground.task.now_ns = read_test_clock;
        tune(&ground);
        assert_int_equal(
            ground.report.of_class[0].is_measured, has_vector_functions(ground.task.ops));
        drop_ground(&ground);
    }
}

static void chooses_among_its_candidates(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_READ);
    tune(&ground);
    for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
        const struct eb_bag_tune_class *report = &ground.report.of_class[class];
        assert_in_range(report->chosen, 0, EB_BAG_TUNE_CANDIDATE_COUNT - 1);
        assert_same_schedule(
            &ground.schedules.of_class[class], &eb_bag_tune_candidates[report->chosen]);
        for (unsigned i = 0; i < EB_BAG_TUNE_CANDIDATE_COUNT && report->is_measured; i++) {
            assert_true(report->ns_per_row[i] > 0);
        }
    }
    assert_int_equal(ground.schedules.cached_bytes, eb_bag_tune_cache_bytes());
    assert_int_equal(ground.schedules.nearby_bytes, 8 * eb_bag_tune_cache_bytes());
    drop_ground(&ground);
}

/* By this clock, one measurement takes a third of the time allowed for a class of rows. */
static void ends_when_its_time_is_over(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_READ);
    if (!has_vector_functions(ground.task.ops)) {
        drop_ground(&ground);
        skip();
    }
    tick_ns = EB_BAG_TUNE_CLASS_MS_MAX * MS / 3;
    ground.task.now_ns = read_test_clock;
    tune(&ground);
    assert_defaults(&ground);
    uint64_t class_ns = EB_BAG_TUNE_CLASS_MS_MAX * MS;
    assert_in_range(ground.report.elapsed_ns, 1, EB_BAG_ROW_CLASS_COUNT * 2 * class_ns);
    drop_ground(&ground);
}

/* When the time is over, the complete rounds are used if there are enough of them. */
static void takes_what_is_known_when_its_time_is_over(void **state)
{
    (void)state;
    struct ground ground;
    make_ground(&ground, eb_bag_tune_bytes_min(), PROT_READ);
    if (!has_vector_functions(ground.task.ops)) {
        drop_ground(&ground);
        skip();
    }
    /* The clock is read three times for each candidate of a round. */
    uint64_t round_ticks = 3 * EB_BAG_TUNE_CANDIDATE_COUNT;
    ground.task.now_ns = read_test_clock;
    for (unsigned rounds = 1; rounds <= 4; rounds++) {
        tick_ns = EB_BAG_TUNE_CLASS_MS_MAX * MS / (rounds * round_ticks + round_ticks / 2);
        tune(&ground);
        for (unsigned class = 0; class < EB_BAG_ROW_CLASS_COUNT; class ++) {
            assert_int_equal(ground.report.of_class[class].is_measured, rounds >= 3);
        }
    }
    drop_ground(&ground);
}

static void prefers_the_default_unless_another_is_clearly_faster(void **state)
{
    (void)state;
    double figures[EB_BAG_TUNE_CANDIDATE_COUNT];
    for (unsigned i = 0; i < EB_BAG_TUNE_CANDIDATE_COUNT; i++) {
        figures[i] = 100;
    }
    assert_int_equal(eb_bag_tune_choose(figures), 0);
    figures[3] = 97;
    assert_int_equal(eb_bag_tune_choose(figures), 0);
    figures[3] = 90;
    figures[5] = 92;
    assert_int_equal(eb_bag_tune_choose(figures), 3);
    figures[8] = 89;
    assert_int_equal(eb_bag_tune_choose(figures), 8);
    figures[0] = 80;
    assert_int_equal(eb_bag_tune_choose(figures), 0);
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
    for (unsigned i = 0; i < EB_BAG_TUNE_CANDIDATE_COUNT; i++) {
        uint8_t out[4 * DIM * sizeof(float)];
        struct eb_bag_schedules schedules = {.cached_bytes = 0};
        struct eb_bag_stream stream;
        struct eb_bag_job job = fixture.job;
        job.out = out;
        struct eb_bag_tile tile = {
            .jobs = &job, .job_count = 1, .bag_end = 4, .element_end = UINT32_MAX};
        eb_bag_schedule_spread(&eb_bag_tune_candidates[i], &schedules);
        eb_bag_stream_init(&stream, eb_bag_ops_find(NULL), &schedules);
        eb_bag_stream_pool(&stream, &tile, NULL);
        assert_memory_equal(out, fixture.out, sizeof out);
    }
    bag_fixture_release(&fixture);
}

EB_TEST_GROUP(bag_tune)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_default_as_its_first_candidate),
        cmocka_unit_test(has_candidates_that_can_be_set_by_hand),
        cmocka_unit_test(leaves_small_memory_alone),
        cmocka_unit_test(leaves_memory_alone_if_nothing_prefetches_rows),
        cmocka_unit_test(keeps_the_largest_tables),
        cmocka_unit_test(takes_no_more_tables_than_it_needs),
        cmocka_unit_test(measures_on_several_tables),
        cmocka_unit_test(stays_inside_its_memory),
        cmocka_unit_test(chooses_among_its_candidates),
        cmocka_unit_test(ends_when_its_time_is_over),
        cmocka_unit_test(takes_what_is_known_when_its_time_is_over),
        cmocka_unit_test(prefers_the_default_unless_another_is_clearly_faster),
        cmocka_unit_test(pools_the_same_with_every_candidate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
