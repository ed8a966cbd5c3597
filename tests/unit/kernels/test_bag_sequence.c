/* A sequence lookup gives the rows, weights and lists that a plain search over all indices gives,
 * in every layout and with every combination of its fields. */
#include "kernels/bag_sequence.h"

#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW_COUNT 40
#define UNKNOWN_ROW 7
#define INDICES_MAX 300
#define BAGS_MAX 20
#define MAX_LEN_MAX 12
#define ROWS_MAX (INDICES_MAX + BAGS_MAX * MAX_LEN_MAX)
#define BAGLESS UINT32_MAX

static uint64_t state_of_sequence = 19;

static uint64_t draw_sequence(uint64_t end)
{
    state_of_sequence = state_of_sequence * 6364136223846793005u + 1442695040888963407u;
    return (state_of_sequence >> 33) % end;
}

static float table_values[ROW_COUNT];
static const float vector_value = 0.75f;

/* A random lookup, with the memory that its query points to. */
struct sequence_lookup {
    struct eb_table table;
    struct eb_bag_query query;
    struct eb_bag_sequence sequence;
    uint32_t index_count;
    uint32_t bag_count;
    uint32_t bag_of[INDICES_MAX]; /* bag of each index, or BAGLESS */
    int64_t ids[INDICES_MAX];
    int32_t narrow_ids[INDICES_MAX];
    int64_t bounds[INDICES_MAX + BAGS_MAX];
    float weights[INDICES_MAX];
};

/* The rows and lists of a lookup. */
struct sequence_answer {
    uint32_t row_count;
    uint32_t kept_count;
    uint64_t table_row_count; /* rows other than EB_ROW_ZERO */
    int64_t rows[ROWS_MAX];
    float weights[ROWS_MAX];
    int32_t lengths[BAGS_MAX];
    uint32_t inverse[INDICES_MAX];
};

static void draw_starts(struct sequence_lookup *lookup, bool ends_early)
{
    int64_t starts[BAGS_MAX + 1];
    int64_t at = draw_sequence(3) == 0 ? (int64_t)draw_sequence(lookup->index_count + 1) / 2 : 0;
    for (uint32_t bag = 0; bag < lookup->bag_count; bag++) {
        starts[bag] = at;
        at += (int64_t)draw_sequence((lookup->index_count - (uint64_t)at) / 4 + 1);
    }
    starts[lookup->bag_count] = ends_early ? at : lookup->index_count;
    memcpy(lookup->bounds, starts, sizeof starts);
    for (uint32_t i = 0; i < lookup->index_count; i++) {
        lookup->bag_of[i] = BAGLESS;
        for (uint32_t bag = 0; bag < lookup->bag_count; bag++) {
            bool is_in = i >= starts[bag] && i < starts[bag + 1];
            lookup->bag_of[i] = is_in ? bag : lookup->bag_of[i];
        }
    }
}

static void draw_bags_in_order(struct sequence_lookup *lookup)
{
    memset(lookup->bounds, 0, sizeof lookup->bounds);
    uint32_t bag = 0;
    for (uint32_t i = 0; i < lookup->index_count; i++) {
        bag += bag + 1 < lookup->bag_count && draw_sequence(8) == 0;
        lookup->bag_of[i] = bag;
        lookup->bounds[bag]++;
    }
}

/* Draws the bags of a lookup, with at least one bag. */
static void draw_sequence_layout(struct sequence_lookup *lookup)
{
    struct eb_bag_query *query = &lookup->query;
    uint64_t entries = lookup->bag_count;
    query->layout = (enum eb_layout)draw_sequence(EB_LAYOUT_COUNT);
    switch (query->layout) {
    case EB_LAYOUT_OFFSETS:
        query->include_last_offset = draw_sequence(2);
        draw_starts(lookup, query->include_last_offset);
        entries += query->include_last_offset;
        break;
    case EB_LAYOUT_LENGTHS: draw_bags_in_order(lookup); break;
    case EB_LAYOUT_PACKED:
        query->indices_per_bag = 1 + draw_sequence(2 * MAX_LEN_MAX);
        lookup->bag_count = lookup->index_count / (uint32_t)query->indices_per_bag % BAGS_MAX;
        lookup->index_count = lookup->bag_count * (uint32_t)query->indices_per_bag;
        for (uint32_t i = 0; i < lookup->index_count; i++) {
            lookup->bag_of[i] = i / (uint32_t)query->indices_per_bag;
        }
        entries = 0;
        break;
    case EB_LAYOUT_SEGMENTS:
        query->num_segments = lookup->bag_count;
        draw_bags_in_order(lookup);
        for (uint32_t i = 0; i < lookup->index_count && draw_sequence(50) > 0; i++) {
            lookup->bag_of[i] = (uint32_t)draw_sequence(lookup->bag_count);
        }
        for (uint32_t i = 0; i < lookup->index_count; i++) {
            lookup->bounds[i] = lookup->bag_of[i];
        }
        entries = lookup->index_count;
        break;
    default:
        query->num_bags = lookup->bag_count = 1;
        memset(lookup->bag_of, 0, sizeof lookup->bag_of);
        entries = 0;
    }
    query->bounds = (struct eb_int_array){lookup->bounds, entries * 8, 8};
}

static void draw_sequence_fields(struct sequence_lookup *lookup)
{
    struct eb_bag_query *query = &lookup->query;
    struct eb_bag_sequence *sequence = &lookup->sequence;
    *sequence = (struct eb_bag_sequence){.max_len = (uint32_t)draw_sequence(MAX_LEN_MAX + 1)};
    sequence->keep_first = sequence->max_len > 0 && draw_sequence(2);
    sequence->pad = sequence->max_len > 0 && draw_sequence(2);
    sequence->unique = !sequence->pad && draw_sequence(2);
    if (!sequence->unique && draw_sequence(2)) {
        query->weights = lookup->weights;
        query->weights_bytes = lookup->index_count * sizeof(float);
        query->weights_type = EB_F32;
    }
}

static void draw_sequence_lookup(struct sequence_lookup *lookup)
{
    struct eb_bag_query *query = &lookup->query;
    lookup->table = table_of(EB_F32, table_values, ROW_COUNT, 1);
    lookup->table.vector = &vector_value;
    lookup->table.unknown_row = draw_sequence(2) ? UNKNOWN_ROW : EB_ROW_VECTOR;
    *query = query_of(&lookup->table);
    query->missing = (enum eb_missing)(EB_MISSING_SKIP + draw_sequence(3));
    lookup->index_count = (uint32_t)draw_sequence(INDICES_MAX + 1);
    lookup->bag_count = 1 + (uint32_t)draw_sequence(BAGS_MAX);
    draw_sequence_layout(lookup);
    draw_sequence_fields(lookup);
    bool may_miss = draw_sequence(3) > 0;
    for (uint32_t i = 0; i < lookup->index_count; i++) {
        lookup->ids[i] = (int64_t)draw_sequence(may_miss ? ROW_COUNT + 9 : ROW_COUNT);
        lookup->narrow_ids[i] = (int32_t)lookup->ids[i];
        lookup->weights[i] = (float)draw_sequence(100) - 50.0f;
    }
    query->indices = (struct eb_int_array){lookup->ids, lookup->index_count * 8u, 8};
    if (draw_sequence(2)) {
        query->indices = (struct eb_int_array){lookup->narrow_ids, lookup->index_count * 4u, 4};
    }
    query->has_default = draw_sequence(2);
    query->default_index = 3;
}

/* Lists the indices that a bag keeps before max_len is applied. Returns their count. */
static uint32_t search_bag(const struct sequence_lookup *lookup, uint32_t bag, uint32_t *positions)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < lookup->index_count; i++) {
        bool is_skipped = lookup->ids[i] >= ROW_COUNT && lookup->query.missing == EB_MISSING_SKIP;
        if (lookup->bag_of[i] == bag && !is_skipped) {
            positions[count++] = i;
        }
    }
    return count;
}

static int64_t find_sequence_row(const struct sequence_lookup *lookup, uint32_t position)
{
    if (lookup->ids[position] < ROW_COUNT) {
        return lookup->ids[position];
    }
    return lookup->query.missing == EB_MISSING_UNKNOWN_ROW ? lookup->table.unknown_row
                                                           : EB_ROW_ZERO;
}

static void add_expected(
    const struct sequence_lookup *lookup, uint32_t position, struct sequence_answer *answer)
{
    int64_t row = find_sequence_row(lookup, position);
    uint32_t at = 0;
    answer->kept_count++;
    while (lookup->sequence.unique && at < answer->row_count && answer->rows[at] != row) {
        at++;
    }
    if (!lookup->sequence.unique) {
        at = answer->row_count;
    }
    if (at == answer->row_count) {
        answer->row_count++;
        answer->rows[at] = row;
        answer->weights[at] = lookup->weights[position];
        answer->table_row_count += row != EB_ROW_ZERO;
    }
    if (lookup->sequence.unique) {
        answer->inverse[answer->kept_count - 1] = at;
    }
}

static void expect_sequence(const struct sequence_lookup *lookup, struct sequence_answer *answer)
{
    const struct eb_bag_sequence *sequence = &lookup->sequence;
    uint32_t positions[INDICES_MAX];
    memset(answer, 0, sizeof *answer);
    for (uint32_t bag = 0; bag < lookup->bag_count; bag++) {
        uint32_t count = search_bag(lookup, bag, positions);
        uint32_t kept =
            sequence->max_len > 0 && count > sequence->max_len ? sequence->max_len : count;
        answer->lengths[bag] = (int32_t)kept;
        for (uint32_t i = 0; i < kept; i++) {
            add_expected(lookup, positions[sequence->keep_first ? i : count - kept + i], answer);
        }
        for (uint32_t i = kept; sequence->pad && i < sequence->max_len; i++) {
            answer->rows[answer->row_count++] = EB_ROW_ZERO;
        }
    }
}

/* Expects the reference to give the rows' values, weighted. Rows of zeros, and padding, are +0. */
static void assert_sequence_values(struct eb_bag_job *job, const struct sequence_answer *expected)
{
    static float out[ROWS_MAX];
    memset(out, 0xa5, sizeof out);
    job->out = (uint8_t *)out;
    job->out_stride_bytes = sizeof out[0];
    eb_bag_pool(eb_bag_ops_find(NULL), job, 0, job->bag_count);
    for (uint32_t i = 0; i < expected->row_count; i++) {
        int64_t row = expected->rows[i];
        float value = 0;
        if (row != EB_ROW_ZERO) {
            value = row == EB_ROW_VECTOR ? vector_value : table_values[row];
            value = job->weights ? expected->weights[i] * value : value;
        }
        assert_memory_equal(&out[i], &value, sizeof value);
    }
}

static void assert_sequence(struct sequence_lookup *lookup, const struct eb_bag_ops *ops)
{
    static struct sequence_answer expected;
    struct eb_bag_error error;
    struct eb_bag_extent extent;
    struct eb_bag_sequence_extent sizes;
    struct eb_bag_job job = {0};
    assert_true(eb_bag_measure(&lookup->query, &extent, &error));
    assert_true(
        eb_bag_sequence_measure(&lookup->query, &lookup->sequence, &extent, &sizes, &error));
    assert_int_equal(sizes.bag_count, lookup->bag_count);
    job.scratch = aligned_alloc(64, extent.scratch_bytes);
    int32_t *lengths = malloc(sizes.bag_count * sizeof *lengths + 1);
    uint32_t *inverse = malloc(sizes.kept_max * sizeof *inverse + 1);
    struct eb_bag_sequence_lists lists = {.lengths = lengths, .inverse = inverse};
    assert_true(eb_bag_check(ops, &lookup->query, &extent, &job, &error));
    eb_bag_sequence_take(&lookup->sequence, &extent, &sizes, &job, &lists);
    expect_sequence(lookup, &expected);
    assert_int_equal(job.bag_count, expected.row_count);
    assert_true(job.bag_count <= sizes.rows_max);
    assert_int_equal(lists.kept_count, expected.kept_count);
    assert_true(lists.kept_count <= sizes.kept_max);
    assert_memory_equal(lengths, expected.lengths, sizes.bag_count * sizeof *lengths);
    assert_memory_equal(job.rows, expected.rows, job.bag_count * sizeof job.rows[0]);
    assert_int_equal(job.gather_bytes, expected.table_row_count * sizeof(float));
    if (lookup->sequence.unique) {
        assert_memory_equal(inverse, expected.inverse, lists.kept_count * sizeof *inverse);
    }
    assert_null(job.starts);
    assert_int_equal(job.reduction, EB_REDUCTION_NONE);
    assert_sequence_values(&job, &expected);
    free(job.scratch);
    free(lengths);
    free(inverse);
}

static void sequences_are_what_a_plain_search_finds(void **state)
{
    (void)state;
    static struct sequence_lookup lookup;
    for (unsigned trial = 0; trial < 6000; trial++) {
        draw_sequence_lookup(&lookup);
        assert_sequence(&lookup, eb_bag_ops_find(trial % 2 ? "ref" : NULL));
    }
}

/* Measures a sequence over a table of 10 rows, and 6 indices in 3 bags. */
static bool measure_fixed(const struct eb_bag_sequence *sequence, struct eb_bag_query *query,
    struct eb_bag_sequence_extent *sizes, struct eb_bag_error *error)
{
    static const int64_t indices[6] = {0};
    struct eb_bag_extent extent;
    query->layout = EB_LAYOUT_PACKED;
    query->indices = (struct eb_int_array){indices, sizeof indices, 8};
    query->indices_per_bag = 2;
    assert_true(eb_bag_measure(query, &extent, error));
    return eb_bag_sequence_measure(query, sequence, &extent, sizes, error);
}

static void assert_sequence_error(
    struct eb_bag_sequence sequence, struct eb_bag_query query, const char *text)
{
    struct eb_bag_error error;
    struct eb_bag_sequence_extent sizes;
    assert_false(measure_fixed(&sequence, &query, &sizes, &error));
    assert_string_equal(error.text, text);
    assert_int_equal(error.class, EB_BAG_ERROR_MALFORMED);
}

static void refuses_fields_that_do_not_go_together(void **state)
{
    (void)state;
    static const float weights[6] = {0};
    struct eb_table table = table_of(EB_F32, table_values, 10, 1);
    struct eb_bag_query query = query_of(&table);
    assert_sequence_error(
        (struct eb_bag_sequence){.keep_first = true}, query, "keep_first needs a max_len above 0");
    assert_sequence_error(
        (struct eb_bag_sequence){.pad = true}, query, "pad needs a max_len above 0");
    assert_sequence_error((struct eb_bag_sequence){.max_len = 2, .pad = true, .unique = true},
        query, "unique and pad are both set: unique rows cannot be padded");
    query.weights = weights;
    query.weights_bytes = sizeof weights;
    query.weights_type = EB_F32;
    assert_sequence_error((struct eb_bag_sequence){.unique = true}, query,
        "unique is set, but there are weights: a unique row may have several of them");
}

static void unique_rows_need_a_table_whose_rows_can_be_sorted(void **state)
{
    (void)state;
    struct eb_bag_error error;
    struct eb_bag_sequence_extent sizes;
    struct eb_bag_sequence sequence = {.unique = true};
    struct eb_table table = table_of(EB_F32, table_values, EB_BAG_UNIQUE_ROWS_MAX, 1);
    struct eb_bag_query query = query_of(&table);
    assert_true(measure_fixed(&sequence, &query, &sizes, &error));
    table.row_count++;
    assert_sequence_error(sequence, query,
        "unique is not possible with a table of 1099511627775 rows, at most 1099511627774 are "
        "allowed");
}

static void padding_is_capped(void **state)
{
    (void)state;
    struct eb_bag_error error;
    struct eb_bag_sequence_extent sizes;
    struct eb_table table = table_of(EB_F32, table_values, 10, 1);
    struct eb_bag_query query = query_of(&table);
    struct eb_bag_sequence sequence = {.max_len = EB_BAG_BAGS_MAX / 3, .pad = true};
    assert_true(measure_fixed(&sequence, &query, &sizes, &error));
    assert_int_equal(sizes.rows_max, EB_BAG_BAGS_MAX / 3 * 3);
    sequence.max_len++;
    assert_false(measure_fixed(&sequence, &query, &sizes, &error));
    assert_int_equal(error.class, EB_BAG_ERROR_TOO_LARGE);
    assert_string_equal(
        error.text, "3 bags of max_len = 5592406 rows, at most 16777216 rows can be padded");
    sequence.max_len = UINT32_MAX;
    assert_false(measure_fixed(&sequence, &query, &sizes, &error));
    sequence.pad = false;
    assert_true(measure_fixed(&sequence, &query, &sizes, &error));
    assert_int_equal(sizes.rows_max, 6);
}

static void rows_of_a_large_table_are_told_apart(void **state)
{
    (void)state;
    static const int64_t last = EB_BAG_UNIQUE_ROWS_MAX - 1;
    int64_t ids[] = {last, 0, last - 256, last, 255, 256, 0, INT64_C(1) << 39, last};
    const int64_t rows[] = {last, 0, last - 256, 255, 256, INT64_C(1) << 39};
    const uint32_t positions[] = {4, 5, 6, 4, 7, 8, 5, 9, 4};
    uint32_t inverse[9];
    int32_t lengths[1];
    struct eb_bag_error error;
    struct eb_bag_extent extent;
    struct eb_bag_sequence_extent sizes;
    struct eb_bag_sequence sequence = {.unique = true};
    struct eb_table table = table_of(EB_F32, table_values, EB_BAG_UNIQUE_ROWS_MAX, 1);
    struct eb_bag_query query = query_of(&table);
    struct eb_bag_sequence_lists lists = {lengths, inverse, 4, 0};
    struct eb_bag_job job = {0};
    query.num_bags = 1;
    query.indices = INTS(ids);
    assert_true(eb_bag_measure(&query, &extent, &error));
    assert_true(eb_bag_sequence_measure(&query, &sequence, &extent, &sizes, &error));
    job.scratch = aligned_alloc(64, extent.scratch_bytes);
    assert_true(eb_bag_check(eb_bag_ops_find(NULL), &query, &extent, &job, &error));
    eb_bag_sequence_take(&sequence, &extent, &sizes, &job, &lists);
    assert_int_equal(job.bag_count, 6);
    assert_memory_equal(job.rows, rows, sizeof rows);
    assert_memory_equal(inverse, positions, sizeof inverse);
    assert_int_equal(lengths[0], 9);
    free(job.scratch);
}

static int set_up(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROW_COUNT; i++) {
        table_values[i] = (float)i - 19.5f;
    }
    return 0;
}

EB_TEST_GROUP(bag_sequence)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_are_what_a_plain_search_finds),
        cmocka_unit_test(refuses_fields_that_do_not_go_together),
        cmocka_unit_test(unique_rows_need_a_table_whose_rows_can_be_sorted),
        cmocka_unit_test(padding_is_capped),
        cmocka_unit_test(rows_of_a_large_table_are_told_apart),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
