/* Compares the reference with sums in long double. The error must stay within the bound that the
 * operation promises: (n + 4) eps sum|w x| plus half a unit of the output. If x is stored as a
 * code, |w x| stands for |w s q| + |w b|. */
#include "kernels/element.h"
#include "tests/lib/test_group.h"
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

static uint32_t draw_bound(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((seed >> 33) % below);
}

/* Draws a value of either sign whose magnitude spans several binades. */
static double draw_value(void)
{
    double value = ldexp(1 + draw_bound(1 << 20) * 0x1p-20, (int)draw_bound(9) - 4);
    return draw_bound(2) ? value : -value;
}

/* A table and one bag of it. */
struct trial {
    uint8_t rows[ROWS * DIM * 8];
    struct eb_row_scale scales[ROWS];
    int64_t indices[BAG_MAX];
    uint8_t weights[BAG_MAX * 8];
    uint32_t count;
    struct eb_table table;
    struct eb_bag_query query;
};

static bool is_fp8(enum eb_storage storage)
{
    return storage == EB_STORAGE_F8_E4M3 || storage == EB_STORAGE_F8_E5M2;
}

/* Draws random bytes, except those that encode NaN or a magnitude above 32. */
static void draw_fp8(enum eb_storage storage, uint8_t *rows, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        do {
            rows[i] = (uint8_t)draw_bound(256);
        } while (!(fabs(eb_element_load_float(storage, &rows[i])) <= 32));
    }
}

/* Draws random codes, and scales that spread the values over several binades, whatever the width of
 * the codes. */
static void draw_codes(struct trial *trial, enum eb_storage storage)
{
    size_t row_bytes = eb_storage_row_bytes(storage, DIM);
    for (size_t i = 0; i < ROWS * row_bytes; i++) {
        trial->rows[i] = (uint8_t)draw_bound(256);
    }
    for (size_t row = 0; row < ROWS; row++) {
        trial->scales[row].scale = (float)ldexp(draw_value(), -(int)eb_storage_bits(storage));
        trial->scales[row].bias = (float)draw_value();
    }
}

static void draw_table(struct trial *trial, enum eb_storage storage)
{
    enum eb_type type = eb_storage_type(storage);
    trial->table = table_of(type, trial->rows, ROWS, DIM);
    if (eb_storage_is_code(storage)) {
        draw_codes(trial, storage);
        trial->table = table_of_codes(storage, trial->rows, trial->scales, ROWS, DIM);
    } else if (is_fp8(storage)) {
        draw_fp8(storage, trial->rows, ROWS * DIM);
        trial->table.storage = storage;
        trial->table.row_stride_bytes = DIM;
    } else {
        size_t bytes = eb_type_bytes(type);
        for (size_t i = 0; i < (size_t)ROWS * DIM; i++) {
            eb_element_store_float(type, draw_value(), trial->rows + i * bytes);
        }
    }
    if (eb_storage_is_code(storage) || is_fp8(storage)) {
        static const enum eb_type types[] = {EB_F32, EB_F16, EB_BF16};
        trial->table.type = types[draw_bound(3)];
    }
}

static void draw_trial(struct trial *trial, enum eb_storage storage, enum eb_reduction reduction)
{
    draw_table(trial, storage);
    enum eb_type type = trial->table.type;
    size_t weight_bytes = eb_type_bytes(type);
    trial->count = 1 + draw_bound(BAG_MAX);
    for (uint32_t i = 0; i < trial->count; i++) {
        trial->indices[i] = draw_bound(ROWS);
        /* Weights are positive, so that no sum of them loses precision to cancellation. */
        eb_element_store_float(type, fabs(draw_value()), trial->weights + i * weight_bytes);
    }
    trial->query = query_of(&trial->table);
    trial->query.reduction = reduction;
    trial->query.num_bags = 1;
    trial->query.indices = (struct eb_int_array){trial->indices, trial->count * 8, 8};
    if (reduction != EB_REDUCTION_MEAN && draw_bound(2)) {
        trial->query.weights = trial->weights;
        trial->query.weights_bytes = trial->count * weight_bytes;
        trial->query.weights_type = type;
    }
}

/* An element's value, and the sum of the magnitudes of its terms. */
struct value {
    long double x;
    long double magnitude;
};

static struct value load(const struct trial *trial, size_t row, uint32_t element)
{
    const struct eb_table *table = &trial->table;
    const uint8_t *bytes = trial->rows + row * table->row_stride_bytes;
    if (!eb_storage_is_code(table->storage)) {
        bytes += element * eb_storage_bytes(table->storage);
        long double x = eb_element_load_float(table->storage, bytes);
        return (struct value){x, fabsl(x)};
    }
    long double product = (long double)trial->scales[row].scale *
                          eb_element_load_code(table->storage, bytes, element);
    long double bias = trial->scales[row].bias;
    return (struct value){product + bias, fabsl(product) + fabsl(bias)};
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
    enum eb_type type = trial->query.weights_type;
    for (uint32_t i = 0; i < trial->count; i++) {
        struct value value = load(trial, (size_t)trial->indices[i], element);
        long double w = 1;
        if (trial->query.weights) {
            const uint8_t *weight = trial->weights + i * eb_type_bytes(type);
            w = eb_element_load_float((enum eb_storage)type, weight);
        }
        sums.value += w * value.x;
        sums.magnitude += w * value.magnitude;
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

/* Returns half a unit of the type at that value, or slightly more. Subnormals have the unit of the
 * smallest normal number. */
static double half_unit(enum eb_type type, double value)
{
    static const int digits[] = {[EB_F32] = 24, [EB_F64] = 53, [EB_F16] = 11, [EB_BF16] = 8};
    double least = type == EB_F16 ? 0x1p-14 : 0x1p-126;
    return ldexp(fmax(fabs(value), least), -digits[type]);
}

static void assert_within_bound(struct trial *trial)
{
    struct bag_fixture fixture;
    if (!bag_fixture_check(&fixture, &trial->query)) {
        fail_msg("%s", fixture.error.text);
    }
    bag_fixture_pool(&fixture, eb_bag_ops_find("ref"));
    enum eb_type type = trial->table.type;
    long double eps = type == EB_F64 ? DBL_EPSILON : FLT_EPSILON;
    for (uint32_t element = 0; element < DIM; element++) {
        struct sums sums = sum_exactly(trial, element);
        long double by = divisor_of(trial, &sums);
        double actual = eb_element_load_float(
            (enum eb_storage)type, fixture.out + element * eb_type_bytes(type));
        long double error = fabsl(actual - sums.value / by);
        long double bound = (trial->count + 4) * eps * sums.magnitude / by;
        bound += half_unit(type, actual);
        if (!(error <= bound)) {
            fail_msg("%s as %s, %s: %.20Lg is off by %.3Lg, bound %.3Lg",
                eb_storage_name(trial->table.storage), eb_type_name(type),
                eb_reduction_name(trial->query.reduction), sums.value / by, error, bound);
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
        for (int storage = EB_STORAGE_F32; storage < EB_STORAGE_COUNT; storage++) {
            if (eb_type_is_float(eb_storage_type((enum eb_storage)storage))) {
                draw_trial(&trial, (enum eb_storage)storage, reductions[draw_bound(4)]);
                assert_within_bound(&trial);
            }
        }
    }
}

EB_TEST_GROUP(bag_bound)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stays_within_the_promised_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
