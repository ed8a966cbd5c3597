/* Rounds that join the pages of a version's tables, on a loop. */
#include "server/publish/page_rounds.h"

#include "server/tables/page_collapse.h"
#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <linux/mman.h>

#define NPY_4_MIB "{'descr': '<f4', 'fortran_order': False, 'shape': (65536, 16), }"
#define TABLE_BYTES 4194304 /* two pages of 2 MiB */
#define QUIET_TURNS 10

struct fixture {
    struct eb_scratch scratch;
    uv_loop_t uv;
    uv_timer_t ticks; /* keeps the loop turning */
    struct eb_registry registry;
    struct eb_registry_model model;
    struct eb_registry_version version;
    struct eb_model_version *loaded;
    struct eb_page_rounds rounds;
    unsigned round_count;
};

/* On the heap: a round's thread may outlive a failed test. */
static struct fixture *fixture;
static double pressure;
static atomic_uint collapse_count;
static atomic_int collapse_error; /* 0: calls reach the kernel */
static atomic_bool is_refused;    /* the kernel cannot join pages, or has none */
static bool is_blocking;          /* calls wait for `may_go` after `entered` */
static uv_sem_t entered;
static uv_sem_t may_go;

double __wrap_eb_machine_memory_pressure(const char *root);
double __wrap_eb_machine_memory_pressure(const char *root)
{
    (void)root;
    return pressure;
}

static atomic_uint report_count; /* page reports opened */

int __real_eb_page_report_open(struct eb_page_report *report, const char *root);
int __wrap_eb_page_report_open(struct eb_page_report *report, const char *root);
int __wrap_eb_page_report_open(struct eb_page_report *report, const char *root)
{
    atomic_fetch_add(&report_count, 1);
    return __real_eb_page_report_open(report, root);
}

static int advise(void *at, size_t bytes, int advice)
{
    if (advice == MADV_HUGEPAGE) {
        return __real_madvise(at, bytes, MADV_NOHUGEPAGE);
    }
    if (advice != MADV_COLLAPSE) {
        return __real_madvise(at, bytes, advice);
    }
    atomic_fetch_add(&collapse_count, 1);
    if (is_blocking) {
        uv_sem_post(&entered);
        uv_sem_wait(&may_go);
    }
    errno = atomic_load(&collapse_error);
    if (errno != 0) {
        return -1;
    }
    (void)__real_madvise(at, bytes, MADV_HUGEPAGE);
    int rc = __real_madvise(at, bytes, advice);
    if (rc != 0) {
        atomic_store(&is_refused, true);
    }
    return rc;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void on_round(void *context)
{
    struct fixture *owner = context;
    owner->round_count++;
}

/* Loads a version of one table, all of it in small pages. */
static void load_version(void)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_failure failure = {.text = ""};
    struct eb_table_options options = {.row_bytes_max = 65536, .name_bytes_max = 255};
    eb_scratch_path(&fixture->scratch, "m/1", path);
    struct eb_version_source source = {.model = "m", .version = 1, .path = path};
    fixture->loaded = eb_model_version_load(&source, &options, NULL, &failure);
    if (!fixture->loaded) {
        fail_msg("%s", failure.text);
    }
    fixture->version = (struct eb_registry_version){.number = 1, .loaded = fixture->loaded};
    fixture->model = (struct eb_registry_model){
        .name = fixture->loaded->model, .count = 1, .versions = &fixture->version};
    fixture->registry = (struct eb_registry){.count = 1, .models = &fixture->model};
}

static void write_table(void)
{
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_write_npy(&fixture->scratch, "m/1/t.npy", NPY_4_MIB, 1000);
    eb_scratch_path(&fixture->scratch, "m/1/t.npy", path);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    assert_int_equal(ftruncate(fileno(file), size + TABLE_BYTES - 1000), 0);
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    pressure = 0;
    is_blocking = false;
    atomic_store(&collapse_count, 0);
    atomic_store(&collapse_error, 0);
    atomic_store(&is_refused, false);
    fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    eb_scratch_init(&fixture->scratch);
    write_table();
    eb_faults.madvise = advise;
    load_version();
    assert_true(eb_page_collapse_is_due(&fixture->loaded->tables));
    atomic_store(&report_count, 0);
    assert_int_equal(uv_loop_init(&fixture->uv), 0);
    assert_int_equal(uv_timer_init(&fixture->uv, &fixture->ticks), 0);
    assert_int_equal(uv_timer_start(&fixture->ticks, on_tick, 1, 1), 0);
    fixture->rounds = (struct eb_page_rounds){
        .registry = &fixture->registry, .interval_ms = 1, .on_round = on_round, .context = fixture};
    eb_page_rounds_start(&fixture->rounds, &fixture->uv);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_page_rounds_stop(&fixture->rounds);
    uv_close((uv_handle_t *)&fixture->ticks, NULL);
    uv_run(&fixture->uv, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fixture->uv), 0);
    assert_int_equal(atomic_load(&fixture->loaded->references), 1);
    eb_model_version_give(fixture->loaded);
    eb_faults_disarm();
    eb_scratch_deinit(&fixture->scratch);
    free(fixture);
    return 0;
}

static void run_rounds(unsigned count)
{
    while (fixture->round_count < count) {
        uv_run(&fixture->uv, UV_RUN_ONCE);
    }
}

/* Expects no further round while the loop turns. */
static void expect_quiet(void)
{
    unsigned before = fixture->round_count;
    for (unsigned i = 0; i < QUIET_TURNS; i++) {
        uv_run(&fixture->uv, UV_RUN_ONCE);
    }
    assert_int_equal(fixture->round_count, before);
    assert_false(eb_page_rounds_is_busy(&fixture->rounds));
}

static void joins_pages_until_all_are_huge(void **state)
{
    (void)state;
    const struct eb_table_set *set = &fixture->loaded->tables;
    run_rounds(1);
    if (atomic_load(&is_refused)) {
        skip();
    }
    assert_int_equal(atomic_load(&set->bytes_2m), TABLE_BYTES);
    assert_int_equal(atomic_load(&report_count), 1);
    expect_quiet();
}

static void tries_again_while_pages_cannot_be_had(void **state)
{
    (void)state;
    atomic_store(&collapse_error, ENOMEM);
    run_rounds(3);
    assert_true(eb_page_collapse_is_due(&fixture->loaded->tables));
    assert_true(atomic_load(&collapse_count) >= 3);
    assert_int_equal(atomic_load(&report_count), 0);
}

static void leaves_a_machine_in_peace_whose_memory_is_short(void **state)
{
    (void)state;
    pressure = EB_PAGE_ROUNDS_PRESSURE_PERCENT;
    run_rounds(3);
    assert_int_equal(atomic_load(&collapse_count), 0);
}

static void gives_up_a_version_that_is_retired(void **state)
{
    (void)state;
    assert_int_equal(uv_sem_init(&entered, 0), 0);
    assert_int_equal(uv_sem_init(&may_go, 0), 0);
    is_blocking = true;
    while (uv_sem_trywait(&entered) != 0) {
        uv_run(&fixture->uv, UV_RUN_ONCE);
    }
    eb_page_rounds_advance(&fixture->rounds);
    assert_false(atomic_load(&fixture->rounds.is_cancelled));
    fixture->version.loaded = NULL;
    eb_page_rounds_advance(&fixture->rounds);
    uv_sem_post(&may_go);
    run_rounds(1);
    assert_int_equal(atomic_load(&collapse_count), 1);
    assert_int_equal(atomic_load(&report_count), 0);
    expect_quiet();
    uv_sem_destroy(&entered);
    uv_sem_destroy(&may_go);
}

EB_TEST_GROUP(page_rounds)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(joins_pages_until_all_are_huge),
        TEST(tries_again_while_pages_cannot_be_had),
        TEST(leaves_a_machine_in_peace_whose_memory_is_short),
        TEST(gives_up_a_version_that_is_retired),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
