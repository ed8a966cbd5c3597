#include "server/publish/manager.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define NPY_5X2 "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }"
#define TIMEOUT_MS 20000
#define UNPACED (UINT64_C(1) << 40)

/* How often memory will still be reported as short, also to the background thread. */
static atomic_int short_count;
/* How often the system will still refuse memory that it has reported as available. */
static atomic_int refused_count;
/* Whether loads block when they ask how much memory is available. */
static atomic_bool is_held;
/* Whether every snapshot is refused, and whether a refused snapshot would have shown a retired
 * version. */
static bool is_snapshot_refused;
static bool is_retired_refused;

uint64_t __real_eb_machine_available_bytes(void);
uint64_t __wrap_eb_machine_available_bytes(void);
struct eb_snapshot *__real_eb_registry_snapshot(const struct eb_registry *registry);
struct eb_snapshot *__wrap_eb_registry_snapshot(const struct eb_registry *registry);

struct eb_snapshot *__wrap_eb_registry_snapshot(const struct eb_registry *registry)
{
    if (!is_snapshot_refused) {
        return __real_eb_registry_snapshot(registry);
    }
    for (size_t i = 0; i < registry->models[0].count; i++) {
        is_retired_refused |= registry->models[0].versions[i].retired_count > 0;
    }
    return NULL;
}

void *__real_eb_table_memory_take(
    struct eb_table_memory *memory, uint64_t bytes, struct eb_failure *failure);
void *__wrap_eb_table_memory_take(
    struct eb_table_memory *memory, uint64_t bytes, struct eb_failure *failure);

void *__wrap_eb_table_memory_take(
    struct eb_table_memory *memory, uint64_t bytes, struct eb_failure *failure)
{
    return __real_eb_table_memory_take(
        memory, atomic_fetch_sub(&refused_count, 1) > 0 ? UINT64_MAX : bytes, failure);
}

uint64_t __wrap_eb_machine_available_bytes(void)
{
    while (atomic_load(&is_held)) {
        uv_sleep(1);
    }
    return atomic_fetch_sub(&short_count, 1) > 0 ? 0 : UINT64_MAX;
}

/* A manager and one reader, both on the test's loop. */
struct fixture {
    struct eb_scratch scratch;
    struct eb_manager_options options;
    struct eb_manager *manager;
    uv_loop_t uv;
    struct eb_mailbox mailbox; /* the reader's mailbox */
    struct eb_publisher_reader reader;
    struct eb_snapshot *snapshot;
    /* The last command and its result. */
    struct eb_model_command command;
    unsigned done_count;
    enum eb_model_outcome outcome;
    uint64_t served_then; /* version that the snapshot served when the command was done */
    char text[EB_FAILURE_BYTES];
};

/* On the heap: the manager's threads may outlive a failed test. */
static struct fixture *fixture;

static struct eb_snapshot *swap_reader(void *context, struct eb_snapshot *snapshot)
{
    struct eb_snapshot *former = fixture->snapshot;
    (void)context;
    fixture->snapshot = snapshot;
    return former;
}

static void write_manager_table(const char *name)
{
    eb_scratch_write_npy(&fixture->scratch, name, NPY_5X2, 40);
}

static void write_config(const char *model, const char *text)
{
    char name[64];
    snprintf(name, sizeof name, "%s/model.yaml", model);
    eb_scratch_write_text(&fixture->scratch, name, text);
}

static void move_path(const char *from, const char *to)
{
    char paths[2][EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, from, paths[0]);
    eb_scratch_path(&fixture->scratch, to, paths[1]);
    assert_int_equal(rename(paths[0], paths[1]), 0);
}

/* Adds a version as a writer should: makes it under another name and then renames it. */
static void add_version(const char *model, int version)
{
    char from[64];
    char to[64];
    snprintf(from, sizeof from, "%s/.new/t.npy", model);
    write_manager_table(from);
    snprintf(from, sizeof from, "%s/.new", model);
    snprintf(to, sizeof to, "%s/%d", model, version);
    move_path(from, to);
}

static int set_up(void **state)
{
    (void)state;
    fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    eb_scratch_init(&fixture->scratch);
    write_manager_table("m/1/t.npy");
    fixture->options = (struct eb_manager_options){
        .directory = fixture->scratch.root,
        .tables = {.row_bytes_max = 65536, .name_bytes_max = 255},
        .poll_ms = 3600000,
        .load_bytes_per_s = UNPACED,
    };
    atomic_store(&short_count, 0);
    atomic_store(&refused_count, 0);
    atomic_store(&is_held, false);
    is_snapshot_refused = false;
    is_retired_refused = false;
    return uv_loop_init(&fixture->uv) + eb_mailbox_open(&fixture->mailbox, &fixture->uv);
}

static void start(void)
{
    struct eb_failure failure = {.text = ""};
    assert_int_equal(eb_manager_create(&fixture->manager, &fixture->options, &fixture->uv), 0);
    if (!eb_manager_load(fixture->manager, &failure)) {
        fail_msg("%s", failure.text);
    }
    fixture->snapshot = eb_manager_snapshot(fixture->manager);
    fixture->reader = (struct eb_publisher_reader){&fixture->mailbox, swap_reader, NULL};
    assert_int_equal(eb_manager_start(fixture->manager, &fixture->reader, 1), 0);
}

static void on_reader_done(uv_timer_t *timer)
{
    eb_mailbox_close(&fixture->mailbox);
    uv_close((uv_handle_t *)timer, NULL);
}

/* Stops the manager first, and leaves the reader's mailbox open until the manager has got
 * everything that it waits for. */
static int tear_down(void **state)
{
    uv_timer_t timer;
    (void)state;
    if (fixture->manager) {
        eb_manager_stop(fixture->manager);
        eb_manager_stop(fixture->manager);
    }
    uv_timer_init(&fixture->uv, &timer);
    uv_timer_start(&timer, on_reader_done, 100, 0);
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    while (uv_run(&fixture->uv, UV_RUN_NOWAIT) != 0) {
        if (uv_hrtime() > deadline_ns) {
            print_error("the manager does not end: %s\n", eb_manager_left(fixture->manager));
            return -1; /* the manager's threads still use the fixture */
        }
        uv_sleep(1);
    }
    eb_manager_destroy(fixture->manager);
    eb_scratch_deinit(&fixture->scratch);
    int rc = uv_loop_close(&fixture->uv);
    free(fixture);
    return rc;
}

/* ---- waiting ---- */

static uint64_t served(const char *name)
{
    const struct eb_snapshot_model *model = eb_snapshot_find(fixture->snapshot, name);
    return model && model->served ? model->served->version : 0;
}

/* Returns the state of a version, or 0 if the version is not in the snapshot. */
static enum eb_version_state state_of(const char *name, uint64_t number)
{
    const struct eb_snapshot_model *model = eb_snapshot_find(fixture->snapshot, name);
    for (size_t i = 0; model && i < model->version_count; i++) {
        if (model->versions[i].number == number) {
            return model->versions[i].state;
        }
    }
    return 0;
}

static void turn(void)
{
    uv_run(&fixture->uv, UV_RUN_NOWAIT);
    uv_sleep(1);
}

static void turn_times(int count)
{
    for (int i = 0; i < count; i++) {
        turn();
    }
}

#define WAIT_FOR(condition)                                                                        \
    do {                                                                                           \
        uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;                       \
        while (!(condition) && uv_hrtime() < deadline_ns) {                                        \
            turn();                                                                                \
        }                                                                                          \
        assert_true(condition);                                                                    \
    } while (0)

/* Adds a version of "m" and waits until it is served. */
static void publish(int version)
{
    add_version("m", version);
    WAIT_FOR(served("m") == (uint64_t)version);
}

/* Starts, and publishes version 2 while a request uses version 1. Returns version 1, which the
 * caller drops. */
static struct eb_model_version *retire_first(void)
{
    write_config("m", "versions: {keep: 1, keep_s: 0}\n");
    start();
    struct eb_model_version *read =
        eb_model_version_take(eb_snapshot_find(fixture->snapshot, "m")->served);
    add_version("m", 2);
    WAIT_FOR(state_of("m", 1) == EB_VERSION_RETIRED);
    return read;
}

static void on_manager_done(
    struct eb_model_command *command, enum eb_model_outcome outcome, const char *text)
{
    fixture->done_count++;
    fixture->outcome = outcome;
    fixture->served_then = served(command->model);
    snprintf(fixture->text, sizeof fixture->text, "%s", text);
}

static void send_command(enum eb_model_verb verb, const char *model, uint64_t version)
{
    fixture->done_count = 0;
    fixture->command = (struct eb_model_command){
        .verb = verb, .model = model, .version = version, .on_done = on_manager_done};
    eb_manager_ask(fixture->manager, &fixture->command);
}

static void ask_manager(enum eb_model_verb verb, uint64_t version, enum eb_model_outcome outcome)
{
    send_command(verb, "m", version);
    WAIT_FOR(fixture->done_count == 1);
    if (fixture->outcome != outcome) {
        fail_msg("outcome %d: %s", fixture->outcome, fixture->text);
    }
}

/* ---- tests ---- */

static void serves_a_new_version_and_keeps_the_one_before(void **state)
{
    (void)state;
    start();
    assert_int_equal(served("m"), 1);
    publish(2);
    assert_int_equal(state_of("m", 1), EB_VERSION_READY);
    publish(5);
    assert_int_equal(state_of("m", 2), EB_VERSION_READY);
}

static const struct eb_snapshot_version *newest(void)
{
    return &eb_snapshot_find(fixture->snapshot, "m")->versions[0];
}

static void loads_and_keeps_what_routers_claim(void **state)
{
    static const struct eb_claim claims[] = {
        {.model = "m", .version = 1}, {.model = "m", .version = 2, .is_served = true}};
    (void)state;
    struct eb_claim_set sets[] = {{.router = "a", .count = 1, .claims = claims},
        {.router = "b", .count = 2, .claims = claims}};
    write_config("m", "versions: {keep: 1, keep_s: 0}\n");
    add_version("m", 2);
    start();
    assert_int_equal(state_of("m", 1), 0);
    eb_manager_claim(fixture->manager, &sets[0]);
    WAIT_FOR(state_of("m", 1) == EB_VERSION_READY);
    assert_false(newest()->is_claimed);
    eb_manager_claim(fixture->manager, &sets[1]);
    WAIT_FOR(newest()->is_claimed && newest()->is_served_by_router);
    eb_manager_unclaim(fixture->manager, &sets[0]);
    turn_times(20);
    assert_int_equal(state_of("m", 1), EB_VERSION_READY);
    eb_manager_unclaim(fixture->manager, &sets[1]);
    WAIT_FOR(!newest()->is_claimed);
    WAIT_FOR(state_of("m", 1) == 0);
    assert_int_equal(served("m"), 2);
}

static void loads_what_routers_claim_at_its_start(void **state)
{
    static const struct eb_claim claims[] = {
        {.model = "m", .version = 1}, {.model = "m", .version = 2, .is_served = true}};
    (void)state;
    struct eb_claim_set set = {.router = "a", .count = 2, .claims = claims};
    add_version("m", 2);
    add_version("m", 3);
    fixture->options.claim_wait_ms = 3600000;
    start();
    turn_times(20);
    assert_int_equal(fixture->snapshot->count, 0);
    eb_manager_claim(fixture->manager, &set);
    WAIT_FOR(state_of("m", 1) != 0 && state_of("m", 2) != 0);
    WAIT_FOR(served("m") == 2);
    turn_times(20);
    assert_int_equal(state_of("m", 3), 0);
    eb_manager_unclaim(fixture->manager, &set);
    assert_int_not_equal(eb_manager_load_times(fixture->manager).load_ns, 0);
}

static void loads_the_highest_version_if_no_router_claims_one(void **state)
{
    (void)state;
    add_version("m", 2);
    fixture->options.claim_wait_ms = 30;
    uint64_t begun_ns = uv_hrtime();
    start();
    WAIT_FOR(served("m") == 2);
    assert_true(uv_hrtime() - begun_ns >= UINT64_C(29) * 1000000);
    assert_int_equal(state_of("m", 1), 0);
}

static void waits_for_no_claims_if_a_command_asks(void **state)
{
    (void)state;
    fixture->options.claim_wait_ms = 3600000;
    start();
    ask_manager(EB_MODEL_LOAD, 1, EB_MODEL_DONE);
}

static void goes_on_where_nothing_loads_at_a_start_with_claims(void **state)
{
    (void)state;
    eb_scratch_write_text(&fixture->scratch, "m/1/t.npy", "no array");
    fixture->options.claim_wait_ms = 1;
    start();
    WAIT_FOR(state_of("m", 1) == EB_VERSION_FAILED);
    add_version("m", 2);
    WAIT_FOR(served("m") == 2);
}

static void takes_the_grace_of_claims_while_it_runs(void **state)
{
    static const struct eb_claim claim = {.model = "m", .version = 1};
    (void)state;
    struct eb_claim_set set = {.router = "a", .count = 1, .claims = &claim};
    write_config("m", "versions: {keep: 1, keep_s: 0}\n");
    add_version("m", 2);
    fixture->options.limits.claim_grace_ms = 3600000;
    start();
    eb_manager_claim(fixture->manager, &set);
    WAIT_FOR(state_of("m", 1) == EB_VERSION_READY);
    eb_manager_unclaim(fixture->manager, &set);
    turn_times(20);
    assert_int_equal(state_of("m", 1), EB_VERSION_READY);
    fixture->options.limits.claim_grace_ms = 0;
    eb_manager_set(fixture->manager, &fixture->options);
    WAIT_FOR(state_of("m", 1) == 0);
}

static void gives_claims_back_when_it_has_stopped(void **state)
{
    static const struct eb_claim claim = {.model = "m", .version = 1};
    (void)state;
    struct eb_claim_set set = {.router = "a", .count = 1, .claims = &claim};
    start();
    eb_manager_claim(fixture->manager, &set);
    eb_manager_stop(fixture->manager);
    eb_manager_unclaim(fixture->manager, &set);
}

static void frees_a_version_when_its_last_reader_is_done(void **state)
{
    (void)state;
    struct eb_model_version *read = retire_first();
    assert_int_equal(served("m"), 2);
    turn_times(20);
    assert_int_equal(state_of("m", 1), EB_VERSION_RETIRED);
    assert_non_null(eb_table_set_find(&read->tables, "t"));
    eb_model_version_give(read);
    WAIT_FOR(state_of("m", 1) == 0);
}

static void leaves_the_old_one_where_the_new_one_fails(void **state)
{
    (void)state;
    start();
    eb_scratch_write(&fixture->scratch, "m/.2/t.npy", "junk", 4);
    move_path("m/.2", "m/2");
    WAIT_FOR(state_of("m", 2) == EB_VERSION_FAILED);
    assert_int_equal(served("m"), 1);
    publish(3);
}

static void follows_models_that_come_and_go(void **state)
{
    (void)state;
    start();
    write_config("n", "versions: {keep_s: 0}\n");
    add_version("n", 1);
    WAIT_FOR(served("n") == 1);
    move_path("n", ".gone");
    WAIT_FOR(!eb_snapshot_find(fixture->snapshot, "n"));
    assert_int_equal(served("m"), 1);
    /* An empty repository counts as one that is not mounted, so the loaded models stay. */
    move_path("m", ".m");
    turn_times(100);
    assert_int_equal(served("m"), 1);
}

static void looks_now_and_then_where_it_is_to_poll(void **state)
{
    (void)state;
    fixture->options.watch = EB_MANAGER_WATCH_POLL;
    fixture->options.poll_ms = 5;
    start();
    publish(2);
}

static void looks_only_on_command_where_it_is_not_to_watch(void **state)
{
    (void)state;
    fixture->options.watch = EB_MANAGER_WATCH_OFF;
    fixture->options.poll_ms = 1;
    start();
    add_version("m", 2);
    turn_times(100);
    assert_int_equal(served("m"), 1);
    ask_manager(EB_MODEL_LOAD, 0, EB_MODEL_DONE);
    assert_int_equal(fixture->served_then, 2);
}

static void tells_of_a_command_when_its_readers_know(void **state)
{
    (void)state;
    start();
    publish(2);
    ask_manager(EB_MODEL_SERVE, 1, EB_MODEL_DONE);
    assert_int_equal(fixture->served_then, 1);
    ask_manager(EB_MODEL_UNLOAD, 2, EB_MODEL_DONE);
    WAIT_FOR(state_of("m", 2) == 0);
    ask_manager(EB_MODEL_SERVE, 2, EB_MODEL_DONE);
    assert_int_equal(fixture->served_then, 2);
    ask_manager(EB_MODEL_LOAD, 7, EB_MODEL_NOT_FOUND);
    ask_manager(EB_MODEL_UNLOAD, 2, EB_MODEL_REFUSED);
}

static void goes_back_and_forth_with_model_yaml(void **state)
{
    (void)state;
    start();
    publish(2);
    write_config("m", "versions: {serve: 1}\n");
    WAIT_FOR(served("m") == 1);
    write_config("m", "versions: {serve: highest, labels: [{name: old, version: 1}]}\n");
    WAIT_FOR(served("m") == 2);
    assert_int_equal(eb_snapshot_find_label(eb_snapshot_find(fixture->snapshot, "m"), "old"), 1);
}

static void drops_what_is_spare_where_memory_is_short(void **state)
{
    (void)state;
    write_config("m", "versions: {keep_s: 0}\n");
    start();
    publish(2);
    assert_int_equal(state_of("m", 1), EB_VERSION_READY);
    atomic_store(&short_count, 1);
    publish(3);
    assert_int_equal(state_of("m", 1), 0);
    assert_int_equal(state_of("m", 2), EB_VERSION_READY);
}

static void tries_again_when_a_version_has_become_spare(void **state)
{
    (void)state;
    write_config("m", "versions: {keep_s: 1}\n");
    start();
    publish(2);
    atomic_store(&short_count, 1);
    publish(3);
    assert_true(atomic_load(&short_count) <= 0);
}

static void says_that_memory_is_short_and_leaves_all_as_it_is(void **state)
{
    (void)state;
    start();
    atomic_store(&short_count, 1000);
    add_version("m", 2);
    WAIT_FOR(state_of("m", 2) == EB_VERSION_FAILED);
    assert_int_equal(served("m"), 1);
    ask_manager(EB_MODEL_LOAD, 2, EB_MODEL_SHORT);
    eb_scratch_expect(fixture->text, "bytes more memory than is available");
    atomic_store(&short_count, 0);
    ask_manager(EB_MODEL_LOAD, 2, EB_MODEL_DONE);
    assert_int_equal(fixture->served_then, 2);
}

static void tries_again_when_memory_is_back(void **state)
{
    (void)state;
    fixture->options.poll_ms = 10;
    start();
    atomic_store(&short_count, 1000000);
    add_version("m", 2);
    WAIT_FOR(state_of("m", 2) == EB_VERSION_FAILED);
    atomic_store(&short_count, 0);
    WAIT_FOR(served("m") == 2);
}

static void tries_again_what_was_hindered_after_a_pause(void **state)
{
    (void)state;
    fixture->options.watch = EB_MANAGER_WATCH_OFF;
    start();
    add_version("m", 2);
    atomic_store(&refused_count, 1);
    ask_manager(EB_MODEL_LOAD, 2, EB_MODEL_FAILED);
    eb_scratch_expect(fixture->text, "the system refuses ");
    WAIT_FOR(served("m") == 2);
}

static void waits_for_what_is_about_to_be_freed(void **state)
{
    (void)state;
    struct eb_model_version *read = retire_first();
    atomic_store(&short_count, 1000000);
    add_version("m", 3);
    send_command(EB_MODEL_LOAD, "m", 3);
    WAIT_FOR(atomic_load(&short_count) < 1000000);
    turn_times(20);
    assert_int_equal(fixture->done_count, 0);
    atomic_store(&short_count, 0);
    eb_model_version_give(read);
    WAIT_FOR(fixture->done_count == 1);
    assert_int_equal(fixture->outcome, EB_MODEL_DONE);
}

static void follows_model_yaml_while_a_version_is_loaded(void **state)
{
    (void)state;
    start();
    publish(2);
    atomic_store(&is_held, true);
    add_version("m", 3);
    WAIT_FOR(state_of("m", 3) == EB_VERSION_LOADING);
    write_config("m", "versions: {serve: 1}\n");
    WAIT_FOR(served("m") == 1);
    assert_int_equal(state_of("m", 3), EB_VERSION_LOADING);
    atomic_store(&is_held, false);
    WAIT_FOR(state_of("m", 3) == 0);
    assert_int_equal(served("m"), 1);
}

static void reads_model_yaml_before_it_serves_what_was_loaded(void **state)
{
    (void)state;
    fixture->options.watch = EB_MANAGER_WATCH_POLL;
    start();
    add_version("m", 2);
    atomic_store(&is_held, true);
    send_command(EB_MODEL_LOAD, "m", 0);
    WAIT_FOR(state_of("m", 2) == EB_VERSION_LOADING);
    write_config("m", "versions: {serve: 1}\n");
    atomic_store(&is_held, false);
    WAIT_FOR(fixture->done_count == 1);
    assert_int_equal(fixture->served_then, 1);
    WAIT_FOR(state_of("m", 2) == 0);
}

static void gives_up_a_load_that_is_wanted_no_longer(void **state)
{
    (void)state;
    fixture->options.load_bytes_per_s = 1;
    start();
    /* The pace counts from the first read that it governs, which does not wait. */
    add_version("m", 2);
    WAIT_FOR(served("m") == 2);
    add_version("m", 3);
    WAIT_FOR(state_of("m", 3) == EB_VERSION_LOADING);
    write_config("m", "versions: {serve: 1}\n");
    /* At the pace that the test has set, the load would take 40 s. */
    WAIT_FOR(state_of("m", 3) == 0);
    assert_int_equal(served("m"), 1);
}

/* Both loads are held. The version that is given back meanwhile is freed by another thread. */
static void loads_two_models_at_once_and_frees_a_third(void **state)
{
    (void)state;
    struct eb_model_version *read = retire_first();
    atomic_store(&is_held, true);
    add_version("m", 3);
    add_version("m", 4);
    add_version("n", 1);
    add_version("o", 1);
    WAIT_FOR(state_of("m", 3) == EB_VERSION_LOADING || state_of("m", 4) == EB_VERSION_LOADING);
    WAIT_FOR(state_of("n", 1) == EB_VERSION_LOADING || state_of("o", 1) == EB_VERSION_LOADING);
    eb_model_version_give(read);
    WAIT_FOR(state_of("m", 1) == 0);
    assert_true(state_of("m", 3) != EB_VERSION_LOADING || state_of("m", 4) != EB_VERSION_LOADING);
    assert_true(state_of("n", 1) != EB_VERSION_LOADING || state_of("o", 1) != EB_VERSION_LOADING);
    atomic_store(&is_held, false);
    WAIT_FOR(served("m") == 4 && served("n") == 1 && served("o") == 1);
}

/* Memory is short for the first of two loads at once, and nothing can be dropped for it. */
static void a_load_that_lacks_memory_waits_for_the_other(void **state)
{
    (void)state;
    start();
    atomic_store(&is_held, true);
    add_version("n", 1);
    WAIT_FOR(state_of("n", 1) == EB_VERSION_LOADING);
    add_version("o", 1);
    WAIT_FOR(state_of("o", 1) == EB_VERSION_LOADING);
    atomic_store(&short_count, 1);
    atomic_store(&is_held, false);
    WAIT_FOR(served("n") == 1 && served("o") == 1);
    assert_true(atomic_load(&short_count) <= 0);
    assert_int_equal(fixture->snapshot->loads.failed, 0);
}

static void a_command_does_not_wait_for_the_jitter(void **state)
{
    (void)state;
    fixture->options.load_jitter_ms = UINT64_C(1) << 40;
    start();
    add_version("m", 2);
    add_version("n", 1);
    WAIT_FOR(served("n") == 1);
    assert_int_equal(state_of("m", 2), 0);
    ask_manager(EB_MODEL_LOAD, 0, EB_MODEL_DONE);
    assert_int_equal(served("m"), 2);
    add_version("m", 3);
    ask_manager(EB_MODEL_LOAD, 3, EB_MODEL_DONE);
    assert_int_equal(fixture->served_then, 3);
}

static void changes_how_it_watches_while_it_runs(void **state)
{
    (void)state;
    fixture->options.watch = EB_MANAGER_WATCH_OFF;
    start();
    add_version("m", 2);
    turn_times(50);
    assert_int_equal(served("m"), 1);
    fixture->options.watch = EB_MANAGER_WATCH_POLL;
    eb_manager_set(fixture->manager, &fixture->options);
    WAIT_FOR(served("m") == 2);
    add_version("m", 3);
    turn_times(50);
    assert_int_equal(served("m"), 2);
    fixture->options.poll_ms = 5;
    eb_manager_set(fixture->manager, &fixture->options);
    WAIT_FOR(served("m") == 3);
    fixture->options.watch = EB_MANAGER_WATCH_OFF;
    eb_manager_set(fixture->manager, &fixture->options);
    turn_times(50); /* for a scan that has begun */
    add_version("m", 4);
    turn_times(50);
    assert_int_equal(served("m"), 3);
    fixture->options.watch = EB_MANAGER_WATCH_AUTO;
    fixture->options.poll_ms = 3600000;
    eb_manager_set(fixture->manager, &fixture->options);
    WAIT_FOR(served("m") == 4);
    publish(5);
}

static void changes_what_it_loads_and_keeps_while_it_runs(void **state)
{
    (void)state;
    write_config("m", "versions: {keep: 1, keep_s: 3600}\n");
    start();
    publish(2);
    assert_int_equal(state_of("m", 1), EB_VERSION_READY);
    fixture->options.tables.row_bytes_max = 1;
    fixture->options.limits.kept_bytes_max = 1;
    fixture->options.limits.kept_versions_max = 0;
    fixture->options.load_threads = 2;
    eb_manager_set(fixture->manager, &fixture->options);
    add_version("m", 3);
    WAIT_FOR(state_of("m", 3) == EB_VERSION_FAILED);
    assert_int_equal(served("m"), 2);
    fixture->options.tables.row_bytes_max = 65536;
    eb_manager_set(fixture->manager, &fixture->options);
    publish(4);
    fixture->options.load_jitter_ms = UINT64_C(1) << 40;
    eb_manager_set(fixture->manager, &fixture->options);
    add_version("m", 5);
    turn_times(50);
    assert_int_equal(served("m"), 4);
}

static void loads_the_directory_that_has_taken_the_place_of_another(void **state)
{
    (void)state;
    start();
    atomic_store(&is_held, true);
    write_manager_table("m/.2/u.npy");
    add_version("m", 2);
    WAIT_FOR(state_of("m", 2) == EB_VERSION_LOADING);
    move_path("m/2", "m/.old");
    move_path("m/.2", "m/2");
    atomic_store(&is_held, false);
    WAIT_FOR(served("m") == 2);
    const struct eb_table_set *tables = &eb_snapshot_find(fixture->snapshot, "m")->served->tables;
    assert_null(eb_table_set_find(tables, "t"));
    assert_non_null(eb_table_set_find(tables, "u"));
}

/* The manager waits for the load, which finds memory short, and for nothing else. */
static void ends_while_a_version_lacks_memory(void **state)
{
    (void)state;
    write_config("m", "versions: {keep_s: 0}\n");
    start();
    publish(2);
    atomic_store(&short_count, 1);
    atomic_store(&is_held, true);
    add_version("m", 3);
    WAIT_FOR(state_of("m", 3) == EB_VERSION_LOADING);
    eb_manager_stop(fixture->manager);
    eb_scratch_expect(eb_manager_left(fixture->manager), "m/3");
    atomic_store(&is_held, false);
    WAIT_FOR(!eb_manager_left(fixture->manager));
    assert_true(atomic_load(&short_count) <= 0);
    assert_int_equal(served("m"), 2);
}

static void ends_though_its_readers_were_not_told(void **state)
{
    (void)state;
    write_config("m", "versions: {keep: 1, keep_s: 0}\n");
    start();
    is_snapshot_refused = true;
    add_version("m", 2);
    WAIT_FOR(is_retired_refused);
    assert_int_equal(served("m"), 1);
}

static void gives_up_a_load_at_the_end(void **state)
{
    (void)state;
    fixture->options.load_bytes_per_s = 1;
    start();
    add_version("m", 2);
    WAIT_FOR(served("m") == 2);
    add_version("m", 3);
    send_command(EB_MODEL_LOAD, "m", 3);
    WAIT_FOR(state_of("m", 3) == EB_VERSION_LOADING);
    uint64_t begun_ns = uv_hrtime();
    eb_manager_stop(fixture->manager);
    assert_int_equal(fixture->done_count, 1);
    assert_int_equal(fixture->outcome, EB_MODEL_CANCELLED);
    ask_manager(EB_MODEL_LOAD, 1, EB_MODEL_CANCELLED);
    assert_int_equal(tear_down(state), 0);
    /* At the pace that the test has set, the load would take 40 s. */
    assert_true(uv_hrtime() - begun_ns < UINT64_C(30000000000));
    assert_int_equal(set_up(state), 0);
}

static void ends_without_having_been_started(void **state)
{
    struct eb_failure failure;
    (void)state;
    assert_int_equal(eb_manager_create(&fixture->manager, &fixture->options, &fixture->uv), 0);
    assert_true(eb_manager_load(fixture->manager, &failure));
    fixture->snapshot = eb_manager_snapshot(fixture->manager);
    ask_manager(EB_MODEL_LOAD, 1, EB_MODEL_CANCELLED);
}

static void does_not_open_where_no_model_has_anything(void **state)
{
    struct eb_failure failure;
    (void)state;
    eb_scratch_write(&fixture->scratch, "n/1/t.npy", "junk", 4);
    move_path("m", ".gone");
    assert_int_equal(eb_manager_create(&fixture->manager, &fixture->options, &fixture->uv), 0);
    assert_false(eb_manager_load(fixture->manager, &failure));
    eb_scratch_expect(failure.text, "model 'n': no version can be loaded: ");
}

EB_TEST_GROUP(manager)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(serves_a_new_version_and_keeps_the_one_before),
        FIXTURE(loads_and_keeps_what_routers_claim),
        FIXTURE(loads_what_routers_claim_at_its_start),
        FIXTURE(loads_the_highest_version_if_no_router_claims_one),
        FIXTURE(waits_for_no_claims_if_a_command_asks),
        FIXTURE(goes_on_where_nothing_loads_at_a_start_with_claims),
        FIXTURE(takes_the_grace_of_claims_while_it_runs),
        FIXTURE(gives_claims_back_when_it_has_stopped),
        FIXTURE(frees_a_version_when_its_last_reader_is_done),
        FIXTURE(leaves_the_old_one_where_the_new_one_fails),
        FIXTURE(follows_models_that_come_and_go),
        FIXTURE(looks_now_and_then_where_it_is_to_poll),
        FIXTURE(looks_only_on_command_where_it_is_not_to_watch),
        FIXTURE(tells_of_a_command_when_its_readers_know),
        FIXTURE(goes_back_and_forth_with_model_yaml),
        FIXTURE(drops_what_is_spare_where_memory_is_short),
        FIXTURE(tries_again_when_a_version_has_become_spare),
        FIXTURE(says_that_memory_is_short_and_leaves_all_as_it_is),
        FIXTURE(tries_again_when_memory_is_back),
        FIXTURE(tries_again_what_was_hindered_after_a_pause),
        FIXTURE(waits_for_what_is_about_to_be_freed),
        FIXTURE(follows_model_yaml_while_a_version_is_loaded),
        FIXTURE(reads_model_yaml_before_it_serves_what_was_loaded),
        FIXTURE(gives_up_a_load_that_is_wanted_no_longer),
        FIXTURE(loads_two_models_at_once_and_frees_a_third),
        FIXTURE(a_load_that_lacks_memory_waits_for_the_other),
        FIXTURE(a_command_does_not_wait_for_the_jitter),
        FIXTURE(changes_how_it_watches_while_it_runs),
        FIXTURE(changes_what_it_loads_and_keeps_while_it_runs),
        FIXTURE(loads_the_directory_that_has_taken_the_place_of_another),
        FIXTURE(ends_while_a_version_lacks_memory),
        FIXTURE(ends_though_its_readers_were_not_told),
        FIXTURE(gives_up_a_load_at_the_end),
        FIXTURE(ends_without_having_been_started),
        FIXTURE(does_not_open_where_no_model_has_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
