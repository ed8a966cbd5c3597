/* A request against a model version that is loaded from files, for tests of what becomes of it.
 * Its tables, where c is an element's place in its row:
 *   rows    f32 [4, 2], 10 * row + c        wide   f32 [3, 3], 100 * row + c
 *   cube    f32 [2, 2, 3], 10 * row + c     line   f32 [5], row
 *   half    f16 [2, 2], 1                   whole  i32 [2, 2], row + c
 *   bare    f32 [0, 2]
 * Its features:
 *   plain    rows, as it is      around   wide, by id_map modulo
 *   highest  rows, reduction max, missing skip, default_index 3, max_ids 2
 * Its group "pair" is highest and around.
 * Thread: the test's. Memory: freed by plan_fixture_deinit; the version by plan_fixture_unload. */
#pragma once

#include "proto/codec.h"
#include "proto/send_queue.h"
#include "server/rpc/plan.h"

#define PLAN_FIXTURE_QUERIES_MAX 4

/* For cmocka: loads the version, from a directory of its own; once per program. */
int plan_fixture_load(void **state);
int plan_fixture_unload(void **state);
const struct eb_model_version *plan_fixture_version(void);

struct plan_fixture {
    struct eb_limits limits; /* the defaults, for the test to change */
    struct eb_wire_query queries[PLAN_FIXTURE_QUERIES_MAX];
    struct eb_wire_request request;
    size_t arena_cap_bytes;
    struct eb_buffer_pool pool;
    struct eb_memory memory; /* of the pool */
    struct eb_arena arena;
    struct eb_feature_memo memo;
    struct eb_plan plan;
    struct eb_error error;
    struct eb_outgoing *answer;
    struct eb_arena answer_arena;
    struct eb_wire_response *response; /* the answer, decoded */
};

/* A request of `count` queries to "rows": indices 1, 2, 3 in bags of two and one. */
void plan_fixture_init(struct plan_fixture *fixture, size_t count);
/* Everything that was taken must have come back. */
void plan_fixture_deinit(struct plan_fixture *fixture);

/* Sets a query's arrays; 32-bit, borrowed. */
void plan_fixture_set_indices(struct eb_wire_query *query, const int32_t *indices, size_t count);
void plan_fixture_set_offsets(struct eb_wire_query *query, const int32_t *offsets, size_t count);

/* Checks the request. Once it has, or has not, it may be run again. */
bool plan_fixture_check(struct plan_fixture *fixture);
/* Checks, lays out, computes with the reference and decodes. false: trial->error. */
bool plan_fixture_run(struct plan_fixture *fixture);
/* Checking fails with this status and a text that holds `part`. */
void plan_fixture_expect_refused(
    struct plan_fixture *fixture, enum eb_status status, const char *part);
/* Result `number` is f32, has this query, these values and the shape [bags, values / bags]. */
void plan_fixture_expect_rows(const struct plan_fixture *fixture, size_t number, uint64_t bags,
    const float *values, size_t count);
