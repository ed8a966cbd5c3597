/* Reads the output with another parser, and fails the n-th allocation for each n. */
#include "server/admin/status_json.h"

#include "server/models/snapshot.h"
#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOSTILE_NAME "\"</script>\\\n\x01\xc3\xa9{}"

static json_t *write(const struct eb_stats *stats)
{
    size_t size;
    char *text = eb_status_json_write(stats, &size);
    assert_non_null(text);
    assert_int_equal(strlen(text), size);
    json_error_t error;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        fail_msg("%s at %d: %s", error.text, error.position, text);
    }
    free(text);
    return root;
}

/* Returns the value at `path`: names of members and numbers of elements, separated by dots, such as
 * "models.0.name". */
static json_t *find(json_t *value, const char *path)
{
    char copy[128];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *rest = copy, *step; (step = strsep(&rest, "."));) {
        bool is_list = json_is_array(value);
        value =
            is_list ? json_array_get(value, strtoul(step, NULL, 10)) : json_object_get(value, step);
    }
    if (!value) {
        fail_msg("there is no %s", path);
    }
    return value;
}

static void assert_number(json_t *root, const char *path, uint64_t expected)
{
    json_t *value = find(root, path);
    assert_true(json_is_integer(value));
    assert_int_equal(json_integer_value(value), expected);
}

static void assert_text(json_t *root, const char *path, const char *expected)
{
    json_t *value = find(root, path);
    assert_true(json_is_string(value));
    assert_string_equal(json_string_value(value), expected);
}

static void assert_count(json_t *root, const char *path, size_t expected)
{
    json_t *value = find(root, path);
    assert_true(json_is_array(value));
    assert_int_equal(json_array_size(value), expected);
}

static void writes_empty_stats(void **state)
{
    (void)state;
    struct eb_stats stats = {.taken_unix_ms = 1700000000001, .started_unix_ms = 1700000000000};
    json_t *root = write(&stats);
    assert_text(root, "phase", "loading");
    assert_number(root, "taken_unix_ms", 1700000000001);
    assert_number(root, "started_unix_ms", 1700000000000);
    const char *const lists[] = {"requests", "loops", "tables", "models", "slow", "lag.ranges"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        assert_count(root, lists[i], 0);
    }
    assert_int_equal(json_object_size(find(root, "refusals")), EB_REFUSAL_COUNT);
    assert_int_equal(json_object_size(find(root, "stages")), EB_STAGE_COUNT);
    assert_text(root, "executor.queued.0.priority", "interactive");
    assert_text(root, "executor.queued.1.priority", "batch");
    json_decref(root);
}

static void writes_requests_that_there_were(void **state)
{
    (void)state;
    struct eb_stats stats = {.phase = EB_STATS_SERVING, .method_count = 3};
    stats.methods[0] = (struct eb_stats_method){"embag.v1.EmbeddingBag", "Lookup"};
    stats.methods[1] = (struct eb_stats_method){"grpc.health.v1.Health", "Check"};
    stats.methods[2] = (struct eb_stats_method){"", ""};
    stats.total.requests[0][EB_STATUS_OK] = 7;
    stats.total.requests[0][EB_STATUS_OUT_OF_RANGE] = 2;
    stats.total.requests[2][EB_STATUS_UNIMPLEMENTED] = 1;
    json_t *root = write(&stats);
    assert_text(root, "phase", "serving");
    assert_count(root, "requests", 3);
    assert_text(root, "requests.0.service", "embag.v1.EmbeddingBag");
    assert_text(root, "requests.0.method", "Lookup");
    assert_text(root, "requests.0.code", "OK");
    assert_number(root, "requests.0.count", 7);
    assert_text(root, "requests.1.code", "OUT_OF_RANGE");
    assert_number(root, "requests.1.count", 2);
    assert_text(root, "requests.2.method", "");
    assert_text(root, "requests.2.code", "UNIMPLEMENTED");
    json_decref(root);
}

static void writes_counters_by_their_names(void **state)
{
    (void)state;
    struct eb_stats stats = {.phase = EB_STATS_DRAINING};
    struct eb_counters *total = &stats.total;
    total->refusals[EB_REFUSAL_EXPIRED_UNSENT] = 5;
    total->indices = 1000;
    total->sent_bytes = 77;
    total->stages[EB_STAGE_COMPUTE].counts[0] = 3;
    total->stages[EB_STAGE_COMPUTE].counts[5] = 4;
    total->stages[EB_STAGE_COMPUTE].counts[EB_HISTOGRAM_RANGES - 1] = 1;
    total->stages[EB_STAGE_COMPUTE].sum_ns = 123456;
    total->lag.counts[1] = 9;
    json_t *root = write(&stats);
    assert_text(root, "phase", "draining");
    assert_number(root, "refusals.expired_unsent", 5);
    assert_number(root, "refusals.late", 0);
    assert_number(root, "counts.rows_touched", 1000);
    assert_number(root, "counts.sent_bytes", 77);
    assert_number(root, "stages.compute.sum_ns", 123456);
    assert_count(root, "stages.compute.ranges", 3);
    assert_number(root, "stages.compute.ranges.0.0", EB_HISTOGRAM_FIRST_NS);
    assert_number(root, "stages.compute.ranges.0.1", 3);
    assert_number(root, "stages.compute.ranges.1.0", eb_histogram_end_ns(5));
    assert_number(root, "stages.compute.ranges.1.1", 4);
    assert_number(root, "stages.compute.ranges.2.0", 0);
    assert_number(root, "stages.compute.ranges.2.1", 1);
    assert_number(root, "lag.ranges.0.0", eb_histogram_end_ns(1));
    assert_number(root, "lag.ranges.0.1", 9);
    json_decref(root);
}

static void writes_loops_and_the_executor(void **state)
{
    (void)state;
    struct eb_stats_loop loops[2] = {
        {.connections = 3}, {.receive_bytes = 4096, .answer_bytes = 8192}};
    struct eb_stats stats = {.loop_count = 2, .loops = loops};
    stats.executor = (struct eb_executor_stats){.threads = 4,
        .idle_threads = 1,
        .queued_works = {2, 3},
        .queued_bytes = {200, 300},
        .tiles = 55,
        .busy_ns = 66,
        .bytes_per_us = 7000};
    json_t *root = write(&stats);
    assert_number(root, "loops.0.connections", 3);
    assert_number(root, "loops.1.receive_bytes", 4096);
    assert_number(root, "loops.1.answer_bytes", 8192);
    assert_number(root, "executor.threads", 4);
    assert_number(root, "executor.idle_threads", 1);
    assert_number(root, "executor.tiles", 55);
    assert_number(root, "executor.busy_ns", 66);
    assert_number(root, "executor.bytes_per_us", 7000);
    assert_number(root, "executor.queued.0.works", 2);
    assert_number(root, "executor.queued.1.bytes", 300);
    json_decref(root);
}

static void writes_tables_with_their_hot_rows(void **state)
{
    (void)state;
    struct eb_stats_table tables[2] = {
        {.model = (char[]){"m"},
            .table = (char[]){"t"},
            .bags = 10,
            .indices = 200,
            .missing = 3,
            .hot_count = 2,
            .hot = {{INT64_MIN, 0.25}, {INT64_MAX, 0.125}}},
        {.model = (char[]){HOSTILE_NAME}, .table = (char[]){HOSTILE_NAME}},
    };
    struct eb_stats stats = {.table_count = 2, .tables = tables};
    json_t *root = write(&stats);
    assert_number(root, "tables.0.bags", 10);
    assert_number(root, "tables.0.indices", 200);
    assert_number(root, "tables.0.missing", 3);
    assert_text(root, "tables.0.hot.0.0", "-9223372036854775808");
    assert_true(json_real_value(find(root, "tables.0.hot.0.1")) == 0.25);
    assert_text(root, "tables.0.hot.1.0", "9223372036854775807");
    assert_text(root, "tables.1.model", HOSTILE_NAME);
    assert_text(root, "tables.1.table", HOSTILE_NAME);
    assert_count(root, "tables.1.hot", 0);
    json_decref(root);
}

static void writes_models_and_their_versions(void **state)
{
    (void)state;
    struct eb_stats_version versions[3] = {
        {.number = UINT64_MAX, .state = EB_VERSION_FAILED, .failure = (char[]){HOSTILE_NAME}},
        {.number = 2,
            .state = EB_VERSION_SERVING,
            .is_claimed = true,
            .is_served_by_router = true,
            .loaded_unix_ms = 1700000000000,
            .load_ms = 12,
            .tables = 3,
            .rows = 4,
            .bytes = UINT64_C(1) << 40,
            .pages = {.small = 1, .huge_2m = 2, .huge_1g = 3}},
        {.number = 1, .state = EB_VERSION_RETIRED, .is_claimed = true},
    };
    struct eb_stats_model models[2] = {
        {.name = (char[]){HOSTILE_NAME},
            .served = 2,
            .claims = {.served = 5, .next = 6},
            .version_count = 3,
            .versions = versions},
        {.name = (char[]){"b"}, .failure = (char[]){"model.yaml: no"}},
    };
    struct eb_stats stats = {.model_count = 2, .models = models, .loads = {4, 5, 6}};
    json_t *root = write(&stats);
    assert_text(root, "models.0.name", HOSTILE_NAME);
    assert_text(root, "models.0.served", "2");
    assert_true(json_is_null(find(root, "models.0.fault")));
    assert_text(root, "models.0.versions.0.number", "18446744073709551615");
    assert_text(root, "models.0.versions.0.state", "failed");
    assert_text(root, "models.0.versions.0.fault", HOSTILE_NAME);
    assert_text(root, "models.0.versions.1.state", "serving");
    assert_true(json_is_null(find(root, "models.0.versions.1.fault")));
    assert_number(root, "models.0.versions.1.loaded_unix_ms", 1700000000000);
    assert_number(root, "models.0.versions.1.load_ms", 12);
    assert_number(root, "models.0.versions.1.tables", 3);
    assert_number(root, "models.0.versions.1.rows", 4);
    assert_number(root, "models.0.versions.1.bytes", UINT64_C(1) << 40);
    assert_number(root, "models.0.versions.1.pages.small", 1);
    assert_number(root, "models.0.versions.1.pages.huge_2m", 2);
    assert_number(root, "models.0.versions.1.pages.huge_1g", 3);
    assert_text(root, "models.0.versions.2.state", "retired");
    assert_true(json_is_null(find(root, "models.0.versions.0.claim")));
    assert_text(root, "models.0.versions.1.claim", "served");
    assert_text(root, "models.0.versions.2.claim", "next");
    assert_number(root, "models.0.claims.served", 5);
    assert_number(root, "models.0.claims.next", 6);
    assert_number(root, "models.1.claims.next", 0);
    assert_true(json_is_null(find(root, "models.1.served")));
    assert_text(root, "models.1.fault", "model.yaml: no");
    assert_count(root, "models.1.versions", 0);
    assert_number(root, "loads.done", 4);
    assert_number(root, "loads.failed", 5);
    assert_number(root, "loads.freed", 6);
    json_decref(root);
}

static void writes_what_is_loaded_and_whether_the_repository_can_be_read(void **state)
{
    (void)state;
    struct eb_stats stats = {.facts = {.load_done_bytes = 7, .load_total_bytes = 8}};
    json_t *root = write(&stats);
    assert_number(root, "load.done_bytes", 7);
    assert_number(root, "load.total_bytes", 8);
    assert_text(root, "repository", "unwatched");
    json_decref(root);
    stats.facts.is_repository_watched = true;
    root = write(&stats);
    assert_text(root, "repository", "readable");
    json_decref(root);
    stats.facts.is_repository_unreadable = true;
    root = write(&stats);
    assert_text(root, "repository", "unreadable");
    json_decref(root);
}

static void writes_what_a_router_knows(void **state)
{
    (void)state;
    struct eb_route_model model = {.name = (char[]){HOSTILE_NAME},
        .is_behind = true,
        .slots = {{.version = 8, .parts = 3, .ready_parts = 2, .replicas = {2, 0, 1}},
            {.version = 0}, {.version = UINT64_MAX}}};
    static struct eb_route_facts facts = {.not_ready = "no",
        .connected = 4,
        .replicas = 2,
        .flips = 5,
        .back_outs = 6,
        .instance_count = 1,
        .instances = {{7, 2}}};
    facts.model_count = 1;
    facts.models = &model;
    struct eb_route_counts *counts = eb_route_counts_make(2);
    assert_non_null(counts);
    counts->totals.unreached = 9;
    counts->peer_count = 2;
    counts->peers[0] = (struct eb_leg_peer){.address = "10.0.0.1:8600",
        .instance = 7,
        .is_connected = true,
        .is_suspect = true,
        .latency_ns = 11,
        .sent = 12,
        .failed = 13};
    struct eb_stats stats = {.route_facts = &facts, .route = counts};
    json_t *root = write(&stats);
    assert_text(root, "route.not_ready", "no");
    assert_number(root, "route.connected", 4);
    assert_number(root, "route.replicas_wanted", 2);
    assert_number(root, "route.flips", 5);
    assert_number(root, "route.back_outs", 6);
    assert_number(root, "route.unreached", 9);
    assert_true(json_is_false(find(root, "route.conflict")));
    assert_text(root, "route.models.0.name", HOSTILE_NAME);
    assert_true(json_is_true(find(root, "route.models.0.behind")));
    assert_count(root, "route.models.0.slots", 2);
    assert_text(root, "route.models.0.slots.0.slot", "served");
    assert_text(root, "route.models.0.slots.0.version", "8");
    assert_true(json_is_false(find(root, "route.models.0.slots.0.complete")));
    assert_number(root, "route.models.0.slots.0.ready_parts", 2);
    assert_count(root, "route.models.0.slots.0.replicas", 3);
    assert_number(root, "route.models.0.slots.0.replicas.2", 1);
    assert_text(root, "route.models.0.slots.1.slot", "previous");
    assert_count(root, "route.models.0.slots.1.replicas", 0);
    assert_text(root, "route.peers.0.address", "10.0.0.1:8600");
    assert_number(root, "route.peers.0.part", 2);
    assert_text(root, "route.peers.0.state", "suspect");
    assert_number(root, "route.peers.0.latency_ns", 11);
    assert_number(root, "route.peers.0.sent", 12);
    assert_number(root, "route.peers.0.failed", 13);
    assert_true(json_is_null(find(root, "route.peers.1.part")));
    assert_text(root, "route.peers.1.state", "lost");
    json_decref(root);
    stats.route = NULL; /* Its loops have not been asked. */
    root = write(&stats);
    assert_count(root, "route.peers", 0);
    json_decref(root);
    stats.route_facts = NULL;
    root = write(&stats);
    assert_null(json_object_get(root, "route"));
    json_decref(root);
    free(counts);
}

static void writes_slow_requests(void **state)
{
    (void)state;
    static struct eb_stats stats = {.slow_count = 2};
    stats.slow[0] = (struct eb_stats_slow){.unix_ms = 1700000000000,
        .ns = {1, 2, 3, 6},
        .indices = 40,
        .value_bytes = 50,
        .status = EB_STATUS_OK,
        .method = "/embag.v1.EmbeddingBag/Lookup",
        .model = "m",
        .peer = "127.0.0.1:5",
        .trace = "0af7651916cd43dd8448eb211c80319c",
        .span = "b7ad6b7169203331"};
    stats.slow[1] = (struct eb_stats_slow){.status = EB_STATUS_UNKNOWN, .model = "cut \xe2\x82"};
    json_t *root = write(&stats);
    assert_count(root, "slow", 2);
    assert_number(root, "slow.0.unix_ms", 1700000000000);
    assert_number(root, "slow.0.ns.queue", 1);
    assert_number(root, "slow.0.ns.compute", 2);
    assert_number(root, "slow.0.ns.send", 3);
    assert_number(root, "slow.0.ns.total", 6);
    assert_number(root, "slow.0.indices", 40);
    assert_number(root, "slow.0.value_bytes", 50);
    assert_text(root, "slow.0.code", "OK");
    assert_text(root, "slow.0.method", "/embag.v1.EmbeddingBag/Lookup");
    assert_text(root, "slow.0.model", "m");
    assert_text(root, "slow.0.peer", "127.0.0.1:5");
    assert_text(root, "slow.0.trace", "0af7651916cd43dd8448eb211c80319c");
    assert_text(root, "slow.0.span", "b7ad6b7169203331");
    assert_text(root, "slow.1.model", "cut \xef\xbf\xbd\xef\xbf\xbd");
    json_decref(root);
}

static int disarm_faults(void **state)
{
    (void)state;
    eb_faults_disarm();
    return 0;
}

static void says_when_there_is_no_memory(void **state)
{
    (void)state;
    static struct eb_stats stats = {.slow_count = EB_STATS_SLOW_REQUESTS};
    eb_faults_fail_allocation(0);
    json_decref(write(&stats));
    unsigned needed = eb_faults_allocation_count();
    assert_in_range(needed, 2, 20);
    for (unsigned number = 1; number <= needed; number++) {
        eb_faults_fail_allocation(number);
        size_t size = 1;
        assert_null(eb_status_json_write(&stats, &size));
        assert_int_equal(size, 0);
    }
}

EB_TEST_GROUP(status_json)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_empty_stats),
        cmocka_unit_test(writes_requests_that_there_were),
        cmocka_unit_test(writes_counters_by_their_names),
        cmocka_unit_test(writes_loops_and_the_executor),
        cmocka_unit_test(writes_tables_with_their_hot_rows),
        cmocka_unit_test(writes_models_and_their_versions),
        cmocka_unit_test(writes_what_is_loaded_and_whether_the_repository_can_be_read),
        cmocka_unit_test(writes_what_a_router_knows),
        cmocka_unit_test(writes_slow_requests),
        cmocka_unit_test_teardown(says_when_there_is_no_memory, disarm_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
