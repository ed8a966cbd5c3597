/* What a load draws at random: rows, as the distributions of access have them, and times. The rank
 * of a row, hot ones first, is scattered over the table by a fixed permutation, so that hot rows
 * are not neighbours. The same seed draws the same.
 * Thread: one each. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum eb_sampler_law { EB_SAMPLER_UNIFORM, EB_SAMPLER_ZIPF, EB_SAMPLER_META2021 };

#define EB_SAMPLER_TEXT_BYTES 24

struct eb_sampler_distribution {
    enum eb_sampler_law law;
    double exponent;                  /* ZIPF */
    char text[EB_SAMPLER_TEXT_BYTES]; /* "zipf:1.05" */
};

/* Reads "uniform", "zipf:A" with A above 0 and at most 4, or "meta2021", which ends at the end of
 * text. false: it is none of them. */
bool eb_sampler_parse(const char *text, struct eb_sampler_distribution *out);

/* meta2021: bins of rows, by how often a batch of 65 536 samples uses them. */
#define EB_SAMPLER_BIN_COUNT 17

struct eb_sampler {
    enum eb_sampler_law law;
    uint64_t row_count;
    uint64_t state;
    /* ZIPF: P(rank k) ~ k^-exponent, by rejection from its integral. */
    double exponent;
    double integral_first;
    double integral_last;
    double shortcut;
    /* META2021 */
    double bin_end[EB_SAMPLER_BIN_COUNT];     /* shares of accesses, summed up */
    uint64_t bin_first[EB_SAMPLER_BIN_COUNT]; /* rank */
    uint64_t bin_rows[EB_SAMPLER_BIN_COUNT];  /* at least 1 */
    /* The permutation: of bit_count-bit numbers. */
    unsigned half_bits;
    uint64_t mask;
};

/* Of a table of `row_count` rows (at least 1). `indices_per_bag` says how many accesses a batch
 * has, where the distribution wants to know. */
void eb_sampler_init(struct eb_sampler *sampler, const struct eb_sampler_distribution *distribution,
    uint64_t row_count, uint32_t indices_per_bag, uint64_t seed);
/* The next row. */
uint64_t eb_sampler_draw(struct eb_sampler *sampler);
/* The row of a rank below the number of rows: every one once. */
uint64_t eb_sampler_scatter(const struct eb_sampler *sampler, uint64_t rank);
/* 64 random bits. */
uint64_t eb_sampler_bits(struct eb_sampler *sampler);

/* ---- times ---- */

/* When the requests of an open load are due: a Poisson process, whose gaps are independent of what
 * the server does. */
struct eb_load_arrival {
    double rate;   /* requests per second */
    double due_ns; /* from the start of the process */
    struct eb_sampler random;
};

/* `rate` is above 0. The same seed gives the same times. */
void eb_load_arrival_init(struct eb_load_arrival *arrival, double rate, uint64_t seed);
/* When the next request is due, in nanoseconds from the start; never less than before. */
uint64_t eb_load_arrival_next_ns(struct eb_load_arrival *arrival);
