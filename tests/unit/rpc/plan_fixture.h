/* A request to a model version that is loaded from files, for tests of its plan and its answer.
 * The tables, where c is the position of an element in its row:
 *   rows    f32 [4, 2], 10 * row + c        wide   f32 [3, 3], 100 * row + c
 *   cube    f32 [2, 2, 3], 10 * row + c     line   f32 [5], row
 *   half    f16 [2, 2], 1                   whole  i32 [2, 2], row + c
 *   bare    f32 [0, 2]
 * The features:
 *   plain    rows, with the defaults        around   wide, id_map modulo
 *   highest  rows, reduction max, missing skip, default_index 3, max_ids 2
 * The group "pair" consists of highest and around.
 * Thread: the test's. Memory: freed by plan_fixture_deinit; the version by plan_fixture_unload. */
#pragma once

#include "proto/codec.h"
#include "proto/send_queue.h"
#include "server/rpc/plan.h"

#define PLAN_FIXTURE_QUERIES_MAX 4

/* For cmocka, once per program: loads the version from a directory that it creates. */
int plan_fixture_load(void **state);
int plan_fixture_unload(void **state);
const struct eb_model_version *plan_fixture_version(void);

struct plan_fixture {
    struct eb_limits limits; /* the defaults, which the test may change */
    struct eb_wire_query queries[PLAN_FIXTURE_QUERIES_MAX];
    struct eb_wire_request request;
    size_t arena_cap_bytes;
    struct eb_buffer_pool pool;
    struct eb_memory memory; /* memory of the pool */
    struct eb_arena arena;
    struct eb_feature_memo memo;
    struct eb_plan plan;
    struct eb_error error;
    struct eb_outgoing *answer;
    struct eb_arena answer_arena;
    struct eb_wire_response *response; /* the decoded answer */
};

/* Makes a request of `count` queries to "rows": indices 1, 2, 3 in a bag of two and a bag of
 * one. */
void plan_fixture_init(struct plan_fixture *fixture, size_t count);
/* Checks that all memory was given back. */
void plan_fixture_deinit(struct plan_fixture *fixture);

/* Sets one array of a query, which borrows these 32-bit numbers. */
void plan_fixture_set_indices(struct eb_wire_query *query, const int32_t *indices, size_t count);
void plan_fixture_set_offsets(struct eb_wire_query *query, const int32_t *offsets, size_t count);

/* Checks the request. Whatever the outcome, the request may be run again. */
bool plan_fixture_check(struct plan_fixture *fixture);
/* Checks the request, lays out the answer, computes it with the reference kernel and decodes it.
 * Returns false on failure, with fixture->error set. */
bool plan_fixture_run(struct plan_fixture *fixture);
/* Expects the check to fail with this status and a text that contains `part`. */
void plan_fixture_expect_refused(
    struct plan_fixture *fixture, enum eb_status status, const char *part);
/* Expects result `number` to be the f32 result of query `number`, with these `count` values and the
 * shape [bags, count / bags]. */
void plan_fixture_expect_rows(const struct plan_fixture *fixture, size_t number, uint64_t bags,
    const float *values, size_t count);
