#include "client/cli/pack_error.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* So that a table has the same sample every time. */
#define SEED UINT64_C(0x243f6a8885a308d3)

struct eb_pack_draw {
    uint64_t row;
    size_t bag;
};

/* The finaliser of SplitMix64 over a counter. */
static uint64_t draw_number(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int compare_draws(const void *left, const void *right)
{
    const struct eb_pack_draw *a = left;
    const struct eb_pack_draw *b = right;
    return (a->row > b->row) - (a->row < b->row);
}

static size_t choose_bag_count(uint64_t row_count, uint32_t elements)
{
    uint64_t room = EB_PACK_ERROR_BYTES_MAX / (2 * sizeof(double) * (uint64_t)elements);
    uint64_t count = room < EB_PACK_ERROR_BAGS_MAX ? room : EB_PACK_ERROR_BAGS_MAX;
    return row_count == 0 ? 0 : count > 0 ? count : 1;
}

bool eb_pack_error_init(struct eb_pack_error *error, uint64_t row_count, uint32_t elements)
{
    size_t bags = choose_bag_count(row_count, elements);
    *error = (struct eb_pack_error){
        .elements = elements, .bag_count = bags, .draw_count = bags * EB_PACK_ERROR_BAG_ROWS};
    error->draws = calloc(error->draw_count + 1, sizeof *error->draws);
    error->exact_sums = calloc(bags * elements + 1, sizeof *error->exact_sums);
    error->stored_sums = calloc(bags * elements + 1, sizeof *error->stored_sums);
    if (!error->draws || !error->exact_sums || !error->stored_sums) {
        eb_pack_error_deinit(error);
        return false;
    }
    uint64_t state = SEED;
    for (size_t i = 0; i < error->draw_count; i++) {
        error->draws[i] = (struct eb_pack_draw){
            .row = draw_number(&state) % row_count, .bag = i / EB_PACK_ERROR_BAG_ROWS};
    }
    qsort(error->draws, error->draw_count, sizeof *error->draws, compare_draws);
    return true;
}

void eb_pack_error_deinit(struct eb_pack_error *error)
{
    free(error->draws);
    free(error->exact_sums);
    free(error->stored_sums);
    *error = (struct eb_pack_error){0};
}

static double difference(double exact, double stored)
{
    if (exact == stored || (isnan(exact) && isnan(stored))) {
        return 0;
    }
    double error = fabs(stored - exact);
    return isnan(error) ? INFINITY : error;
}

/* The errors of `count` numbers, put to those before them. */
static void add_difference(
    struct eb_pack_deviation *deviation, uint64_t row, double exact, double stored)
{
    double error = difference(exact, stored);
    if (error > deviation->max) {
        deviation->max = error;
        deviation->max_row = row;
    }
    deviation->sum += error;
    deviation->count++;
}

static void add_to_bag(
    struct eb_pack_error *error, size_t bag, const float *exact, const float *stored)
{
    double *exact_sum = error->exact_sums + bag * error->elements;
    double *stored_sum = error->stored_sums + bag * error->elements;
    for (uint32_t i = 0; i < error->elements; i++) {
        exact_sum[i] += exact[i];
        stored_sum[i] += stored[i];
    }
}

void eb_pack_error_add(
    struct eb_pack_error *error, uint64_t row, const float *exact, const float *stored)
{
    for (uint32_t i = 0; i < error->elements; i++) {
        add_difference(&error->values, row, exact[i], stored[i]);
    }
    for (; error->next_draw < error->draw_count && error->draws[error->next_draw].row == row;
         error->next_draw++) {
        add_to_bag(error, error->draws[error->next_draw].bag, exact, stored);
    }
}

struct eb_pack_deviation eb_pack_error_bags(const struct eb_pack_error *error)
{
    struct eb_pack_deviation bags = {0};
    for (size_t i = 0; i < error->bag_count * error->elements; i++) {
        add_difference(&bags, 0, error->exact_sums[i], error->stored_sums[i]);
    }
    return bags;
}

double eb_pack_error_mean(const struct eb_pack_deviation *deviation)
{
    return deviation->count > 0 ? deviation->sum / (double)deviation->count : 0;
}
