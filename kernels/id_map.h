/* Maps ids of any size to the rows of a dense table, for users whose ids are hashes or counters.
 * Every id has a row, and several ids may have the same one.
 *
 *   MODULO         id modulo row_count, floored, so that a negative id is mapped to 0 ..
 *                  row_count - 1 too
 *   HASH_MODULO    mix(id XOR mix(seed)) modulo row_count, ids as two's complement, all unsigned
 *                  and modulo 2^64, where mix is splitmix64's step (Steele, Lea, Flood 2014):
 *                      x = x + 0x9E3779B97F4A7C15
 *                      x = (x XOR x >> 30) * 0xBF58476D1CE4E5B9
 *                      x = (x XOR x >> 27) * 0x94D049BB133111EB
 *                      x XOR x >> 31
 *
 * Examples of hashes, before the modulo: 0xA706DD2F4D197E6F for id 0 with seed 0;
 * 0x08B4FDA8C892B50E for id 1 with seed 0; 0x2DD82C88FA32B270 for id -1 with seed 0;
 * 0xCBF6B25960247D3B for id 12345 with seed 42.
 * Thread: pure functions. Memory: none. */
#pragma once

#include <stdint.h>

/* X(NAME, text). */
#define EB_ID_MAP_LIST(X)                                                                          \
    X(NONE, "none")                                                                                \
    X(MODULO, "modulo")                                                                            \
    X(HASH_MODULO, "hash_modulo")

#define X(name, text) EB_ID_MAP_##name,
enum eb_id_map_kind { EB_ID_MAP_LIST(X) EB_ID_MAP_COUNT };
#undef X

struct eb_id_map {
    enum eb_id_map_kind kind; /* NONE if ids are row numbers */
    uint64_t seed;            /* seed of HASH_MODULO */
};

/* Returns the name of a kind, such as "none". */
const char *eb_id_map_name(enum eb_id_map_kind kind);

/* Returns the hash of HASH_MODULO, before any modulo. */
uint64_t eb_id_map_hash(uint64_t seed, int64_t id);

/* Replaces each of `count` ids with its row. The kind must not be NONE, and row_count must be at
 * least 1. */
void eb_id_map_rows(const struct eb_id_map *map, uint64_t row_count, int64_t *ids, uint64_t count);
