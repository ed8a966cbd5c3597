#include "server/config_file.h"

#include "server/base/log.h"
#include "server/base/page_size.h"
#include "server/tables/numa_policy.h"
#include "tests/lib/test_group.h"
#include "tests/unit/server/config_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

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
        {"listen: ['']\n", ": listen: : is empty"},
        {"hello\n", "Expecting MAPPING, got event: SCALAR"},
        {"- loops\n", "Expecting MAPPING, got event: SEQUENCE_START"},
        {"loops: &x 1\nthreads: *x\n", "YAML alias unsupported"},
        {"loops: 1\n---\nthreads: 1\n", "Ignoring documents after first in stream"},
        {"loops: 1\n threads: 2\n", "mapping values are not allowed in this context"},
        {"loops: \xff\n", "invalid leading UTF-8 octet"},
        {"loops: \x01\n", "control characters are not allowed"},
        {"[a]: 1\n", "Internal error"},
        {"loops:\n", ": loops: : not a whole number"},
        {"loops: 0\n", ": loops: 0: not in 1..256 (event loops, one thread each)"},
        {"model_repository: ''\n", ": model_repository: : is empty"},
        {"log_level: loud\n", ": log_level: loud: no such level"},
        {"huge_pages: no\n", ": huge_pages: no: not one of 2m|1g|off"},
        {"prefetch: 128:64\n", ": prefetch: 128:64: not off or FAR:NEAR:LEVEL, such as"},
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
    config_fixture_expect_failure(
        "--config|/nonexistent/x.yaml", "", "/nonexistent/x.yaml: No such file or directory");
    config_fixture_expect_failure("--config|/", "", "/: not a regular file");
    config_fixture_expect_failure("--config|", "", "--config : is empty");
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

#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, config_fixture_make_file, config_fixture_remove_file)

EB_TEST_GROUP(config_file)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_file_named_by_flag_or_variable),
        TEST(takes_a_file_without_settings),
        TEST(refuses_bad_files),
        TEST(refuses_what_is_no_readable_file),
        TEST(refuses_a_file_over_64_kib),
        TEST(survives_deep_nesting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
