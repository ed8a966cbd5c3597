/* The part of a version in parts that a row or a key belongs to. A table whose rows are divided
 * lies in P parts, numbered from 0:
 *   - row r of a table of rows is row r / P of part r mod P,
 *   - key k of a keyed table is in part mix(k XOR salt) mod P, where mix is that of
 * kernels/mix64.h. All numbers are unsigned and have 64 bits; a negative key is taken as its two's
 * complement. The salt belongs to the version and is never 0: with salt 0, the keys of a part would
 * have hashes that are equal modulo P, which would fill the part's key index unevenly
 * (key_index.h).
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/mix64.h"

#include <stdbool.h>
#include <stdint.h>

/* Most parts of a version. A folder's name gives a part's number five digits. */
#define EB_PARTS_MAX 4096u

/* The part that a server has. */
struct eb_part_choice {
    uint32_t part;
    uint32_t parts; /* 0: the server is no part server */
};

/* How the rows of one table are divided. */
struct eb_part_rule {
    uint32_t parts; /* 1 to EB_PARTS_MAX */
    bool by_key;    /* the table is keyed */
    uint64_t salt;  /* of the version; not 0 */
};

/* Returns number / parts, and number % parts as *rest. Avoids the division of 64 bits, which takes
 * several times as long as all else that a router does for an index. */
static inline uint64_t eb_part_divide(uint64_t number, uint32_t parts, uint32_t *rest)
{
    if ((parts & (parts - 1)) == 0) {
        *rest = (uint32_t)number & (parts - 1);
        return number >> __builtin_ctz(parts);
    }
    if (number <= UINT32_MAX) {
        *rest = (uint32_t)number % parts;
        return (uint32_t)number / parts;
    }
    *rest = (uint32_t)(number % parts);
    return number / parts;
}

/* Returns the part of a row number or key. */
static inline uint32_t eb_part_of(const struct eb_part_rule *rule, int64_t index)
{
    uint32_t part;
    (void)eb_part_divide(rule->by_key ? eb_mix64((uint64_t)index ^ rule->salt) : (uint64_t)index,
        rule->parts, &part);
    return part;
}

/* Returns the number of a row within its part; a key stays as it is. */
static inline int64_t eb_part_index(const struct eb_part_rule *rule, int64_t index)
{
    uint32_t part;
    return rule->by_key ? index : (int64_t)eb_part_divide((uint64_t)index, rule->parts, &part);
}
