#include "client/cli/workload.h"

#include "proto/splitmix64.h"

#include <assert.h>
#include <string.h>

#define COLUMNS_PER_HASH 8

static const uint64_t dlrm_rows[] = {40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63,
    40000000, 3067956, 405282, 10, 2209, 11938, 155, 4, 976, 14, 40000000, 40000000, 40000000,
    590152, 12973, 108, 36};
static const uint32_t dlrm_indices[] = {
    3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1};

static_assert(sizeof dlrm_rows / sizeof dlrm_rows[0] == 26, "dlrm-v2 has 26 tables");
static_assert(sizeof dlrm_indices / sizeof dlrm_indices[0] == 26, "dlrm-v2 has 26 tables");

static const struct eb_workload workloads[] = {
    {"dlrm-v2", 26, 128, dlrm_rows, dlrm_indices, 0, 0},
    {"rm1", 8, 32, NULL, NULL, 4000000, 80},
    {"rm2", 32, 64, NULL, NULL, 500000, 120},
    {"rm3", 10, 32, NULL, NULL, 2000000, 20},
    {"tbe", 32, 128, NULL, NULL, 100000, 20},
    {"rows", 1, 64, NULL, NULL, 16000000, 1},
    {"wide-26", 26, 64, NULL, NULL, 1000, 3},
    {"wide-200", 200, 64, NULL, NULL, 1000, 3},
    {"wide-856", 856, 64, NULL, NULL, 1000, 3},
};

const struct eb_workload *eb_workload_find(const char *name)
{
    for (size_t i = 0; i < sizeof workloads / sizeof workloads[0]; i++) {
        if (strcmp(workloads[i].name, name) == 0) {
            return &workloads[i];
        }
    }
    return NULL;
}

const char *eb_workload_names(void)
{
    return "dlrm-v2, rm1, rm2, rm3, tbe, rows, wide-26, wide-200, wide-856";
}

uint64_t eb_workload_rows(const struct eb_workload *workload, uint32_t table, uint64_t scale)
{
    assert(table < workload->table_count && scale > 0);
    uint64_t rows = workload->rows_by_table ? workload->rows_by_table[table] : workload->rows;
    return rows >= scale ? rows / scale : 1;
}

uint32_t eb_workload_indices_per_bag(const struct eb_workload *workload, uint32_t table)
{
    assert(table < workload->table_count);
    return workload->indices_by_table ? workload->indices_by_table[table]
                                      : workload->indices_per_bag;
}

void eb_workload_table_name(uint32_t table, char out[EB_WORKLOAD_TABLE_NAME_BYTES])
{
    assert(table < EB_WORKLOAD_TABLES_MAX);
    *out++ = 't';
    if (table >= 100) {
        *out++ = (char)('0' + table / 100);
    }
    *out++ = (char)('0' + table / 10 % 10);
    *out++ = (char)('0' + table % 10);
    *out = '\0';
}

static uint64_t hash_fnv1a(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *c = text; *c != '\0'; c++) {
        hash = (hash ^ (uint8_t)*c) * UINT64_C(1099511628211);
    }
    return hash;
}

uint64_t eb_workload_seed(const char *table_name, uint64_t version)
{
    return eb_splitmix64_mix(hash_fnv1a(table_name) + version * EB_SPLITMIX64_STEP);
}

static uint64_t hash_columns(uint64_t seed, uint64_t row, uint64_t column)
{
    return eb_splitmix64_mix(seed + row * UINT64_C(0xD1B54A32D192ED03) +
                             column / COLUMNS_PER_HASH * UINT64_C(0x8CB92BA72F3D8DD7));
}

static float read_lane(uint64_t hash, uint64_t lane)
{
    return (float)((int)(hash >> (8 * lane) & 255) - 128) * (1.0f / 128.0f);
}

float eb_workload_value(uint64_t seed, uint64_t row, uint64_t column)
{
    return read_lane(hash_columns(seed, row, column), column % COLUMNS_PER_HASH);
}

void eb_workload_fill_row(uint64_t seed, uint64_t row, float *out, size_t column_count)
{
    size_t whole = column_count - column_count % COLUMNS_PER_HASH;
    for (size_t column = 0; column < whole; column += COLUMNS_PER_HASH) {
        uint64_t hash = hash_columns(seed, row, column);
        for (size_t lane = 0; lane < COLUMNS_PER_HASH; lane++) {
            out[column + lane] = read_lane(hash, lane);
        }
    }
    for (size_t column = whole; column < column_count; column++) {
        out[column] = eb_workload_value(seed, row, column);
    }
}
