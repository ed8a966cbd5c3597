#include "kernels/id_map.h"

#include "kernels/mix64.h"

#include <assert.h>

const char *eb_id_map_name(enum eb_id_map_kind kind)
{
#define X(name, text) [EB_ID_MAP_##name] = text,
    static const char *const names[] = {EB_ID_MAP_LIST(X)};
#undef X
    assert((unsigned)kind < EB_ID_MAP_COUNT);
    return names[kind];
}

static uint64_t mix_id(uint64_t x)
{
    return eb_mix64(x + EB_MIX64_STEP);
}

uint64_t eb_id_map_hash(uint64_t seed, int64_t id)
{
    return mix_id((uint64_t)id ^ mix_id(seed));
}

/* Returns id modulo row_count, floored: -1 becomes row_count - 1, and so on backwards. */
static int64_t floor_modulo(int64_t id, uint64_t row_count)
{
    uint64_t row = id >= 0 ? (uint64_t)id % row_count : row_count - 1 - ~(uint64_t)id % row_count;
    return (int64_t)row;
}

void eb_id_map_rows(const struct eb_id_map *map, uint64_t row_count, int64_t *ids, uint64_t count)
{
    assert(map->kind != EB_ID_MAP_NONE && row_count > 0);
    uint64_t seed_mixed = mix_id(map->seed);
    for (uint64_t i = 0; i < count; i++) {
        ids[i] = map->kind == EB_ID_MAP_MODULO
                     ? floor_modulo(ids[i], row_count)
                     : (int64_t)(mix_id((uint64_t)ids[i] ^ seed_mixed) % row_count);
    }
}
