#include "tests/bench/bench_verify.h"

#include "kernels/element.h"
#include "tests/bench/bench_memory.h"
#include "tests/bench/bench_ours.h"
#include "tests/bench/bench_theirs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Approximate limit on the elements that are added up for one feed: about 20 ms. */
#define ELEMENTS_MAX (UINT64_C(1) << 20)

/* One bag of one feed. */
struct bag {
    const struct eb_bench_case *bench;
    const struct eb_table *table;
    const int64_t *indices; /* [count] */
    const float *weights;   /* NULL: none */
    uint32_t count;
};

static double weigh(const struct bag *bag, uint32_t i)
{
    return bag->weights ? (double)bag->weights[i] : 1;
}

/* Returns the value of an element, and in *magnitude the size to which its rounding errors are
 * relative. */
static double load_value(
    const struct eb_table *table, uint64_t row, uint32_t column, double *magnitude)
{
    const uint8_t *bytes = (const uint8_t *)table->rows + row * table->row_stride_bytes;
    if (!table->scales) {
        double x = eb_element_load_float(
            table->storage, bytes + column * eb_storage_bytes(table->storage));
        *magnitude = fabs(x);
        return x;
    }
    struct eb_row_scale scale = eb_table_scale(table, row);
    double product =
        (double)scale.scale * (double)eb_element_load_code(table->storage, bytes, column);
    *magnitude = fabs(product) + fabs((double)scale.bias);
    return product + (double)scale.bias;
}

static double find_divisor(const struct bag *bag)
{
    double sum = 0;
    double squares = 0;
    for (uint32_t i = 0; i < bag->count; i++) {
        sum += weigh(bag, i);
        squares += weigh(bag, i) * weigh(bag, i);
    }
    switch (bag->bench->reduction) {
    case EB_REDUCTION_MEAN: return bag->count;
    case EB_REDUCTION_WEIGHTED_MEAN: return sum;
    case EB_REDUCTION_SQRTN: return sqrt(squares);
    default: return 1;
    }
}

struct expected {
    double value;
    double bound; /* allowed error before the result is rounded to its type */
};

/* Returns the epsilon of the accumulator. It is doubled for f64, because the expected sums are f64
 * too and have errors of the same size. */
static double find_epsilon(const struct eb_table *table)
{
    return table->type == EB_F64 ? 2 * 0x1p-52 : 0x1p-23;
}

static struct expected sum_column(const struct bag *bag, uint32_t column, double divisor)
{
    double sum = 0;
    double magnitudes = 0;
    if (divisor <= 0 && divisor >= 0) {
        return (struct expected){0};
    }
    for (uint32_t i = 0; i < bag->count; i++) {
        double magnitude;
        sum +=
            weigh(bag, i) * load_value(bag->table, (uint64_t)bag->indices[i], column, &magnitude);
        magnitudes += fabs(weigh(bag, i)) * magnitude;
    }
    double bound = (bag->count + 4) * find_epsilon(bag->table) * magnitudes;
    return (struct expected){sum / divisor, bound / fabs(divisor)};
}

static struct expected find_extreme(const struct bag *bag, uint32_t column, double sign)
{
    struct expected found = {0};
    for (uint32_t i = 0; i < bag->count; i++) {
        double magnitude;
        double x = load_value(bag->table, (uint64_t)bag->indices[i], column, &magnitude);
        if (i == 0 || sign * x > sign * found.value) {
            found.value = x;
        }
        double bound = bag->table->scales ? find_epsilon(bag->table) * magnitude : 0;
        found.bound = bound > found.bound ? bound : found.bound;
    }
    return found;
}

/* Returns the error that rounding to the type adds: half a unit in the last place. */
static double find_half_unit(enum eb_type type, double value)
{
    switch (type) {
    case EB_F64: return 0x1p-53 * fabs(value);
    case EB_F16: return 0x1p-11 * fabs(value) + 0x1p-25;
    case EB_BF16: return 0x1p-8 * fabs(value);
    default: return 0x1p-24 * fabs(value) + 0x1p-150;
    }
}

/* Returns the largest error in one bag, as a fraction of the allowed error. */
static double compare_bag(const struct bag *bag, const uint8_t *out)
{
    double divisor = find_divisor(bag);
    double worst = 0;
    enum eb_type type = bag->bench->output_type;
    for (uint32_t column = 0; column < bag->table->row_elements; column++) {
        struct expected expected;
        switch (bag->bench->reduction) {
        case EB_REDUCTION_MAX: expected = find_extreme(bag, column, 1); break;
        case EB_REDUCTION_MIN: expected = find_extreme(bag, column, -1); break;
        default: expected = sum_column(bag, column, divisor); break;
        }
        /* For dense storages, eb_storage has the same numbers as eb_type. */
        double got =
            eb_element_load_float((enum eb_storage)type, out + column * eb_type_bytes(type));
        double error = fabs(got - expected.value);
        double bound = expected.bound + find_half_unit(type, expected.value);
        double part = error > 0 ? error / bound : 0;
        part = isnan(got) ? INFINITY : part;
        worst = part > worst ? part : worst;
    }
    return worst;
}

static double compare_feed(
    const struct eb_bench_case *bench, uint32_t feed, uint64_t batch, const uint8_t *out)
{
    const struct eb_table *table = &bench->feeds[feed].table->table;
    const float *weights = eb_bench_case_weights(bench, feed, batch);
    const int64_t *indices = eb_bench_case_indices(bench, feed, batch);
    uint64_t bag_count = eb_bench_case_result_rows(bench, feed);
    uint32_t bag_rows = (uint32_t)(eb_bench_case_feed_rows(bench, feed) / bag_count);
    /* Compares bags spread over the whole batch. */
    uint64_t step = bag_count * bag_rows * table->row_elements / ELEMENTS_MAX + 1;
    double worst = 0;
    for (uint64_t n = 0; n < bag_count; n += step) {
        struct bag bag = {.bench = bench,
            .table = table,
            .indices = indices + n * bag_rows,
            .weights = weights ? weights + n * bag_rows : NULL,
            .count = bag_rows};
        double part = compare_bag(&bag, out + n * eb_bench_case_result_row_bytes(bench, feed));
        worst = part > worst ? part : worst;
    }
    return worst;
}

double eb_bench_verify_results(
    const struct eb_bench_case *bench, uint64_t batch, const uint8_t *out)
{
    double worst = 0;
    for (uint32_t feed = 0; feed < bench->feed_count; feed++) {
        double part =
            compare_feed(bench, feed, batch, out + eb_bench_case_result_offset(bench, feed));
        worst = part > worst ? part : worst;
    }
    return worst;
}

static void compute(const struct eb_bench_case *bench, struct eb_bench_ours *ours)
{
    eb_bench_ours_init(ours, bench, 0, 1);
    struct eb_bench_runner runner = eb_bench_ours_runner(ours);
    runner.prepare(runner.self, 0);
    runner.run(runner.self);
}

static double compare_exactly(const struct eb_bench_case *bench, const uint8_t *out)
{
    struct eb_bench_case reference_case = *bench;
    struct eb_bench_ours reference;
    reference_case.ops = eb_bag_ops_find("ref");
    compute(&reference_case, &reference);
    uint64_t bytes = eb_bench_case_result_offset(bench, bench->feed_count);
    bool is_equal = memcmp(reference.out, out, bytes) == 0;
    eb_bench_ours_deinit(&reference);
    return is_equal ? 0 : INFINITY;
}

double eb_bench_verify_ours(const struct eb_bench_case *bench)
{
    struct eb_bench_ours ours;
    compute(bench, &ours);
    bool is_float = eb_type_is_float(bench->feeds[0].table->table.type);
    double worst =
        is_float ? eb_bench_verify_results(bench, 0, ours.out) : compare_exactly(bench, ours.out);
    eb_bench_ours_deinit(&ours);
    return worst;
}

double eb_bench_verify_theirs(
    const struct eb_bench_case *bench, const struct eb_fbgemm_kernel *kernel)
{
    struct eb_bench_theirs theirs;
    eb_bench_theirs_init(&theirs, bench, kernel, 0, 1);
    struct eb_bench_runner runner = eb_bench_theirs_runner(&theirs);
    runner.prepare(runner.self, 0);
    runner.run(runner.self);
    double worst = eb_bench_verify_results(bench, 0, theirs.out);
    eb_bench_theirs_deinit(&theirs);
    return worst;
}
