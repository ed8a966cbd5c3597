/* Sets of keys that are hard for an index, and an index of one of them.
 * Thread: one only. Memory: a fixture owns what it allocates, without a spare byte. */
#pragma once

#include "kernels/key_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* How the key of row i is made. No two rows have the same key. */
enum key_set {
    KEYS_SEQUENTIAL,
    KEYS_NEGATIVE,
    KEYS_OF_LARGE_POWERS, /* multiples of 2^40 */
    KEYS_OF_SMALL_POWERS, /* multiples of 2^12 */
    KEYS_WITH_EQUAL_HIGH, /* the high half is the same, i is in the low half */
    KEYS_WITH_EQUAL_LOW,  /* the low half is the same, i is in the high half */
    KEYS_OF_DOUBLES,      /* the bits of 1.0 + i / 2^20 */
    KEYS_OF_EXTREMES,     /* alternately from both ends of int64 */
    KEYS_REVERSED_BITS,
    KEYS_MIXED, /* pseudo-random */
    KEY_SET_COUNT
};

int64_t key_of_set(enum key_set set, uint64_t row);

struct key_fixture {
    uint64_t row_count;
    int64_t *keys; /* [row_count] */
    struct eb_key_build build;
    void *scratch;
    struct eb_key_index index;
    struct eb_key_pair pair;
};

/* Makes the keys. Does not build the index. */
void key_fixture_init(struct key_fixture *fixture, enum key_set set, uint64_t row_count);
/* Builds the index, and opens it if the outcome is EB_KEY_OK. */
enum eb_key_outcome key_fixture_build(struct key_fixture *fixture);
void key_fixture_deinit(struct key_fixture *fixture);
