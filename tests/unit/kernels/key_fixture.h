/* Sets of keys that are hard on an index, and an index of them.
 * Thread: one only. Memory: a fixture owns what it allocates, to the byte. */
#pragma once

#include "kernels/key_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* How the key of row i is made; no two are the same. */
enum key_set {
    KEYS_SEQUENTIAL,
    KEYS_NEGATIVE,
    KEYS_OF_LARGE_POWERS, /* multiples of 2^40 */
    KEYS_OF_SMALL_POWERS, /* multiples of 2^12 */
    KEYS_WITH_EQUAL_HIGH, /* all high bits but one set, i in the low ones */
    KEYS_WITH_EQUAL_LOW,  /* i in the high half */
    KEYS_OF_DOUBLES,      /* the bits of 1.0 + i / 2^20 */
    KEYS_OF_EXTREMES,     /* by turns from both ends of int64 */
    KEYS_REVERSED_BITS,
    KEYS_MIXED, /* as random as they come */
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

/* The keys; nothing is built. */
void key_fixture_init(struct key_fixture *fixture, enum key_set set, uint64_t row_count);
/* Builds and opens, where the keys are all different. */
enum eb_key_outcome key_fixture_build(struct key_fixture *fixture);
void key_fixture_deinit(struct key_fixture *fixture);
