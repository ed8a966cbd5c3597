/* Draws the random rows and times of a load. Rows follow a distribution of accesses: each row has a
 * rank, hot rows first. A fixed permutation scatters the ranks over the table, so that hot rows are
 * not neighbours. The same seed gives the same draws.
 * Thread: each sampler is used by one. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum eb_sampler_law { EB_SAMPLER_UNIFORM, EB_SAMPLER_ZIPF, EB_SAMPLER_META2021 };

#define EB_SAMPLER_TEXT_BYTES 24

struct eb_sampler_distribution {
    enum eb_sampler_law law;
    double exponent;                  /* exponent of ZIPF */
    char text[EB_SAMPLER_TEXT_BYTES]; /* "zipf:1.05" */
};

/* Reads "uniform", "zipf:A" with A above 0 and at most 4, or "meta2021". Nothing may follow.
 * Returns false for any other text. */
bool eb_sampler_parse(const char *text, struct eb_sampler_distribution *out);

/* Bins of rows for meta2021, by how often a batch of 65 536 samples uses a row. */
#define EB_SAMPLER_BIN_COUNT 17

struct eb_sampler {
    enum eb_sampler_law law;
    uint64_t row_count;
    uint64_t state;
    /* For ZIPF: rank k is drawn with a probability proportional to k^-exponent, by rejection
     * (init_zipf). */
    double exponent;
    double integral_first;
    double integral_last;
    double shortcut;
    /* For META2021. */
    double bin_end[EB_SAMPLER_BIN_COUNT];     /* cumulative shares of accesses */
    uint64_t bin_first[EB_SAMPLER_BIN_COUNT]; /* first rank of each bin */
    uint64_t bin_rows[EB_SAMPLER_BIN_COUNT];  /* rows of each bin, at least 1 */
    /* For the permutation of the numbers from 0 to mask. */
    unsigned half_bits;
    uint64_t mask;
};

/* Initialises a sampler for a table of `row_count` rows (at least 1). `indices_per_bag` gives the
 * number of accesses of a batch, for distributions that depend on it. */
void eb_sampler_init(struct eb_sampler *sampler, const struct eb_sampler_distribution *distribution,
    uint64_t row_count, uint32_t indices_per_bag, uint64_t seed);
/* Draws the next row. */
uint64_t eb_sampler_draw(struct eb_sampler *sampler);
/* Returns the row of a rank. Ranks are below the number of rows; each row has one rank. */
uint64_t eb_sampler_scatter(const struct eb_sampler *sampler, uint64_t rank);
/* Draws 64 random bits. */
uint64_t eb_sampler_bits(struct eb_sampler *sampler);

/* ---- times ---- */

/* The times when the requests of an open load are due: a Poisson process. Its gaps do not depend on
 * what the server does. */
struct eb_load_arrival {
    double rate;   /* requests per second */
    double due_ns; /* since the start of the process */
    struct eb_sampler random;
};

/* Starts the process. `rate` is above 0. The same seed gives the same times. */
void eb_load_arrival_init(struct eb_load_arrival *arrival, double rate, uint64_t seed);
/* Returns when the next request is due, in nanoseconds since the start. Never decreases. */
uint64_t eb_load_arrival_next_ns(struct eb_load_arrival *arrival);
