/* Compares the metrics text with tests/golden/metrics.txt line by line, and checks every line of
 * every text against the grammar of the format. */
#include "server/admin/metrics_text.h"

#include "server/models/snapshot.h"
#include "tests/lib/test_group.h"

#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOO_MANY 20 /* how many entries a test adds beyond a cap */
#define TEXT_BYTES 65536

static const struct eb_process_usage usage = {.cpu_seconds = 1.25,
    .resident_bytes = 4096,
    .virtual_bytes = 8192,
    .threads = 7,
    .open_files = 20,
    .open_files_max = 1024};

static struct eb_stats_version versions[] = {
    {.number = 12, .state = EB_VERSION_FAILED, .failure = "table.npy: is cut"},
    {.number = 9,
        .state = EB_VERSION_SERVING,
        .loaded_unix_ms = 1700000000125,
        .load_ms = 1500,
        .tables = 2,
        .rows = 3000,
        .bytes = 7340032,
        .pages = {1048576, 6291456, 0},
        .tmpfs_pages = {1000000, 4194304, 0}},
    {.number = 7,
        .state = EB_VERSION_READY,
        .loaded_unix_ms = 1690000000000,
        .rows = 10,
        .bytes = 1082130432,
        .pages = {.huge_2m = 8388608, .huge_1g = 1073741824},
        .hugetlbfs_pages = {.huge_2m = 8388608}},
};
static struct eb_stats_model models[] = {
    {.name = "broken", .failure = "model.yaml: unknown key"},
    {.name = "ranking",
        .served = 9,
        .claims = {.served = 2, .next = 3},
        .version_count = 3,
        .versions = versions},
};
static struct eb_stats_table tables[] = {
    {.model = "ranking", .table = "items", .bags = 10, .indices = 200, .missing = 3},
    {.model = "ranking", .table = "users", .bags = 1},
};
static struct eb_stats_loop loops[] = {
    {.connections = 3, .handshakes = 1, .receive_bytes = 100, .answer_bytes = 1000},
    {.connections = 4, .handshakes = 4, .receive_bytes = 20, .answer_bytes = 3000},
};

/* Makes stats in which every part has some content. All numbers are different. */
static struct eb_stats *make_stats(void)
{
    static struct eb_stats stats;
    stats = (struct eb_stats){
        .phase = EB_STATS_SERVING,
        .started_unix_ms = 1700000000500,
        .method_count = 2,
        .methods = {{"embag.v1.EmbeddingBag", "Lookup"}, {"", ""}},
        .total = {.connections = 11,
            .handshake_timeouts = 23,
            .handshake_ns = 1500000000,
            .calls = 12,
            .received_bytes = 13,
            .sent_bytes = 14,
            .undecodable = 22,
            .queries = 15,
            .bags = 16,
            .indices = 17,
            .row_bytes = 18,
            .value_bytes = 19,
            .inline_lookups = 20,
            .receive_shortages = 21,
            .answer_shortages = 22},
        .loop_count = 2,
        .loops = loops,
        .executor = {.threads = 4,
            .idle_threads = 1,
            .queued_works = {5, 6},
            .queued_bytes = {7000, 8000},
            .tiles = 900,
            .busy_ns = 2500000000,
            .bytes_per_us = 6000},
        .table_count = 2,
        .tables = tables,
        .model_count = 2,
        .models = models,
        .loads =
            {.done = 2, .failed = 1, .freed = 3, .evicted = 5, .kept = 4, .kept_bytes = 8388608},
        .facts = {.is_started = true,
            .start_ns = {1000000, 250000000, 75500000000, 0},
            .certificate_expiry_unix_s = 1800000000,
            .reloads_done = 61,
            .reloads_failed = 62,
            .settings_pending = 68,
            .limits = {.queue_bytes_max = 51,
                .receive_memory_bytes = 52,
                .answer_memory_bytes = 53,
                .connections_max = 54},
            .is_repository_watched = true,
            .is_repository_unreadable = true,
            .load_done_bytes = 63,
            .load_total_bytes = 64,
            .load_cached_bytes = 65,
            .load_direct_bytes = 66,
            .load_plain_bytes = 67,
            .load_threads = 69,
            .loads_stalled = 1,
            .resident = {.is_used = true,
                .is_owner = true,
                .mapped_bytes = 71,
                .unused_bytes = 72,
                .uncharged_bytes = 73,
                .free_bytes = 74,
                .tables = {81, 82, 83, 84, 85, 86}}},
    };
    stats.total.requests[0][EB_STATUS_OK] = 1000;
    stats.total.requests[0][EB_STATUS_OUT_OF_RANGE] = 2;
    stats.total.requests[1][EB_STATUS_UNIMPLEMENTED] = 4;
    for (unsigned i = 0; i < EB_REFUSAL_COUNT; i++) {
        stats.total.refusals[i] = 30 + i;
    }
    /* Times at the end of a bucket, just past it, and past the last bucket. */
    eb_histogram_add(&stats.total.stages[EB_STAGE_TOTAL], 8192);
    eb_histogram_add(&stats.total.stages[EB_STAGE_TOTAL], 8193);
    eb_histogram_add(&stats.total.stages[EB_STAGE_TOTAL], UINT64_C(60000000000));
    eb_histogram_add(&stats.total.handshakes, 9000000);
    eb_histogram_add(&stats.total.lag, 1000);
    return &stats;
}

/* Makes what a router knows of a model in three parts, and what its loops have counted. */
static void add_route(struct eb_stats *stats)
{
    static char name[] = "ranking";
    static struct eb_route_counts *counts;
    static struct eb_route_model model;
    static struct eb_route_facts facts;
    free(counts); /* of the test before */
    counts = eb_route_counts_make(2);
    assert_non_null(counts);
    model = (struct eb_route_model){.name = name,
        .is_behind = true,
        .slots = {{.version = 9, .parts = 3, .ready_parts = 2, .replicas = {2, 0, 1}},
            {.version = 12, .parts = 1, .ready_parts = 1, .is_complete = true, .replicas = {4}}}};
    facts = (struct eb_route_facts){.has_conflict = true,
        .connected = 91,
        .replicas = 2,
        .flips = 92,
        .back_outs = 93,
        .model_count = 1,
        .models = &model,
        .instance_count = 2,
        .instances = {{100, 0}, {101, 2}}};
    for (unsigned i = 0; i < EB_LEG_OUTCOMES; i++) {
        counts->rows[2].outcomes[i] = 110 + i;
    }
    for (unsigned i = 0; i < EB_LEG_RESENDS; i++) {
        counts->rows[1].resends[i] = 120 + i;
    }
    counts->rows[0].hedges_won = 94;
    counts->rows[1].refusals = 99;
    counts->rows[2].hedges_lost = 95;
    counts->rows[0].sent_bytes = 96;
    counts->totals =
        (struct eb_leg_totals){.received_bytes = 97, .slab_waits = 89, .unreached = 98};
    eb_histogram_add(&counts->rows[0].answers, 9000);
    counts->peer_count = 2;
    counts->peers[0] = (struct eb_leg_peer){.instance = 101, .is_suspect = true};
    counts->peers[1] = (struct eb_leg_peer){.instance = 100, .is_ejected = true};
    stats->route = counts;
    stats->route_facts = &facts;
}

static char *write_text(const struct eb_stats *stats)
{
    struct eb_metrics_source source = {
        .stats = stats, .usage = &usage, .version = "1.2.3", .isa = "avx2"};
    size_t size;
    char *text = eb_metrics_text_write(&source, &size);
    assert_non_null(text);
    assert_int_equal(strlen(text), size);
    return text;
}

/* ---- the format ---- */

#define NAME "[a-zA-Z_][a-zA-Z0-9_]*"
#define LABEL "[a-z_]+=\"([^\"\\\\]|\\\\[\\\\\"n])*\""
#define NUMBER "[0-9]+(\\.[0-9]+)?(e-[0-9]+)?"

static bool has_form(const char *line, const char *form)
{
    regex_t pattern;
    assert_int_equal(regcomp(&pattern, form, REG_EXTENDED | REG_NOSUB), 0);
    bool fits = regexec(&pattern, line, 0, NULL, 0) == 0;
    regfree(&pattern);
    return fits;
}

/* Returns whether a sample line belongs to this metric, by its name. */
static bool belongs(const char *line, const char *metric)
{
    static const char *const endings[] = {"{", " ", "_bucket{", "_sum", "_count"};
    size_t length = strlen(metric);
    bool found = false;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        found |= strncmp(line + length, endings[i], strlen(endings[i])) == 0;
    }
    return found && strncmp(line, metric, length) == 0;
}

static int compare_lines(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* Expects no series to have two samples, because a reader would keep only one of them. */
static void expect_no_series_twice(const char *text)
{
    char *copy = strdup(text);
    size_t count = 0;
    char **series = calloc(strlen(text), sizeof *series);
    assert_non_null(copy);
    assert_non_null(series);
    for (char *line = strtok(copy, "\n"); line; line = strtok(NULL, "\n")) {
        if (line[0] != '#') {
            *strrchr(line, ' ') = '\0';
            series[count++] = line;
        }
    }
    qsort(series, count, sizeof *series, compare_lines);
    for (size_t i = 1; i < count; i++) {
        assert_string_not_equal(series[i - 1], series[i]);
    }
    free(series);
    free(copy);
}

/* Expects every line to match the format, samples to follow their HELP and TYPE, and no metric or
 * series to occur twice. */
static void expect_format(const char *text)
{
    char *copy = strdup(text);
    char metric[128] = "";
    char begun[TEXT_BYTES] = "";
    assert_non_null(copy);
    assert_int_equal(text[strlen(text) - 1], '\n');
    for (char *line = strtok(copy, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            char mark[140];
            assert_true(has_form(line, "^# HELP " NAME " [^\\]+\\.$"));
            sscanf(line, "# HELP %127s", metric);
            snprintf(mark, sizeof mark, "|%s|", metric);
            assert_null(strstr(begun, mark));
            assert_true(strlen(begun) + strlen(mark) < sizeof begun);
            strcat(begun, mark);
        } else if (line[0] == '#') {
            assert_true(has_form(line, "^# TYPE " NAME " (counter|gauge|histogram)$"));
            assert_int_equal(strncmp(line + 7, metric, strlen(metric)), 0);
        } else if (!belongs(line, metric) ||
                   !has_form(line, "^" NAME "(\\{" LABEL "(," LABEL ")*\\})? " NUMBER "$")) {
            fail_msg("after the help of %s: %s", metric, line);
        }
    }
    free(copy);
    expect_no_series_twice(text);
}

static void expect_line(const char *text, const char *line)
{
    char wanted[512];
    snprintf(wanted, sizeof wanted, "\n%s\n", line);
    if (!strstr(text, wanted)) {
        fail_msg("not among the lines: %s", line);
    }
}

/* ---- tests ---- */

static void tells_everything_as_it_always_did(void **state)
{
    (void)state;
    char line[512];
    FILE *golden = fopen(EMBAG_GOLDEN_DIRECTORY "/metrics.txt", "r");
    struct eb_stats *stats = make_stats();
    add_route(stats);
    char *text = write_text(stats);
    char *at = text;
    assert_non_null(golden);
    while (fgets(line, sizeof line, golden)) {
        size_t length = strcspn(at, "\n");
        if (strlen(line) != length + 1 || strncmp(line, at, length + 1) != 0) {
            fail_msg("wanted: %sis: %.*s", line, (int)length, at);
        }
        at += length + 1;
    }
    fclose(golden);
    assert_string_equal(at, "");
    expect_format(text);
    free(text);
}

static void tells_of_a_server_that_has_nothing_yet(void **state)
{
    (void)state;
    static const struct eb_stats empty;
    char *text = write_text(&empty);
    expect_format(text);
    expect_line(text, "embag_phase{phase=\"loading\"} 1");
    expect_line(text, "embag_phase{phase=\"serving\"} 0");
    expect_line(text, "embag_connections 0");
    assert_null(strstr(text, "\nembag_repository_readable "));
    assert_null(strstr(text, "\nembag_start_seconds{"));
    assert_null(strstr(text, "embag_route_"));
    assert_null(strstr(text, "\nembag_certificate_expiry_timestamp_seconds "));
    expect_line(text, "embag_stage_seconds_bucket{stage=\"total\",le=\"+Inf\"} 0");
    free(text);
}

static void tells_whether_a_repository_that_is_watched_can_be_read(void **state)
{
    (void)state;
    struct eb_stats *stats = make_stats();
    stats->facts.is_repository_unreadable = false;
    char *text = write_text(stats);
    expect_line(text, "embag_repository_readable 1");
    free(text);
    stats->facts.is_repository_watched = false;
    text = write_text(stats);
    expect_format(text);
    assert_null(strstr(text, "\nembag_repository_readable "));
    free(text);
}

static void lets_no_name_forge_a_sample(void **state)
{
    (void)state;
    struct eb_stats *stats = make_stats();
    struct eb_stats_table hostile = {
        .model = "a\"} 1\nembag_up 1\n\\", .table = "\xd1\x8f {,= \\n", .bags = 5};
    stats->tables = &hostile;
    stats->table_count = 1;
    char *text = write_text(stats);
    expect_format(text);
    expect_line(text, "embag_table_bags_total{model=\"a\\\"} 1\\nembag_up 1\\n\\\\\","
                      "table=\"\xd1\x8f {,= \\\\n\"} 5");
    free(text);
}

static size_t count_lines(const char *text, const char *beginning)
{
    size_t count = 0;
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        count += strncmp(at, beginning, strlen(beginning)) == 0;
    }
    return count;
}

static char many_names[EB_METRICS_TABLES_MAX + TOO_MANY][8];

static void name_many(void)
{
    for (size_t i = 0; i < sizeof many_names / sizeof many_names[0]; i++) {
        snprintf(many_names[i], sizeof many_names[i], "n%04zu", i);
    }
}

/* Sets `count` tables of one model from index `first` on, each with a different name. */
static void set_many_tables(struct eb_stats *stats, size_t first, size_t count)
{
    static struct eb_stats_table many[EB_METRICS_TABLES_MAX + TOO_MANY];
    assert_true(first + count <= sizeof many / sizeof many[0]);
    name_many();
    for (size_t i = 0; i < count; i++) {
        many[first + i] = (struct eb_stats_table){
            .model = "m", .table = many_names[i], .bags = 1, .indices = 3, .missing = 2};
    }
    if (first > 0) {
        many[0] = (struct eb_stats_table){
            .model = "", .table = "", .bags = 5, .indices = 7, .missing = 1};
    }
    stats->tables = many;
    stats->table_count = first + count;
}

static void tells_of_so_many_and_counts_the_others(void **state)
{
    (void)state;
    static struct eb_stats_model many_models[EB_METRICS_MODELS_MAX + TOO_MANY];
    static struct eb_stats_version many_versions[3];
    struct eb_stats *stats = make_stats();
    size_t model_count = sizeof many_models / sizeof many_models[0];
    set_many_tables(stats, 0, EB_METRICS_TABLES_MAX + TOO_MANY);
    for (size_t i = 0; i < 3; i++) {
        many_versions[i] = (struct eb_stats_version){
            .number = 3 - i, .state = EB_VERSION_READY, .loaded_unix_ms = 1, .pages = {.small = 1}};
    }
    for (size_t i = 0; i < model_count; i++) {
        many_models[i] = (struct eb_stats_model){
            .name = many_names[i], .version_count = 3, .versions = many_versions};
    }
    stats->models = many_models;
    stats->model_count = model_count;
    char *text = write_text(stats);
    expect_format(text);
    assert_int_equal(count_lines(text, "embag_missing_total{model=\"m\""), EB_METRICS_TABLES_MAX);
    expect_line(text, "embag_missing_total{model=\"\",table=\"\"} 40");
    expect_line(text, "embag_table_rows_touched_total{model=\"\",table=\"\"} 60");
    expect_line(text, "embag_table_bags_total{model=\"\",table=\"\"} 20");
    assert_int_equal(count_lines(text, "embag_model_faulty{"), EB_METRICS_MODELS_MAX);
    assert_int_equal(count_lines(text, "embag_model_version_rows{"), EB_METRICS_VERSIONS_MAX);
    expect_line(text, "embag_left_out{what=\"models\"} 20");
    expect_line(text, "embag_left_out{what=\"versions\"} 160");
    expect_line(text, "embag_left_out{what=\"tables\"} 20");
    /* It counts all versions. */
    expect_line(text, "embag_table_memory_bytes{backing=\"anonymous\",page_size=\"small\"} 660");
    free(text);
}

/* Each loop counts the tables beyond its cap in one row without names. */
static void puts_all_that_has_no_names_into_one_row(void **state)
{
    (void)state;
    struct eb_stats *stats = make_stats();
    set_many_tables(stats, 1, EB_METRICS_TABLES_MAX + 2);
    char *text = write_text(stats);
    expect_format(text);
    assert_int_equal(count_lines(text, "embag_missing_total{model=\"m\""), EB_METRICS_TABLES_MAX);
    expect_line(text, "embag_table_bags_total{model=\"\",table=\"\"} 7");
    expect_line(text, "embag_table_rows_touched_total{model=\"\",table=\"\"} 13");
    expect_line(text, "embag_missing_total{model=\"\",table=\"\"} 5");
    expect_line(text, "embag_left_out{what=\"tables\"} 2");
    free(text);
    set_many_tables(stats, 1, 2);
    text = write_text(stats);
    expect_format(text);
    assert_int_equal(count_lines(text, "embag_table_bags_total{model=\"m\""), 2);
    expect_line(text, "embag_table_bags_total{model=\"\",table=\"\"} 5");
    expect_line(text, "embag_left_out{what=\"tables\"} 0");
    free(text);
}

/* Takes parts from 64 on together, and bounds the numbers of replicas. */
static void tells_of_many_parts_and_models_in_part(void **state)
{
    (void)state;
    static struct eb_route_model many[EB_METRICS_REPLICAS_MAX / EB_ROUTE_ROWS + 2];
    size_t count = sizeof many / sizeof many[0];
    struct eb_stats *stats = make_stats();
    add_route(stats);
    name_many();
    for (size_t i = 0; i < count; i++) {
        many[i] = (struct eb_route_model){.name = many_names[i],
            .slots = {{.version = 1, .parts = 4096, .replicas = {[EB_ROUTE_PARTS_SHOWN] = 3}}}};
    }
    stats->route_facts->models = many;
    stats->route_facts->model_count = count;
    stats->route_facts->instances[1].part = 4095;
    stats->route->rows[EB_ROUTE_PARTS_SHOWN].outcomes[EB_LEG_OK] = 7;
    char *text = write_text(stats);
    expect_format(text);
    expect_line(text, "embag_route_replicas{model=\"n0000\",slot=\"served\",part=\"63\"} 0");
    expect_line(text, "embag_route_replicas{model=\"n0000\",slot=\"served\",part=\"rest\"} 3");
    expect_line(text, "embag_route_legs_total{part=\"rest\",outcome=\"ok\"} 7");
    expect_line(text, "embag_route_leg_seconds_count{part=\"rest\"} 0");
    expect_line(text, "embag_route_suspects{part=\"rest\"} 1");
    assert_int_equal(count_lines(text, "embag_route_ejected{"), EB_ROUTE_ROWS);
    assert_int_equal(count_lines(text, "embag_route_replicas{"),
        EB_METRICS_REPLICAS_MAX / EB_ROUTE_ROWS * EB_ROUTE_ROWS);
    expect_line(text, "embag_route_replicas_left_out 2");
    free(text);
}

EB_TEST_GROUP(metrics_text)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_everything_as_it_always_did),
        cmocka_unit_test(tells_of_a_server_that_has_nothing_yet),
        cmocka_unit_test(tells_whether_a_repository_that_is_watched_can_be_read),
        cmocka_unit_test(lets_no_name_forge_a_sample),
        cmocka_unit_test(tells_of_so_many_and_counts_the_others),
        cmocka_unit_test(puts_all_that_has_no_names_into_one_row),
        cmocka_unit_test(tells_of_many_parts_and_models_in_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
