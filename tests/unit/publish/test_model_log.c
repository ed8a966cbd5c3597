#include "server/publish/model_log.h"

#include "server/base/log.h"
#include "tests/lib/capture.h"
#include "tests/lib/test_group.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB UINT64_C(1048576)

/* A version with a table of 10 MiB, 8 MiB of which are in huge pages, a small table and a remote
 * one. */
static struct eb_named_table tables[] = {
    {.name = "big", .resident_bytes = 10 * MIB, .pages = {10 * MIB, 8 * MIB, 0}},
    {.name = "small", .resident_bytes = 100, .pages = {100, 100, 0}},
    {.name = "remote", .is_remote = true},
};
static struct eb_model_version version;
static struct eb_table_memory_options options;
static char said[16384];

static int reset(void **state)
{
    (void)state;
    options = (struct eb_table_memory_options){0};
    version.model = "m";
    version.version = 7;
    version.tables = (struct eb_table_set){
        .count = 3,
        .tables = tables,
        .bytes = 12 * MIB,
        .memory = {.shared_bytes = 2 * MIB},
        .pages = {10 * MIB + 100, 8 * MIB + 100, 0},
    };
    eb_log_set_level(EB_LOG_INFO);
    return 0;
}

static void log_loaded(void)
{
    struct eb_capture capture;
    eb_capture_start(&capture, STDERR_FILENO);
    eb_model_log_loaded(&options, &version, 5);
    eb_capture_stop(&capture, said, sizeof said);
}

static void expect_said(const char *part)
{
    if (!strstr(said, part)) {
        fail_msg("wanted '%s' in: %s", part, said);
    }
}

static void tells_the_pages_of_version_and_tables(void **state)
{
    (void)state;
    log_loaded();
    expect_said(" level=info event=model_loaded model=m version=7 tables=3 bytes=12582912 "
                "shared_bytes=2097152 adopted_bytes=0 resident_bytes=10485860 bytes_2m=8388708 "
                "bytes_1g=0 numa_nodes=");
    expect_said(" elapsed_ms=5\n");
    expect_said(" level=info event=table_loaded model=m version=7 table=big "
                "resident_bytes=10485760 bytes_2m=8388608 bytes_1g=0\n");
    assert_null(strstr(said, "table=small"));
    eb_log_set_level(EB_LOG_DEBUG);
    log_loaded();
    expect_said(" level=debug event=table_loaded model=m version=7 table=small ");
    assert_null(strstr(said, "table=remote"));
}

static void warns_of_missing_huge_pages(void **state)
{
    (void)state;
    log_loaded();
    expect_said(" level=warn event=huge_pages_missing model=m version=7 huge_pages=2m "
                "bytes=10485860 bytes_in_such_pages=8388708 remedy=\"");
    options.pages = EB_PAGE_1G;
    log_loaded();
    expect_said(" huge_pages=1g bytes=10485860 bytes_in_such_pages=0 remedy=\"");
}

static void says_nothing_where_all_is_as_it_was_asked_for(void **state)
{
    (void)state;
    options.pages = EB_PAGE_SMALL;
    log_loaded();
    assert_null(strstr(said, "level=warn"));
    options.pages = EB_PAGE_2M;
    version.tables.pages.bytes_2m = version.tables.pages.bytes - 40;
    version.tables.pages.bytes_1g = 40;
    log_loaded();
    assert_null(strstr(said, "level=warn"));
    options.pages = EB_PAGE_1G;
    version.tables.pages.bytes_2m = 0;
    version.tables.pages.bytes_1g = version.tables.pages.bytes;
    log_loaded();
    assert_null(strstr(said, "level=warn"));
}

static void warns_where_pages_cannot_be_told(void **state)
{
    (void)state;
    version.tables.pages = (struct eb_page_count){.bytes = 10 * MIB};
    version.tables.pages_error = -ENOENT;
    log_loaded();
    expect_said(" level=warn event=huge_pages_unknown model=m version=7 reason=\"No such file");
    assert_null(strstr(said, "huge_pages_missing"));
}

static void warns_once_where_nodes_are_refused(void **state)
{
    (void)state;
    log_loaded();
    assert_null(strstr(said, "numa_refused"));
    version.tables.memory.numa_error = -EPERM;
    options.numa = EB_NUMA_LOCAL;
    log_loaded();
    expect_said(" level=warn event=numa_refused numa=local reason=\"Operation not permitted\" "
                "remedy=\"let the process call mbind: ");
    version.version = 8;
    log_loaded();
    expect_said(" event=model_loaded model=m version=8 ");
    assert_null(strstr(said, "numa_refused"));
}

static void tells_progress_and_failure(void **state)
{
    (void)state;
    struct eb_capture capture;
    eb_capture_start(&capture, STDERR_FILENO);
    eb_model_log_progress("/m/1/t.npy", 3000000, 10000000, 2e6);
    eb_model_log_progress("/m/1/t.npy", 3, 10, 0);
    eb_model_log_stalled("/m/1/t.npy", 30);
    eb_model_log_suspected(NULL, "m", 2, 1);
    eb_model_log_postponed(NULL, "m", 2, 1500);
    eb_model_log_failed(NULL, "m", 2, "it is broken");
    eb_capture_stop(&capture, said, sizeof said);
    expect_said(" level=info event=loading path=/m/1/t.npy done_bytes=3000000 "
                "total_bytes=10000000 percent=30 mb_per_s=2 left_s=3\n");
    expect_said(" percent=30 mb_per_s=0 left_s=unknown\n");
    expect_said(" level=warn event=load_stalled path=/m/1/t.npy seconds=30 ");
    expect_said(" level=warn event=load_killed model=m version=2 deaths=1 ");
    expect_said(" level=info event=load_postponed model=m version=2 wait_ms=1500 ");
    expect_said(" level=error event=model_failed model=m version=2 reason=\"it is broken\"\n");
}

EB_TEST_GROUP(model_log)
{
#define TEST(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        TEST(tells_the_pages_of_version_and_tables),
        TEST(warns_of_missing_huge_pages),
        TEST(says_nothing_where_all_is_as_it_was_asked_for),
        TEST(warns_where_pages_cannot_be_told),
        TEST(warns_once_where_nodes_are_refused),
        TEST(tells_progress_and_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
