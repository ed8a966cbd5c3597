/* The reference against sums in long double, within the bound that the operation promises:
 * |error| <= (n + 4) eps sum|w x|, and half a unit of the output. */
#include "kernels/element.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROWS 50
#define DIM 9
#define BAG_MAX 200
#define ROUNDS 300

static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((seed >> 33) % below);
}

/* Magnitudes over some binades, both signs. */
static double draw_value(void)
{
    double value = ldexp(1 + draw(1 << 20) * 0x1p-20, (int)draw(9) - 4);
    return draw(2) ? value : -value;
}

/* A table and one bag of it. */
struct trial {
    enum eb_type type;
    uint8_t rows[ROWS * DIM * 8];
    int64_t indices[BAG_MAX];
    uint8_t weights[BAG_MAX * 8];
    uint32_t count;
    struct eb_table table;
    struct eb_bag_query query;
};

static void draw_trial(struct trial *trial, enum eb_type type, enum eb_reduction reduction)
{
    size_t bytes = eb_type_bytes(type);
    trial->type = type;
    trial->count = 1 + draw(BAG_MAX);
    for (uint32_t i = 0; i < ROWS * DIM; i++) {
        eb_element_store_float(type, draw_value(), trial->rows + i * bytes);
    }
    for (uint32_t i = 0; i < trial->count; i++) {
        trial->indices[i] = draw(ROWS);
        /* Positive, so that a sum of weights is as exact as a sum can be. */
        eb_element_store_float(type, fabs(draw_value()), trial->weights + i * bytes);
    }
    trial->table = table_of(type, trial->rows, ROWS, DIM);
    trial->query = query_of(&trial->table);
    trial->query.reduction = reduction;
    trial->query.num_bags = 1;
    trial->query.indices = (struct eb_int_array){trial->indices, trial->count * 8, 8};
    if (reduction != EB_REDUCTION_MEAN && draw(2)) {
        trial->query.weights = trial->weights;
        trial->query.weights_bytes = trial->count * bytes;
        trial->query.weights_type = type;
    }
}

struct sums {
    long double value;
    long double magnitude;
    long double weight;
    long double square;
};

static struct sums sum_exactly(const struct trial *trial, uint32_t element)
{
    struct sums sums = {0};
    enum eb_storage storage = (enum eb_storage)trial->type;
    size_t bytes = eb_type_bytes(trial->type);
    for (uint32_t i = 0; i < trial->count; i++) {
        const uint8_t *row = trial->rows + (size_t)trial->indices[i] * DIM * bytes;
        long double x = eb_element_load_float(storage, row + element * bytes);
        long double w = 1;
        if (trial->query.weights) {
            w = eb_element_load_float(storage, trial->weights + i * bytes);
        }
        sums.value += w * x;
        sums.magnitude += fabsl(w * x);
        sums.weight += w;
        sums.square += w * w;
    }
    return sums;
}

static long double divisor_of(const struct trial *trial, const struct sums *sums)
{
    switch (trial->query.reduction) {
    case EB_REDUCTION_MEAN: return trial->count;
    case EB_REDUCTION_WEIGHTED_MEAN: return sums->weight;
    case EB_REDUCTION_SQRTN: return sqrtl(sums->square);
    default: return 1;
    }
}

static double half_unit(enum eb_type type, double value)
{
    static const int digits[] = {[EB_F32] = 24, [EB_F64] = 53, [EB_F16] = 11, [EB_BF16] = 8};
    return ldexp(fabs(value), -digits[type]);
}

static void assert_within_bound(struct trial *trial)
{
    struct bag_fixture fixture;
    if (!bag_fixture_check(&fixture, &trial->query)) {
        fail_msg("%s", fixture.fault.text);
    }
    bag_fixture_pool(&fixture, eb_bag_ops_find("ref"));
    long double eps = trial->type == EB_F64 ? DBL_EPSILON : FLT_EPSILON;
    for (uint32_t element = 0; element < DIM; element++) {
        struct sums sums = sum_exactly(trial, element);
        long double by = divisor_of(trial, &sums);
        double actual = eb_element_load_float(
            (enum eb_storage)trial->type, fixture.out + element * eb_type_bytes(trial->type));
        long double error = fabsl(actual - sums.value / by);
        long double bound = (trial->count + 4) * eps * sums.magnitude / by;
        bound += half_unit(trial->type, actual);
        if (!(error <= bound)) {
            fail_msg("type %s reduction %s: %.20Lg is off by %.3Lg, bound %.3Lg",
                eb_type_name(trial->type), eb_reduction_name(trial->query.reduction),
                sums.value / by, error, bound);
        }
    }
    bag_fixture_release(&fixture);
}

static void stays_within_the_promised_error(void **state)
{
    (void)state;
    const enum eb_reduction reductions[] = {
        EB_REDUCTION_SUM, EB_REDUCTION_MEAN, EB_REDUCTION_WEIGHTED_MEAN, EB_REDUCTION_SQRTN};
    const char *given = getenv("EMBAG_TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("EMBAG_TEST_SEED=%llu\n", (unsigned long long)seed);
    static struct trial trial;
    for (int round = 0; round < ROUNDS; round++) {
        for (int type = EB_F32; type <= EB_BF16; type++) {
            draw_trial(&trial, (enum eb_type)type, reductions[draw(4)]);
            assert_within_bound(&trial);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stays_within_the_promised_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
