#include "client/cli/sampler.h"

#include "tests/lib/test_group.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct eb_sampler_distribution parse(const char *text)
{
    struct eb_sampler_distribution distribution;
    assert_true(eb_sampler_parse(text, &distribution));
    assert_string_equal(distribution.text, text);
    return distribution;
}

static void reads_what_the_distributions_are_called(void **state)
{
    (void)state;
    assert_int_equal(parse("uniform").law, EB_SAMPLER_UNIFORM);
    assert_int_equal(parse("meta2021").law, EB_SAMPLER_META2021);
    assert_int_equal(parse("zipf:1.05").law, EB_SAMPLER_ZIPF);
    assert_true(fabs(parse("zipf:1.05").exponent - 1.05) < 1e-12);
    assert_true(fabs(parse("zipf:0.8").exponent - 0.8) < 1e-12);
}

static void refuses_other_names(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "uniform ", "normal", "zipf", "zipf:", "zipf:0",
        "zipf:-1", "zipf:nan", "zipf:1.05x", "zipf:5", "zipf: 1", "meta2022",
        "zipf:1.000000000000000000000000000000"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct eb_sampler_distribution distribution;
        assert_false(eb_sampler_parse(wrong[i], &distribution));
    }
}

static struct eb_sampler make_sampler(const char *text, uint64_t row_count, uint64_t seed)
{
    struct eb_sampler_distribution distribution = parse(text);
    struct eb_sampler sampler;
    eb_sampler_init(&sampler, &distribution, row_count, 20, seed);
    return sampler;
}

static void gives_each_rank_a_row_of_its_own(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 1000, 4096, 4097};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct eb_sampler sampler = make_sampler("zipf:1.2", counts[i], 1);
        bool *taken = calloc(counts[i], sizeof *taken);
        assert_non_null(taken);
        for (uint64_t rank = 0; rank < counts[i]; rank++) {
            uint64_t row = eb_sampler_scatter(&sampler, rank);
            assert_true(row < counts[i]);
            assert_false(taken[row]);
            taken[row] = true;
        }
        free(taken);
    }
}

static void scatters_hot_rows_over_the_table(void **state)
{
    (void)state;
    enum { ROWS = 1 << 20, RANKS = 1024, PARTS = 16 };
    struct eb_sampler sampler = make_sampler("zipf:1.2", ROWS, 1);
    unsigned in_part[PARTS] = {0};
    uint64_t previous = eb_sampler_scatter(&sampler, 0);
    for (uint64_t rank = 1; rank <= RANKS; rank++) {
        uint64_t row = eb_sampler_scatter(&sampler, rank);
        assert_true(row > previous ? row - previous > 1 : previous - row > 1);
        in_part[row / (ROWS / PARTS)]++;
        previous = row;
    }
    for (unsigned i = 0; i < PARTS; i++) {
        assert_in_range(in_part[i], RANKS / PARTS / 2, RANKS / PARTS * 2);
    }
}

static void scatters_alike_whatever_the_seed(void **state)
{
    (void)state;
    struct eb_sampler one = make_sampler("zipf:1.2", 12345, 1);
    struct eb_sampler two = make_sampler("meta2021", 12345, 2);
    for (uint64_t rank = 0; rank < 100; rank++) {
        assert_int_equal(eb_sampler_scatter(&one, rank), eb_sampler_scatter(&two, rank));
    }
}

static void draws_rows_of_the_table_only(void **state)
{
    (void)state;
    static const char *const names[] = {"uniform", "zipf:0.8", "zipf:1", "zipf:4", "meta2021"};
    static const uint64_t counts[] = {1, 2, 17, 40, 1000, UINT64_C(1) << 32};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            struct eb_sampler sampler = make_sampler(names[n], counts[i], n + i);
            for (unsigned k = 0; k < 10000; k++) {
                assert_true(eb_sampler_draw(&sampler) < counts[i]);
            }
        }
    }
}

static void draws_the_same_again_from_the_same_seed(void **state)
{
    (void)state;
    struct eb_sampler one = make_sampler("meta2021", 100000, 5);
    struct eb_sampler again = make_sampler("meta2021", 100000, 5);
    struct eb_sampler other = make_sampler("meta2021", 100000, 6);
    unsigned equal = 0;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t row = eb_sampler_draw(&one);
        assert_int_equal(row, eb_sampler_draw(&again));
        equal += row == eb_sampler_draw(&other);
    }
    assert_true(equal < 100);
}

/* Returns how often each rank is drawn, as a share of all draws. The caller frees the array. */
static double *count_ranks(struct eb_sampler *sampler, uint64_t row_count, unsigned draws)
{
    double *by_row = calloc(row_count, sizeof *by_row);
    double *by_rank = calloc(row_count, sizeof *by_rank);
    assert_non_null(by_row);
    assert_non_null(by_rank);
    for (unsigned i = 0; i < draws; i++) {
        by_row[eb_sampler_draw(sampler)] += 1.0 / draws;
    }
    for (uint64_t rank = 0; rank < row_count; rank++) {
        by_rank[rank] = by_row[eb_sampler_scatter(sampler, rank)];
    }
    free(by_row);
    return by_rank;
}

static void assert_near(double got, double wanted, double tolerance)
{
    if (fabs(got - wanted) > tolerance) {
        fail_msg("%g, not %g", got, wanted);
    }
}

static void draws_all_rows_alike_where_uniform(void **state)
{
    (void)state;
    struct eb_sampler sampler = make_sampler("uniform", 50, 1);
    double *parts = count_ranks(&sampler, 50, 500000);
    for (unsigned i = 0; i < 50; i++) {
        assert_near(parts[i], 1.0 / 50, 0.05 / 50);
    }
    free(parts);
}

static void draws_ranks_by_the_power_law(void **state)
{
    (void)state;
    static const char *const names[] = {"zipf:0.8", "zipf:1", "zipf:1.05", "zipf:1.2", "zipf:3"};
    enum { ROWS = 1000, DRAWS = 1000000 };
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        double a = parse(names[n]).exponent;
        struct eb_sampler sampler = make_sampler(names[n], ROWS, 3);
        double *parts = count_ranks(&sampler, ROWS, DRAWS);
        double sum = 0;
        double tail = 0;
        double wanted_tail = 0;
        for (unsigned k = 1; k <= ROWS; k++) {
            sum += pow(k, -a);
            wanted_tail += k > 20 ? pow(k, -a) : 0;
            tail += k > 20 ? parts[k - 1] : 0;
        }
        for (unsigned k = 1; k <= 20; k++) {
            /* Five standard deviations. */
            double wanted = pow(k, -a) / sum;
            assert_near(parts[k - 1], wanted, 5 * sqrt(wanted / DRAWS));
        }
        assert_near(tail, wanted_tail / sum, 5 * sqrt(wanted_tail / sum / DRAWS));
        free(parts);
    }
}

/* Uses are counted over batches of 65 536 samples with 20 indices each. */
static void draws_rows_as_often_as_meta2021_says(void **state)
{
    (void)state;
    static const double shares[EB_SAMPLER_BIN_COUNT] = {.069, .044, .068, .101, .121, .104, .073,
        .058, .052, .050, .049, .048, .048, .043, .031, .023, .019};
    enum { ROWS = 1 << 20, DRAWS = 4000000 };
    struct eb_sampler sampler = make_sampler("meta2021", ROWS, 9);
    double *parts = count_ranks(&sampler, ROWS, DRAWS);
    uint64_t ranks = 0;
    for (unsigned bin = EB_SAMPLER_BIN_COUNT; bin-- > 0;) {
        uint64_t first = sampler.bin_first[bin];
        double share = 0;
        assert_int_equal(first, ranks);
        for (uint64_t rank = first; rank < first + sampler.bin_rows[bin]; rank++) {
            share += parts[rank];
        }
        /* The published shares add up to 1.001. */
        assert_near(share, shares[bin] / 1.001, 5 * sqrt(shares[bin] / DRAWS));
        double uses = share / (double)sampler.bin_rows[bin] * 65536 * 20;
        if (bin > 0 && bin < EB_SAMPLER_BIN_COUNT - 1) {
            assert_true(uses > (double)(UINT64_C(1) << bin) / 2);
            assert_true(uses <= (double)(UINT64_C(1) << bin));
        }
        ranks += sampler.bin_rows[bin];
    }
    assert_int_equal(ranks, ROWS);
    free(parts);
}

EB_TEST_GROUP(sampler)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_the_distributions_are_called),
        cmocka_unit_test(refuses_other_names),
        cmocka_unit_test(gives_each_rank_a_row_of_its_own),
        cmocka_unit_test(scatters_hot_rows_over_the_table),
        cmocka_unit_test(scatters_alike_whatever_the_seed),
        cmocka_unit_test(draws_rows_of_the_table_only),
        cmocka_unit_test(draws_the_same_again_from_the_same_seed),
        cmocka_unit_test(draws_all_rows_alike_where_uniform),
        cmocka_unit_test(draws_ranks_by_the_power_law),
        cmocka_unit_test(draws_rows_as_often_as_meta2021_says),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
