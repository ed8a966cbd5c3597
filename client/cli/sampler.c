#include "client/cli/sampler.h"

#include "proto/splitmix64.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPONENT_MAX 4
#define BATCH_SAMPLES 65536
#define NS_PER_S 1e9

/* Shares of the accesses to rows that are used (0,1] (1,2] (2,4] ... (16384,32768] >32768 times per
 * batch. */
static const double shares[EB_SAMPLER_BIN_COUNT] = {.069, .044, .068, .101, .121, .104, .073, .058,
    .052, .050, .049, .048, .048, .043, .031, .023, .019};

bool eb_sampler_parse(const char *text, struct eb_sampler_distribution *out)
{
    *out = (struct eb_sampler_distribution){.law = EB_SAMPLER_UNIFORM};
    if (strlen(text) >= sizeof out->text) {
        return false;
    }
    memcpy(out->text, text, strlen(text) + 1);
    if (strcmp(text, "uniform") == 0) {
        return true;
    }
    if (strcmp(text, "meta2021") == 0) {
        out->law = EB_SAMPLER_META2021;
        return true;
    }
    if (strncmp(text, "zipf:", 5) != 0 || text[5] < '0' || text[5] > '9') {
        return false;
    }
    char *end = NULL;
    out->law = EB_SAMPLER_ZIPF;
    out->exponent = strtod(text + 5, &end);
    return *end == '\0' && out->exponent > 0 && out->exponent <= EXPONENT_MAX;
}

uint64_t eb_sampler_bits(struct eb_sampler *sampler)
{
    return eb_splitmix64_next(&sampler->state);
}

/* Draws a number in [0, 1). */
static double draw_fraction(struct eb_sampler *sampler)
{
    return (double)(eb_sampler_bits(sampler) >> 11) * 0x1p-53;
}

static uint64_t draw_below(struct eb_sampler *sampler, uint64_t end)
{
    uint64_t drawn = (uint64_t)(draw_fraction(sampler) * (double)end);
    return drawn < end ? drawn : end - 1;
}

/* Returns the integral of x^-a from 1 to x. */
static double integrate(double a, double x)
{
    double power = 1 - a;
    return fabs(power) < 1e-9 ? log(x) : expm1(power * log(x)) / power;
}

static double invert(double a, double integral)
{
    double power = 1 - a;
    return fabs(power) < 1e-9 ? exp(integral) : exp(log1p(power * integral) / power);
}

/* Prepares the rejection sampling. Rank k accepts a piece of the integral that ends at k + 1/2 and
 * is k^-a long; the rest of the integral over (k - 1/2, k + 1/2) is rejected. The curve is convex,
 * so the piece lies within that interval. Only the first rank's interval is cut to its piece: the
 * integral begins there. */
static void init_zipf(struct eb_sampler *sampler, double a)
{
    sampler->exponent = a;
    sampler->integral_first = integrate(a, 1.5) - 1;
    sampler->integral_last = integrate(a, (double)sampler->row_count + 0.5);
    /* A draw this close below its rank is accepted without a test. */
    sampler->shortcut = 2 - invert(a, integrate(a, 2.5) - pow(2, -a));
}

static uint64_t draw_zipf(struct eb_sampler *sampler)
{
    double a = sampler->exponent;
    double span = sampler->integral_first - sampler->integral_last;
    for (;;) {
        double at = sampler->integral_last + draw_fraction(sampler) * span;
        double x = invert(a, at);
        double k = floor(x + 0.5);
        k = k < 1 ? 1 : k;
        k = k > (double)sampler->row_count ? (double)sampler->row_count : k;
        if (k - x <= sampler->shortcut || at >= integrate(a, k + 0.5) - pow(k, -a)) {
            return (uint64_t)k - 1;
        }
    }
}

/* Returns the number of rows of a bin, which its share of the accesses and their frequency
 * determine. Not used for the first bin, which has all rows that are left. */
static double count_bin_rows(unsigned bin, double accesses)
{
    double uses = 0.75 * (double)(UINT64_C(1) << bin);
    double rows = shares[bin] * accesses / uses;
    return rows < 1 ? 1 : rows;
}

/* Divides the rows into bins, hot bins first. In a small table all bins have proportionally fewer
 * rows. */
static void init_meta2021(struct eb_sampler *sampler, uint32_t indices_per_bag)
{
    double accesses = (double)BATCH_SAMPLES * indices_per_bag;
    double wanted = 0;
    for (unsigned bin = 1; bin < EB_SAMPLER_BIN_COUNT; bin++) {
        wanted += count_bin_rows(bin, accesses);
    }
    double half = (double)sampler->row_count / 2;
    double shrink = wanted > half ? half / wanted : 1;
    uint64_t first = 0;
    for (unsigned bin = EB_SAMPLER_BIN_COUNT - 1; bin > 0; bin--) {
        uint64_t rows = (uint64_t)(count_bin_rows(bin, accesses) * shrink);
        uint64_t rows_left = sampler->row_count - first;
        rows = rows > 0 ? rows : 1;
        sampler->bin_first[bin] = first;
        sampler->bin_rows[bin] = rows < rows_left ? rows : rows_left;
        /* In a table of few rows, bins share the last rows. */
        first += first + sampler->bin_rows[bin] < sampler->row_count ? sampler->bin_rows[bin] : 0;
    }
    sampler->bin_first[0] = first;
    sampler->bin_rows[0] = sampler->row_count - first;
    double sum = 0;
    for (unsigned bin = 0; bin < EB_SAMPLER_BIN_COUNT; bin++) {
        sampler->bin_end[bin] = sum += shares[bin];
    }
    for (unsigned bin = 0; bin < EB_SAMPLER_BIN_COUNT; bin++) {
        sampler->bin_end[bin] /= sum;
    }
}

static uint64_t draw_meta2021(struct eb_sampler *sampler)
{
    double at = draw_fraction(sampler);
    unsigned bin = 0;
    while (bin + 1 < EB_SAMPLER_BIN_COUNT && at >= sampler->bin_end[bin]) {
        bin++;
    }
    return sampler->bin_first[bin] + draw_below(sampler, sampler->bin_rows[bin]);
}

void eb_sampler_init(struct eb_sampler *sampler, const struct eb_sampler_distribution *distribution,
    uint64_t row_count, uint32_t indices_per_bag, uint64_t seed)
{
    assert(row_count > 0);
    *sampler = (struct eb_sampler){.law = distribution->law, .row_count = row_count, .state = seed};
    unsigned bits = 0;
    while (bits < 63 && UINT64_C(1) << bits < row_count) {
        bits++;
    }
    sampler->mask = (UINT64_C(1) << bits) - 1;
    sampler->half_bits = (bits + 1) / 2 > 0 ? (bits + 1) / 2 : 1;
    if (distribution->law == EB_SAMPLER_ZIPF) {
        init_zipf(sampler, distribution->exponent);
    } else if (distribution->law == EB_SAMPLER_META2021) {
        init_meta2021(sampler, indices_per_bag);
    }
}

uint64_t eb_sampler_scatter(const struct eb_sampler *sampler, uint64_t rank)
{
    /* Each step is a bijection of the numbers from 0 to mask. A result outside the table goes
     * through the steps again. */
    uint64_t x = rank;
    assert(rank < sampler->row_count);
    do {
        x = (x + UINT64_C(0x2545F4914F6CDD1D)) * UINT64_C(0xD1342543DE82EF95) & sampler->mask;
        x ^= x >> sampler->half_bits;
        x = x * UINT64_C(0xAF251AF3B0F025B5) & sampler->mask;
        x ^= x >> sampler->half_bits;
        x = x * UINT64_C(0x9FB21C651E98DF25) & sampler->mask;
    } while (x >= sampler->row_count);
    return x;
}

uint64_t eb_sampler_draw(struct eb_sampler *sampler)
{
    switch (sampler->law) {
    case EB_SAMPLER_UNIFORM: return draw_below(sampler, sampler->row_count);
    case EB_SAMPLER_ZIPF: return eb_sampler_scatter(sampler, draw_zipf(sampler));
    case EB_SAMPLER_META2021: return eb_sampler_scatter(sampler, draw_meta2021(sampler));
    }
    return 0;
}

/* ---- times ---- */

void eb_load_arrival_init(struct eb_load_arrival *arrival, double rate, uint64_t seed)
{
    assert(rate > 0);
    *arrival = (struct eb_load_arrival){.rate = rate, .random = {.state = seed}};
}

uint64_t eb_load_arrival_next_ns(struct eb_load_arrival *arrival)
{
    /* In (0, 1], so that the logarithm is finite. */
    double fraction = (double)((eb_sampler_bits(&arrival->random) >> 11) + 1) * 0x1p-53;
    arrival->due_ns += -log(fraction) / arrival->rate * NS_PER_S;
    return (uint64_t)arrival->due_ns;
}
