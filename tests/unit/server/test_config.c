#include "server/base/log.h"
#include "server/base/page_size.h"
#include "server/tables/numa_policy.h"
#include "tests/lib/capture.h"
#include "tests/lib/test_group.h"
#include "tests/unit/server/config_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void takes_defaults(void **state)
{
    (void)state;
    config_fixture_expect_run("--model-repository|/models", "");
    assert_string_equal(fixture.config.model_repository, "/models");
    assert_int_equal(fixture.config.listen_count, 1);
    assert_string_equal(fixture.config.listen[0], "127.0.0.1:8600");
    assert_true(fixture.config.loops >= 1 && fixture.config.loops <= 16);
    assert_true(fixture.config.threads >= 1);
    assert_null(fixture.config.admin_listen);
    assert_string_equal(fixture.config.http_listen, "127.0.0.1:8601");
    assert_int_equal(fixture.config.admin_on_data_port, 0);
    assert_null(fixture.config.tls_cert);
    assert_null(fixture.config.auth_file);
    assert_null(fixture.config.isa);
    assert_null(fixture.config.prefetch);
    assert_null(fixture.config.config_file);
    assert_int_equal(fixture.config.log_level, EB_LOG_INFO);
    assert_int_equal(fixture.config.log_format, EB_LOG_LOGFMT);
    assert_int_equal(fixture.config.huge_pages, EB_PAGE_2M);
    assert_int_equal(fixture.config.numa, EB_NUMA_INTERLEAVE);
#define X(name, effect, fallback, min, max, what)                                                  \
    assert_int_equal(fixture.config.limits.name, fallback);
    EB_LIMIT_LIST(X)
#undef X
}

static void takes_every_flag_in_both_forms(void **state)
{
    (void)state;
    config_fixture_expect_run(
        "--model-repository=/m|--listen|localhost:1|--listen=[::1]:65535|"
        "--listen=unix:/run/e.sock|--loops=3|--threads|5|--isa|ref|--log-level=debug|"
        "--request-bytes-max|2MiB|--inline-below-us=0|--huge-pages|1g|--numa=local|"
        "--prefetch=64w:4:l1|--admin-listen|unix:/run/a.sock|--admin-on-data-port=true|"
        "--tls-cert|/c|--tls-key=/k|--tls-client-ca|/a|--tls-client-verify=optional|"
        "--tls-min-version|1.3|--auth-file|/f|--http-listen=[::]:80",
        "");
    assert_string_equal(fixture.config.model_repository, "/m");
    assert_int_equal(fixture.config.listen_count, 3);
    assert_string_equal(fixture.config.listen[0], "localhost:1");
    assert_string_equal(fixture.config.listen[1], "[::1]:65535");
    assert_string_equal(fixture.config.listen[2], "unix:/run/e.sock");
    assert_int_equal(fixture.config.loops, 3);
    assert_int_equal(fixture.config.threads, 5);
    assert_string_equal(fixture.config.isa, "ref");
    assert_int_equal(fixture.config.log_level, EB_LOG_DEBUG);
    assert_int_equal(fixture.config.limits.request_bytes_max, 2097152);
    assert_int_equal(fixture.config.limits.inline_below_us, 0);
    assert_int_equal(fixture.config.huge_pages, EB_PAGE_1G);
    assert_int_equal(fixture.config.numa, EB_NUMA_LOCAL);
    assert_string_equal(fixture.config.prefetch, "64w:4:l1");
    assert_string_equal(fixture.config.admin_listen, "unix:/run/a.sock");
    assert_int_equal(fixture.config.admin_on_data_port, 1);
    assert_string_equal(fixture.config.tls_cert, "/c");
    assert_string_equal(fixture.config.tls_key, "/k");
    assert_string_equal(fixture.config.tls_client_ca, "/a");
    assert_int_equal(fixture.config.tls_client_verify, EB_TLS_CLIENT_OPTIONAL);
    assert_int_equal(fixture.config.tls_min_version, EB_TLS_1_3);
    assert_string_equal(fixture.config.auth_file, "/f");
    assert_string_equal(fixture.config.http_listen, "[::]:80");
}

static void takes_every_variable(void **state)
{
    (void)state;
    config_fixture_expect_run("",
        "EMBAG_MODEL_REPOSITORY=/m|EMBAG_LISTEN=a:1,b:2|EMBAG_LOOPS=2|EMBAG_THREADS=4|"
        "EMBAG_ISA=avx2|EMBAG_LOG_LEVEL=error|EMBAG_REQUEST_BYTES_MAX=16KiB|"
        "EMBAG_DRAIN_TIMEOUT_MS=0|EMBAG_HUGE_PAGES=off|EMBAG_NUMA=off|EMBAG_PREFETCH=off|"
        "EMBAG_HTTP_LISTEN=none");
    assert_string_equal(fixture.config.http_listen, "none");
    assert_string_equal(fixture.config.model_repository, "/m");
    assert_int_equal(fixture.config.listen_count, 2);
    assert_string_equal(fixture.config.listen[1], "b:2");
    assert_int_equal(fixture.config.loops, 2);
    assert_int_equal(fixture.config.threads, 4);
    assert_string_equal(fixture.config.isa, "avx2");
    assert_int_equal(fixture.config.log_level, EB_LOG_ERROR);
    assert_int_equal(fixture.config.limits.request_bytes_max, 16384);
    assert_int_equal(fixture.config.limits.drain_timeout_ms, 0);
    assert_int_equal(fixture.config.huge_pages, EB_PAGE_SMALL);
    assert_int_equal(fixture.config.numa, EB_NUMA_OFF);
    assert_string_equal(fixture.config.prefetch, "off");
}

/* Every subset of the layers yields the value of its highest layer. */
static void takes_the_highest_layer(void **state)
{
    (void)state;
    for (int layers = 0; layers < 8; layers++) {
        bool file = layers & 1;
        bool variable = layers & 2;
        bool flag = layers & 4;
        config_fixture_write_yaml(
            file ? "model_repository: /file\nlisten: ['f:1', 'f:2']\nqueries_max: 1\n"
                   "log_level: warn\n"
                 : "{}\n");
        config_fixture_expect_run(
            config_fixture_with_file(flag ? "--model-repository|/flag|--listen|a:3|--listen|a:4|"
                                            "--queries-max|3|--log-level|debug"
                                          : ""),
            variable ? "EMBAG_MODEL_REPOSITORY=/env|EMBAG_LISTEN=e:2|EMBAG_QUERIES_MAX=2|"
                       "EMBAG_LOG_LEVEL=error"
                     : (layers ? "" : "EMBAG_MODEL_REPOSITORY=/any"));
        if (layers == 0) {
            eb_config_deinit(&fixture.config);
            continue;
        }
        assert_string_equal(fixture.config.model_repository, flag       ? "/flag"
                                                             : variable ? "/env"
                                                                        : "/file");
        assert_int_equal(fixture.config.listen_count, flag ? 2 : variable ? 1 : 2);
        assert_string_equal(fixture.config.listen[0], flag ? "a:3" : variable ? "e:2" : "f:1");
        assert_int_equal(fixture.config.limits.queries_max, flag ? 3 : variable ? 2 : 1);
        assert_int_equal(fixture.config.log_level, flag       ? EB_LOG_DEBUG
                                                   : variable ? EB_LOG_ERROR
                                                              : EB_LOG_WARN);
        eb_config_deinit(&fixture.config);
    }
}

static void checks_values_that_are_overridden(void **state)
{
    (void)state;
    config_fixture_expect_failure(
        "--model-repository|/m|--loops|1", "EMBAG_LOOPS=0", "EMBAG_LOOPS=0: not in");
    config_fixture_expect_failure("--model-repository|/m|--listen|a:1", "EMBAG_LISTEN=nonsense",
        "EMBAG_LISTEN=nonsense: expected HOST:PORT");
}

static void takes_the_last_of_a_repeated_flag(void **state)
{
    (void)state;
    config_fixture_expect_run(
        "--model-repository|/a|--model-repository|/b|--loops|2|--loops|1", "");
    assert_string_equal(fixture.config.model_repository, "/b");
    assert_int_equal(fixture.config.loops, 1);
}

static void refuses_bad_flags(void **state)
{
    (void)state;
    static const struct {
        const char *flags;
        const char *failure;
    } cases[] = {
        {"--loops|1", "--model-repository is missing: give the directory"},
        {"--model-repository|",
            "--model-repository '': is empty (directory of the models, laid out"},
        {"--isa|a name that is a good deal too long",
            "too long: is longer than 31 bytes (instruction set"},
        {"--lops|1", "--lops: no such flag; embagd --help lists all flags"},
        {"--request_bytes_max|1", "--request_bytes_max: no such flag"},
        {"loops", "loops: no such flag"},
        {"", "--model-repository is missing"},
        {"--|x", "--: no such flag"},
        {"--loops", "--loops: value is missing; expected --loops N"},
        {"--loops|0", "--loops 0: not in 1..256 (event loops, one thread each)"},
        {"--loops=257", "--loops 257: not in 1..256"},
        {"--loops|-1", "--loops -1: not a whole number in 1..256 (event"},
        {"--loops|+1", "--loops +1: not a whole number"},
        {"--loops| 1", "--loops  1: not a whole number"},
        {"--loops|1.5", "--loops 1.5: not a whole number"},
        {"--loops|1KiB", "--loops 1KiB: not a whole number in 1..256 ("},
        {"--loops|0x10", "--loops 0x10: not a whole number"},
        {"--loops|", "--loops '': not a whole number in 1..256"},
        {"--loops|99999999999999999999999", "not in 1..256"},
        {"--threads|1025", "--threads 1025: not in 1..1024"},
        {"--request-bytes-max|1023", "--request-bytes-max 1023: not in 1024..268435456 bytes"},
        {"--request-bytes-max|257MiB", "257MiB: not in 1024..268435456 bytes"},
        {"--request-bytes-max|99999999999GiB", "not in 1024..268435456 bytes"},
        {"--request-bytes-max|1MB", "1MB: not a whole number in 1024..268435456 bytes; only KiB, "
                                    "MiB or GiB may follow it ("},
        {"--request-bytes-max|1 MiB", "1 MiB: not a whole number"},
        {"--drain-timeout-ms|1s", "1s: not a whole number in 0..3600000 ms (time for open calls"},
        {"--drain-timeout-ms|3600001", "not in 0..3600000 ms (time for open calls"},
        {"--inline-below-us|1001", "not in 0..1000 us"},
        {"--in-flight-max|1", "not in 2..65536"},
        {"--log-level|verbose", "--log-level verbose: not one of debug|info|warn|error (lowest"},
        {"--admin-listen|127.0.0.1:8602", "--admin-listen 127.0.0.1:8602: expected unix:PATH "
                                          "(unix socket that serves embag.v1.ModelAdmin"},
        {"--admin-listen|x", "--admin-listen x: expected unix:PATH ("},
        {"--admin-listen|unix:", "unix:: the path of a unix socket has 1 to 107 bytes"},
        {"--admin-listen|", "--admin-listen '': expected unix:PATH ("},
        {"--watch|on", "--watch on: not one of auto|poll|off (how new versions"},
        {"--admin-on-data-port|yes", "--admin-on-data-port yes: not one of false|true (whether"},
        {"--prefetch|",
            "--prefetch '': expected auto, off, FAR:NEAR:l1 or FAR:NEAR:l2, such as 128:64:l2, "},
        {"--prefetch|128:64",
            "(how many rows ahead table rows are prefetched into the CPU caches)"},
        {"--prefetch|0:4097:l2",
            "--prefetch 0:4097:l2: FAR and NEAR may be at most 4096 rows (how"},
        {"--prefetch|32:64:l1",
            "--prefetch 32:64:l1: FAR must be greater than NEAR, or 0 to use one"},
        {"--huge-pages|4m",
            "--huge-pages 4m: not one of 2m|1g|off (size of the pages that hold tables)"},
        {"--huge-pages|", "--huge-pages '': not one of 2m|1g|off"},
        {"--huge-pages|2M", "--huge-pages 2M: not one of 2m|1g|off"},
        {"--numa|auto",
            "--numa auto: not one of interleave|local|off (memory nodes that hold tables"},
        {"--listen|", "--listen '': is empty (address"},
        {"--listen|a:1,", "--listen a:1,: an address is empty (address"},
        {"--listen|8600", "--listen 8600: expected HOST:PORT, [V6]:PORT or unix:PATH ("},
        {"--listen|:8600", "--listen :8600: expected HOST:PORT"},
        {"--listen|a:", "--listen a:: the port must be in 0..65535"},
        {"--listen|a:x", "the port must be in 0..65535"},
        {"--listen|a:1,a:65536,a:2", "--listen a:65536: the port must be in 0..65535"},
        {"--listen|a:000001", "the port must be in 0..65535"},
        {"--listen|::1:8600", "an IPv6 address needs brackets: [::1]:8600"},
        {"--listen|[]:1", "an IPv6 address needs brackets"},
        {"--listen|[::1:1", "an IPv6 address needs brackets"},
        {"--listen|unix:", "the path of a unix socket has 1 to 107 bytes"},
        {"--listen|a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9|--listen|a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8",
            "at most 16 addresses are allowed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        config_fixture_expect_failure(cases[i].flags, "", cases[i].failure);
    }
}

static void refuses_ports_of_another_form(void **state)
{
    (void)state;
    static const struct {
        const char *flags;
        const char *failure;
    } cases[] = {
        {"--http-listen|unix:/run/h.sock",
            "--http-listen unix:/run/h.sock: expected HOST:PORT or [V6]"},
        {"--http-listen|8601",
            "8601: expected HOST:PORT or [V6]:PORT with a port of 0..65535, or none"},
        {"--http-listen|off", "--http-listen off: expected HOST:PORT"},
        {"--http-listen|a:65536", "--http-listen a:65536: expected HOST:PORT"},
        {"--http-listen|", "--http-listen '': expected HOST:PORT"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        config_fixture_expect_failure(cases[i].flags, "", cases[i].failure);
    }
}

static void takes_addresses_up_to_their_longest(void **state)
{
    (void)state;
    char flags[512] = "--model-repository|/m|--listen|unix:";
    size_t before = strlen(flags);
    memset(flags + before, 'x', 107);
    config_fixture_expect_run(flags, "");
    eb_config_deinit(&fixture.config);
    memset(flags + before, 'x', 108);
    config_fixture_expect_failure(flags, "", "the path of a unix socket has 1 to 107 bytes");

    memset(flags, 0, sizeof flags);
    strcpy(flags, "--model-repository|/m|--listen|");
    before = strlen(flags);
    memset(flags + before, 'h', 257);
    strcat(flags, ":1");
    config_fixture_expect_run(flags, "");
    eb_config_deinit(&fixture.config);
    memset(flags + before, 'h', 258);
    strcpy(flags + before + 258, ":1");
    config_fixture_expect_failure(flags, "", "is too long");
}

static void takes_sixteen_addresses(void **state)
{
    (void)state;
    config_fixture_expect_run("--model-repository|/m|--listen|"
                              "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8",
        "");
    assert_int_equal(fixture.config.listen_count, EB_LISTEN_MAX);
}

static void refuses_unknown_variables_by_name(void **state)
{
    (void)state;
    config_fixture_expect_failure(
        "--model-repository|/m", "EMBAG_LOPS=2", "EMBAG_LOPS: no such setting");
    config_fixture_expect_failure("--model-repository|/m", "EMBAG_=2", "EMBAG_: no such setting");
    config_fixture_expect_failure(
        "--model-repository|/m", "EMBAG_PORT=8600", "EMBAG_PORT: no such setting");
    config_fixture_expect_failure(
        "--model-repository|/m", "EMBAG_loops=2", "EMBAG_loops: no such setting");
    config_fixture_expect_failure(
        "", "EMBAG_MODEL_REPOSITORY=", "EMBAG_MODEL_REPOSITORY='': is empty");
    config_fixture_expect_failure("", "EMBAG_LOOPS=x", "EMBAG_LOOPS=x: not a whole number");
}

static void passes_over_the_variables_of_kubernetes(void **state)
{
    (void)state;
    config_fixture_expect_run("--model-repository|/m",
        "EMBAG_SERVICE_HOST=10.0.0.1|EMBAG_SERVICE_PORT=8600|EMBAG_SERVICE_PORT_GRPC=8600|"
        "EMBAG_PORT=tcp://10.0.0.1:8600|EMBAG_PORT_8600_TCP=tcp://10.0.0.1:8600|"
        "EMBAG_PORT_8600_TCP_PROTO=tcp|EMBAG_PORT_8600_TCP_PORT=8600|"
        "EMBAG_PORT_8600_TCP_ADDR=10.0.0.1|EMBAG_ADMIN_SERVICE_HOST=10.0.0.2");
}

static void refuses_budgets_that_give_a_loop_too_little(void **state)
{
    (void)state;
    config_fixture_expect_failure("--model-repository|/m|--loops|2|--receive-memory-bytes|127MiB",
        "",
        "--receive-memory-bytes 133169152 is too small: 2 loops need 134217728, 4 x 16777216 bytes "
        "each because of "
        "--request-bytes-max 16777216; raise it, lower --request-bytes-max or lower --loops");
    config_fixture_expect_failure("--model-repository|/m|--loops|3|--answer-memory-bytes|191MiB",
        "",
        "--answer-memory-bytes 200278016 is too small: 3 loops need 201326592, 1 x 67108864 bytes "
        "each because of "
        "--response-bytes-max 67108864");
    config_fixture_expect_run("--model-repository|/m|--loops|2|--receive-memory-bytes|128MiB|"
                              "--answer-memory-bytes|128MiB",
        "");
}

/* The memory for a request is rounded up, to a power of two if it is at most 16 MiB. */
static void counts_what_the_largest_request_takes(void **state)
{
    (void)state;
    config_fixture_expect_failure("--model-repository|/m|--loops|1|--receive-memory-bytes|60MiB|"
                                  "--request-bytes-max|9MiB",
        "", "4 x 16777216 bytes each because of --request-bytes-max 9437184");
    config_fixture_expect_failure("--model-repository|/m|--loops|1|--receive-memory-bytes|79MiB|"
                                  "--request-bytes-max|20MiB",
        "", "1 loops need 83886080, 4 x 20971520 bytes each");
    config_fixture_expect_failure("--model-repository|/m|--loops|33|--receive-memory-bytes|32MiB|"
                                  "--request-bytes-max|1KiB|--response-bytes-max|1KiB",
        "", "4 x 262144 bytes each because of --request-bytes-max 1024");
    config_fixture_expect_run("--model-repository|/m|--loops|1|--receive-memory-bytes|80MiB|"
                              "--request-bytes-max|20MiB",
        "");
}

static void refuses_settings_of_tls_that_lack_others(void **state)
{
    (void)state;
    config_fixture_expect_failure(
        "--model-repository|/m|--tls-cert|/c", "", "--tls-cert needs --tls-key");
    config_fixture_expect_failure("--model-repository|/m", "EMBAG_TLS_KEY=/k", "needs --tls-cert");
    config_fixture_expect_failure(
        "--model-repository|/m|--tls-client-ca|/a", "", "--tls-client-ca needs --tls-cert");
    config_fixture_expect_failure(
        "--model-repository|/m|--tls-min-version|1.3", "", "the server does not use TLS");
    config_fixture_expect_failure(
        "--model-repository|/m|--tls-cert|/c|--tls-key|/k|--tls-client-verify|optional", "",
        "--tls-client-verify needs --tls-client-ca");
    config_fixture_expect_failure(
        "--model-repository|/m|--tls-min-version|1.1", "", "not one of 1.2|1.3");
    config_fixture_expect_run("--model-repository|/m|--tls-cert|/c|--tls-key|/k", "");
}

static void chooses_loops_by_cpus_and_memory(void **state)
{
    (void)state;
    struct eb_limits limits = {
        .request_bytes_max = 16777216,
        .receive_memory_bytes = 1073741824,
        .response_bytes_max = 67108864,
        .answer_memory_bytes = 2147483648,
    };
    static const uint32_t cpus[] = {1, 3, 4, 7, 8, 63, 64, 1000};
    static const uint32_t loops[] = {1, 1, 1, 1, 2, 15, 16, 16};
    for (size_t i = 0; i < sizeof cpus / sizeof cpus[0]; i++) {
        assert_int_equal(eb_config_loops_default(cpus[i], &limits), loops[i]);
    }
    limits.request_bytes_max = 268435456;
    assert_int_equal(eb_config_loops_default(64, &limits), 1);
    limits.request_bytes_max = 134217729;
    assert_int_equal(eb_config_loops_default(64, &limits), 1);
    limits.request_bytes_max = 134217728;
    assert_int_equal(eb_config_loops_default(64, &limits), 2);
    limits.response_bytes_max = 1073741824;
    limits.answer_memory_bytes = 1073741824;
    assert_int_equal(eb_config_loops_default(64, &limits), 1);
    limits.answer_memory_bytes = 134217728;
    assert_int_equal(eb_config_loops_default(64, &limits), 1);
}

/* ---- the file ---- */

static void reads_file_named_by_flag_or_variable(void **state)
{
    (void)state;
    config_fixture_write_yaml(
        "# comment\nmodel_repository: /m\nlisten:\n  - a:1\n  - unix:/x\nloops: 2\n"
        "threads: 4\nisa: avx512\nlog_level: warn\nanswer_memory_bytes: 1GiB\n"
        "streams_max: 7\nhuge_pages: off\nnuma: local\nprefetch: 128:64:l2\n");
    char variable[128];
    snprintf(variable, sizeof variable, "EMBAG_CONFIG=%s", fixture.file_path);
    for (int by_flag = 0; by_flag < 2; by_flag++) {
        config_fixture_expect_run(
            by_flag ? config_fixture_with_file("") : "", by_flag ? "" : variable);
        assert_string_equal(fixture.config.config_file, fixture.file_path);
        assert_string_equal(fixture.config.model_repository, "/m");
        assert_int_equal(fixture.config.listen_count, 2);
        assert_string_equal(fixture.config.listen[0], "a:1");
        assert_string_equal(fixture.config.listen[1], "unix:/x");
        assert_int_equal(fixture.config.loops, 2);
        assert_int_equal(fixture.config.threads, 4);
        assert_string_equal(fixture.config.isa, "avx512");
        assert_int_equal(fixture.config.log_level, EB_LOG_WARN);
        assert_int_equal(fixture.config.limits.answer_memory_bytes, 1073741824);
        assert_int_equal(fixture.config.limits.streams_max, 7);
        assert_int_equal(fixture.config.huge_pages, EB_PAGE_SMALL);
        assert_int_equal(fixture.config.numa, EB_NUMA_LOCAL);
        assert_string_equal(fixture.config.prefetch, "128:64:l2");
        eb_config_deinit(&fixture.config);
    }
}

static void takes_a_file_without_settings(void **state)
{
    (void)state;
    static const char *const files[] = {"", "# nothing\n", "{}\n"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        config_fixture_write_yaml(files[i]);
        config_fixture_expect_run(config_fixture_with_file("--model-repository|/m"), "");
        eb_config_deinit(&fixture.config);
    }
}

static void refuses_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        const char *failure;
    } cases[] = {
        {"loops: 1\nlops: 2\n", ": Invalid key: Unexpected key: lops: in mapping (line: "},
        {"config: x\n", "Unexpected key: config"},
        {"loops: 1\nloops: 2\n", "Mapping field already seen: loops"},
        {"loops: [1]\n", "Expecting STRING, got event: SEQUENCE_START: in mapping field 'loops' "
                         "(line: 1, column: 8)"},
        {"loops: {a: 1}\n", "Expecting STRING, got event: MAPPING_START"},
        {"listen: a:1\n", "Expecting SEQUENCE, got event: SCALAR"},
        {"listen: [[a]]\n", "Expecting STRING, got event: SEQUENCE_START"},
        {"listen: []\n", "Sequence with too few entries"},
        {"listen: [a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a]\n",
            "Sequence with too many entries"},
        {"listen: ['']\n", ": listen: '': is empty"},
        {"hello\n", "Expecting MAPPING, got event: SCALAR"},
        {"- loops\n", "Expecting MAPPING, got event: SEQUENCE_START"},
        {"loops: &x 1\nthreads: *x\n", "YAML alias unsupported"},
        {"loops: 1\n---\nthreads: 1\n", "Ignoring documents after first in stream"},
        {"loops: 1\n threads: 2\n", "mapping values are not allowed in this context"},
        {"loops: \xff\n", "invalid leading UTF-8 octet"},
        {"loops: \x01\n", "control characters are not allowed"},
        {"[a]: 1\n", "Internal error"},
        {"loops:\n", ": loops: '': not a whole number"},
        {"loops: 0\n", ": loops: 0: not in 1..256 (event loops, one thread each)"},
        {"model_repository: ''\n", ": model_repository: '': is empty"},
        {"log_level: loud\n", ": log_level: loud: not one of debug|info|warn|error"},
        {"log_format: xml\n", ": log_format: xml: not one of logfmt|json ("},
        {"huge_pages: no\n", ": huge_pages: no: not one of 2m|1g|off"},
        {"prefetch: 128:64\n", ": prefetch: 128:64: expected auto, off, FAR:NEAR:l1 or"},
        {"request_bytes_max: 1TiB\n", ": request_bytes_max: 1TiB: not a whole number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        config_fixture_write_yaml(cases[i].yaml);
        config_fixture_expect_failure(
            config_fixture_with_file("--model-repository|/m"), "", cases[i].failure);
        config_fixture_read(config_fixture_with_file("--model-repository|/m"), "");
        assert_non_null(strstr(fixture.said_stderr, fixture.file_path));
        eb_config_deinit(&fixture.config);
    }
}

static void refuses_what_is_no_readable_file(void **state)
{
    (void)state;
    config_fixture_expect_failure("--config|/nonexistent/x.yaml", "",
        "--config /nonexistent/x.yaml: cannot be read: No such file or directory");
    config_fixture_expect_failure("--config|/", "", "/: not a regular file");
    config_fixture_expect_failure("--config|", "", "--config '': is empty");
    assert_int_equal(unlink(fixture.file_path), 0);
    assert_int_equal(mkfifo(fixture.file_path, 0600), 0);
    config_fixture_expect_failure(
        config_fixture_with_file("--model-repository|/m"), "", "not a regular file");
}

static void refuses_a_file_over_64_kib(void **state)
{
    (void)state;
    static char yaml[65537];
    memset(yaml, '#', sizeof yaml);
    config_fixture_write_bytes(yaml, 65536);
    config_fixture_expect_run(config_fixture_with_file("--model-repository|/m"), "");
    eb_config_deinit(&fixture.config);
    config_fixture_write_bytes(yaml, 65537);
    config_fixture_expect_failure(
        config_fixture_with_file("--model-repository|/m"), "", "larger than 64 KiB");
}

static void survives_deep_nesting(void **state)
{
    (void)state;
    static char yaml[60000];
    memset(yaml, '[', sizeof yaml);
    config_fixture_write_bytes(yaml, sizeof yaml);
    config_fixture_expect_failure(config_fixture_with_file(""), "", "Expecting MAPPING");
    memcpy(yaml, "loops: ", 7);
    config_fixture_write_bytes(yaml, sizeof yaml);
    config_fixture_expect_failure(config_fixture_with_file(""), "", "Expecting STRING");
    memset(yaml, '{', sizeof yaml);
    config_fixture_write_bytes(yaml, sizeof yaml);
    config_fixture_expect_failure(config_fixture_with_file(""), "", "Internal error");
}

/* ---- output for people ---- */

static void helps_with_every_setting(void **state)
{
    (void)state;
    assert_int_equal(config_fixture_read("--loops|1|--help|--nonsense", ""), EB_CONFIG_EXIT);
    assert_string_equal(fixture.said_stderr, "");
    static const char *const flags[] = {
#define X(name, effect, fallback, min, max, what) #name,
        EB_LIMIT_LIST(X)
#undef X
            "model_repository",
        "listen", "admin_listen", "admin_on_data_port", "config", "loops", "threads", "isa",
        "prefetch", "log_level", "log_format", "huge_pages", "numa", "tls_cert", "tls_key",
        "tls_client_ca", "tls_client_verify", "tls_min_version", "auth_file", "http_listen",
        "resident_dir", "resident_readers", "resident_verify", "resident_small_pages",
        "watch_settings", "part"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        char wanted[80];
        int length = snprintf(wanted, sizeof wanted, "\n  --%s ", flags[i]);
        for (int n = 5; n < length; n++) {
            wanted[n] = wanted[n] == '_' ? '-' : wanted[n];
        }
        if (!strstr(fixture.said_stdout, wanted)) {
            fail_msg("no help for %s", wanted);
        }
    }
    assert_non_null(strstr(fixture.said_stdout, "(1024..268435456 bytes, default 16777216)"));
    assert_non_null(strstr(fixture.said_stdout, "0.0.0.0:8600"));
    for (char *line = strtok(fixture.said_stdout, "\n"); line; line = strtok(NULL, "\n")) {
        assert_true(strlen(line) <= 100);
    }
}

static void tells_its_version(void **state)
{
    (void)state;
    assert_int_equal(config_fixture_read("--version", ""), EB_CONFIG_EXIT);
    assert_ptr_equal(strstr(fixture.said_stdout, "embagd "), fixture.said_stdout);
    assert_in_range(fixture.said_stdout[strlen("embagd ")], '0', '9');
    assert_ptr_equal(
        strchr(fixture.said_stdout, '\n'), fixture.said_stdout + strlen(fixture.said_stdout) - 1);
}

static void refuses_to_help_into_a_full_disk(void **state)
{
    (void)state;
    char *arguments[] = {"embagd", "--help", NULL};
    char *environment[] = {NULL};
    int before = dup(STDOUT_FILENO);
    int full = open("/dev/full", O_WRONLY);
    assert_true(before >= 0 && full >= 0);
    struct eb_capture error;
    fflush(stdout);
    eb_capture_start(&error, STDERR_FILENO);
    dup2(full, STDOUT_FILENO);
    enum eb_config_outcome outcome = eb_config_read(2, arguments, environment, &fixture.config);
    dup2(before, STDOUT_FILENO);
    clearerr(stdout);
    eb_capture_stop(&error, fixture.said_stderr, sizeof fixture.said_stderr);
    close(before);
    close(full);
    assert_int_equal(outcome, EB_CONFIG_ERROR);
    assert_non_null(strstr(fixture.said_stderr, "cannot write standard output"));
}

static void logs_every_setting_with_its_source(void **state)
{
    (void)state;
    config_fixture_write_yaml("streams_max: 7\nthreads: 3\n");
    config_fixture_expect_run(
        config_fixture_with_file("--model-repository|/a b|--listen|a:1,unix:/x"), "EMBAG_LOOPS=2");
    struct eb_capture error;
    eb_capture_start(&error, STDERR_FILENO);
    eb_config_log(&fixture.config);
    eb_capture_stop(&error, fixture.said_stderr, sizeof fixture.said_stderr);
    char wanted[256];
    snprintf(wanted, sizeof wanted,
        " event=config source=flag config=%s listen=a:1,unix:/x model_repository=\"/a b\"\n",
        fixture.file_path);
    assert_non_null(strstr(fixture.said_stderr, wanted));
    assert_non_null(strstr(fixture.said_stderr, " event=config source=environment loops=2\n"));
    assert_non_null(
        strstr(fixture.said_stderr, " event=config source=file streams_max=7 threads=3\n"));
    const char *defaults = strstr(fixture.said_stderr, " event=config source=default ");
    assert_non_null(defaults);
    assert_non_null(strstr(defaults, " request_bytes_max=16777216 "));
    assert_non_null(strstr(defaults,
        " numa=interleave huge_pages=2m access_log=errors log_format=logfmt log_level=info "
        "prefetch=auto watch_settings=false "
        "tls_min_version=1.2 tls_client_verify=require "
        "admin_on_data_port=false http_listen=127.0.0.1:8601\n"));
}

/* ---- log_format ---- */

/* Reads settings that are accepted. Returns their log format. */
static enum eb_log_format format_of(const char *flags, const char *yaml, const char *variables)
{
    config_fixture_write_yaml(yaml);
    config_fixture_expect_run(config_fixture_with_file(flags), variables);
    enum eb_log_format format = fixture.config.log_format;
    eb_config_deinit(&fixture.config);
    eb_log_set_format(EB_LOG_LOGFMT);
    return format;
}

static void takes_the_highest_log_format(void **state)
{
    (void)state;
    static const char file[] = "model_repository: /m\n";
    static const char json_file[] = "model_repository: /m\nlog_format: json\n";
    assert_int_equal(format_of("", file, ""), EB_LOG_LOGFMT);
    assert_int_equal(format_of("", json_file, ""), EB_LOG_JSON);
    assert_int_equal(format_of("", json_file, "EMBAG_LOG_FORMAT=logfmt"), EB_LOG_LOGFMT);
    assert_int_equal(format_of("", file, "EMBAG_LOG_FORMAT=json"), EB_LOG_JSON);
    assert_int_equal(format_of("--log-format=logfmt", file, "EMBAG_LOG_FORMAT=json"), 0);
    assert_int_equal(format_of("--log-format|json", file, "EMBAG_LOG_FORMAT=logfmt"), EB_LOG_JSON);
    assert_int_equal(format_of("--log-format=json|--log-format|logfmt", json_file, ""), 0);
}

/* Expects the settings to be refused. Returns whether the one line that reports it is JSON. */
static bool is_refused_as_json(const char *flags, const char *yaml, const char *variables)
{
    config_fixture_write_yaml(yaml);
    assert_int_equal(
        config_fixture_read(config_fixture_with_file(flags), variables), EB_CONFIG_ERROR);
    eb_config_deinit(&fixture.config);
    eb_log_set_format(EB_LOG_LOGFMT);
    bool is_json = strncmp(fixture.said_stderr, "{\"ts\":\"", strlen("{\"ts\":\"")) == 0;
    assert_ptr_equal(
        strchr(fixture.said_stderr, '\n'), fixture.said_stderr + strlen(fixture.said_stderr) - 1);
    assert_non_null(strstr(fixture.said_stderr,
        is_json ? ",\"level\":\"error\",\"event\":\"bad_configuration\",\"reason\":\""
                : " level=error event=bad_configuration reason=\""));
    return is_json;
}

static void refuses_in_the_log_format_that_is_known(void **state)
{
    (void)state;
    static const char file[] = "model_repository: /m\n";
    /* A format set by a flag or a variable is known even if an earlier setting is wrong. */
    assert_true(is_refused_as_json("--loops|x|--log-format|json", file, ""));
    assert_true(is_refused_as_json("--nonsense|1|--log-format=json", file, ""));
    assert_true(is_refused_as_json("--loops=x", file, "EMBAG_LOG_FORMAT=json"));
    assert_true(is_refused_as_json("", file, "EMBAG_LOOPS=x|EMBAG_LOG_FORMAT=json"));
    assert_true(is_refused_as_json("", "loops: [1", "EMBAG_LOG_FORMAT=json"));
    assert_false(is_refused_as_json("--loops=x|--log-format=logfmt", "", "EMBAG_LOG_FORMAT=json"));
    /* A format set anywhere in the file is known once the whole file has been read. */
    assert_true(is_refused_as_json("", "loops: x\nlog_format: json\n", ""));
    assert_true(is_refused_as_json("", "log_format: json\n", "")); /* no model_repository */
    assert_false(is_refused_as_json("--loops=x", "log_format: json\n", ""));
    assert_false(is_refused_as_json("", "log_format: json\nloops: [1", ""));
}

static void refuses_a_wrong_log_format_as_logfmt(void **state)
{
    (void)state;
    static const char file[] = "model_repository: /m\nlog_format: json\n";
    assert_false(is_refused_as_json("--log-format|xml", file, "EMBAG_LOG_FORMAT=json"));
    assert_false(is_refused_as_json("--log-format", file, ""));
    assert_false(is_refused_as_json("", file, "EMBAG_LOG_FORMAT="));
    assert_false(is_refused_as_json("", "log_format: JSON\n", ""));
}

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, config_fixture_make_file, config_fixture_remove_file)

EB_TEST_GROUP(config)
{
    const struct CMUnitTest tests[] = {
        TEST(takes_defaults),
        TEST(takes_every_flag_in_both_forms),
        TEST(takes_every_variable),
        TEST(takes_the_highest_layer),
        TEST(checks_values_that_are_overridden),
        TEST(takes_the_last_of_a_repeated_flag),
        TEST(refuses_bad_flags),
        TEST(refuses_ports_of_another_form),
        TEST(takes_addresses_up_to_their_longest),
        TEST(takes_sixteen_addresses),
        TEST(refuses_unknown_variables_by_name),
        TEST(passes_over_the_variables_of_kubernetes),
        TEST(refuses_budgets_that_give_a_loop_too_little),
        TEST(counts_what_the_largest_request_takes),
        TEST(refuses_settings_of_tls_that_lack_others),
        TEST(chooses_loops_by_cpus_and_memory),
        TEST(reads_file_named_by_flag_or_variable),
        TEST(takes_a_file_without_settings),
        TEST(refuses_bad_files),
        TEST(refuses_what_is_no_readable_file),
        TEST(refuses_a_file_over_64_kib),
        TEST(survives_deep_nesting),
        TEST(helps_with_every_setting),
        TEST(tells_its_version),
        TEST(refuses_to_help_into_a_full_disk),
        TEST(logs_every_setting_with_its_source),
        TEST(takes_the_highest_log_format),
        TEST(refuses_in_the_log_format_that_is_known),
        TEST(refuses_a_wrong_log_format_as_logfmt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
