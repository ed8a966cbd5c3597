#include "tests/unit/kernels/key_fixture.h"

#include <stdlib.h>
#include <string.h>

static uint64_t reverse_bits(uint64_t x)
{
    uint64_t reversed = 0;
    for (unsigned bit = 0; bit < 64; bit++) {
        reversed = reversed << 1 | (x >> bit & 1);
    }
    return reversed;
}

int64_t key_of_set(enum key_set set, uint64_t row)
{
    switch (set) {
    case KEYS_SEQUENTIAL: return (int64_t)row;
    case KEYS_NEGATIVE: return -(int64_t)row - 1;
    case KEYS_OF_LARGE_POWERS: return (int64_t)(row << 40);
    case KEYS_OF_SMALL_POWERS: return (int64_t)(row << 12);
    case KEYS_WITH_EQUAL_HIGH: return (int64_t)(UINT64_C(0x7FFFFFFF00000000) | row);
    case KEYS_WITH_EQUAL_LOW: return (int64_t)(row << 32 | 0xFFFFFFFF);
    case KEYS_OF_DOUBLES: return (int64_t)(UINT64_C(0x3FF0000000000000) + (row << 32));
    case KEYS_OF_EXTREMES:
        return row % 2 == 0 ? INT64_MIN + (int64_t)(row / 2) : INT64_MAX - (int64_t)(row / 2);
    case KEYS_REVERSED_BITS: return (int64_t)reverse_bits(row);
    default: return (int64_t)(row * UINT64_C(0x9E3779B97F4A7C15));
    }
}

void key_fixture_init(struct key_fixture *fixture, enum key_set set, uint64_t row_count)
{
    *fixture = (struct key_fixture){.row_count = row_count};
    fixture->keys = malloc(row_count * sizeof fixture->keys[0] + 1);
    assert_non_null(fixture->keys);
    for (uint64_t row = 0; row < row_count; row++) {
        fixture->keys[row] = key_of_set(set, row);
    }
    struct eb_key_build *build = &fixture->build;
    assert_true(eb_key_build_plan(row_count, &build->plan));
    build->keys = fixture->keys;
    build->index = aligned_alloc(EB_KEY_INDEX_ALIGNMENT, build->plan.index_bytes);
    build->counts = malloc(build->plan.partition_count * sizeof build->counts[0]);
    fixture->scratch = malloc(build->plan.scratch_bytes);
    assert_true(build->index && build->counts && fixture->scratch);
}

enum eb_key_outcome key_fixture_build(struct key_fixture *fixture)
{
    struct eb_key_build *build = &fixture->build;
    const char *reason = NULL;
    enum eb_key_outcome outcome = eb_key_build_run(build, fixture->scratch, &fixture->pair);
    if (outcome == EB_KEY_OK && !eb_key_index_open(&fixture->index, build->index,
                                    build->plan.index_bytes, fixture->row_count, &reason)) {
        fail_msg("%s", reason);
    }
    return outcome;
}

void key_fixture_deinit(struct key_fixture *fixture)
{
    free(fixture->keys);
    free(fixture->build.index);
    free(fixture->build.counts);
    free(fixture->scratch);
}
