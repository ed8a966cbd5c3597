/* Tests a manager that a router's flip directs. The test plays the flip. */
#include "server/publish/manager.h"

#include "tests/lib/faults.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NPY_5X2 "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }"
#define TIMEOUT_MS 20000
#define TOLD_BYTES 1024

/* Whether loads block when they ask how much memory is available. */
static atomic_bool is_load_held;
/* How often the list of models will still be refused. */
static unsigned refused_lists;

struct eb_routed_model *__real_eb_registry_list_routed(
    const struct eb_registry *registry, size_t *count);
struct eb_routed_model *__wrap_eb_registry_list_routed(
    const struct eb_registry *registry, size_t *count);

struct eb_routed_model *__wrap_eb_registry_list_routed(
    const struct eb_registry *registry, size_t *count)
{
    if (refused_lists > 0) {
        refused_lists--;
        return NULL;
    }
    return __real_eb_registry_list_routed(registry, count);
}

static uint64_t tell_memory_unless_held(void)
{
    while (atomic_load(&is_load_held)) {
        uv_sleep(1);
    }
    return UINT64_MAX;
}

/* A router's manager and one reader, both on the test's loop. */
struct fixture {
    struct eb_scratch scratch;
    struct eb_manager_options options;
    struct eb_manager *manager;
    uv_loop_t uv;
    uv_loop_t own_uv;          /* of load_short */
    struct eb_mailbox mailbox; /* the reader's mailbox */
    struct eb_publisher_reader reader;
    struct eb_snapshot *snapshot;
    /* What the flip was told last and first, and in which order versions of "m" were first loaded.
     */
    unsigned told_count;
    char told[TOLD_BYTES];
    char told_first[TOLD_BYTES];
    char loaded[64];
    /* What the flip does when it is told; NULL: nothing. */
    void (*choose)(const struct eb_routed_model *model);
    bool is_settled;
    uv_timer_t late; /* lets the flip choose after a while */
    /* The last command and its result. */
    struct eb_model_command command;
    unsigned done_count;
    enum eb_model_outcome outcome;
    uint64_t served_then; /* version that the snapshot served when the command was done */
    char text[EB_FAILURE_BYTES];
};

/* On the heap: the manager's threads may outlive a failed test. */
static struct fixture *fixture;

/* ---- the flip ---- */

__attribute__((format(printf, 2, 3))) static void append_text(
    char text[TOLD_BYTES], const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, TOLD_BYTES - used, format, arguments);
    va_end(arguments);
}

static void note_loaded(const struct eb_routed_version *version)
{
    char name[32];
    snprintf(name, sizeof name, " %d", (int)version->number);
    if (version->is_loaded && !strstr(fixture->loaded, name)) {
        strcat(fixture->loaded, name);
    }
}

static void on_models(void *context, const struct eb_routed_model *models, size_t count)
{
    assert_ptr_equal(context, fixture);
    fixture->told_count++;
    fixture->told[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const struct eb_routed_model *model = &models[i];
        append_text(fixture->told, "%s%s serve %d served %d:", i > 0 ? "; " : "", model->name,
            (int)model->serve, (int)model->served);
        for (size_t k = 0; k < model->version_count; k++) {
            const struct eb_routed_version *version = &model->versions[k];
            append_text(fixture->told, " %d%s%s%s%s%s", (int)version->number,
                version->is_on_disk ? "" : " gone", version->is_loaded ? " loaded" : "",
                version->is_failed ? " failed" : "", version->is_held ? " held" : "",
                version->is_labelled ? " labelled" : "");
            if (strcmp(model->name, "m") == 0) {
                note_loaded(version);
            }
        }
    }
    if (fixture->told_count == 1) {
        strcpy(fixture->told_first, fixture->told);
    }
    for (size_t i = 0; i < count && fixture->choose; i++) {
        fixture->choose(&models[i]);
    }
}

static void route_model(
    const char *model, uint64_t served, size_t wanted_count, const uint64_t *wanted)
{
    struct eb_routed_choice choice = {
        .model = model, .served = served, .wanted_count = wanted_count};
    memcpy(choice.wanted, wanted, wanted_count * sizeof *wanted);
    eb_manager_route(fixture->manager, &choice);
}

#define ROUTE(served, ...)                                                                         \
    route_model("m", served, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),                 \
        (uint64_t[]){__VA_ARGS__})

/* Wants the version to be served, or the highest, and serves it once it is loaded. */
static void choose_simply(const struct eb_routed_model *model)
{
    struct eb_routed_choice choice = {.model = model->name, .served = model->served};
    for (size_t i = 0; i < model->version_count; i++) {
        const struct eb_routed_version *version = &model->versions[i];
        if (!version->is_failed && (model->serve == 0 || version->number == model->serve)) {
            choice.wanted[0] = version->number;
            choice.wanted_count = 1;
            choice.served = version->is_loaded ? version->number : model->served;
        }
    }
    if (choice.served != 0 && choice.served != choice.wanted[0]) {
        choice.wanted[choice.wanted_count++] = choice.served;
    }
    eb_manager_route(fixture->manager, &choice);
}

/* Never agrees with itself. */
static void choose_otherwise(const struct eb_routed_model *model)
{
    uint64_t wanted = 100 + fixture->told_count;
    route_model(model->name, model->served, 1, &wanted);
}

/* ---- the manager ---- */

static struct eb_snapshot *swap_router_reader(void *context, struct eb_snapshot *snapshot)
{
    struct eb_snapshot *former = fixture->snapshot;
    (void)context;
    fixture->snapshot = snapshot;
    return former;
}

static void write_router_table(const char *name)
{
    eb_scratch_write_npy(&fixture->scratch, name, NPY_5X2, 40);
}

static void write_junk_version(const char *name)
{
    eb_scratch_write(&fixture->scratch, name, "junk", 4);
}

static void write_model_yaml(const char *text)
{
    eb_scratch_write_text(&fixture->scratch, "m/model.yaml", text);
}

static void move_directory(const char *from, const char *to)
{
    char paths[2][EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&fixture->scratch, from, paths[0]);
    eb_scratch_path(&fixture->scratch, to, paths[1]);
    assert_int_equal(rename(paths[0], paths[1]), 0);
}

/* Makes a version of "m" under another name and then renames it. */
static void add_router_version(const char *name)
{
    write_router_table("m/.new/t.npy");
    move_directory("m/.new", name);
}

static int set_up(void **state)
{
    (void)state;
    fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    eb_scratch_init(&fixture->scratch);
    write_router_table("m/1/t.npy");
    write_router_table("m/2/t.npy");
    fixture->options = (struct eb_manager_options){
        .directory = fixture->scratch.root,
        .is_router = true,
        .tables = {.row_bytes_max = 65536, .name_bytes_max = 255},
        .poll_ms = 3600000,
        .load_bytes_per_s = UINT64_C(1) << 40,
        .on_models = on_models,
        .context = fixture,
    };
    refused_lists = 0;
    atomic_store(&is_load_held, false);
    eb_faults.eb_machine_available_bytes = tell_memory_unless_held;
    return uv_loop_init(&fixture->uv) + eb_mailbox_open(&fixture->mailbox, &fixture->uv);
}

static void load_router(void)
{
    struct eb_failure failure = {.text = ""};
    assert_int_equal(eb_manager_create(&fixture->manager, &fixture->options, &fixture->uv), 0);
    if (!eb_manager_load(fixture->manager, &failure)) {
        fail_msg("%s", failure.text);
    }
    fixture->snapshot = eb_manager_snapshot(fixture->manager);
    assert_non_null(fixture->snapshot);
}

static void start_router(void)
{
    load_router();
    fixture->reader = (struct eb_publisher_reader){&fixture->mailbox, swap_router_reader, NULL};
    assert_int_equal(eb_manager_start(fixture->manager, &fixture->reader, 1), 0);
}

static void on_reader_closed(uv_timer_t *timer)
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
    atomic_store(&is_load_held, false);
    fixture->choose = NULL;
    eb_manager_stop(fixture->manager);
    uv_timer_init(&fixture->uv, &timer);
    uv_timer_start(&timer, on_reader_closed, 100, 0);
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    while (uv_run(&fixture->uv, UV_RUN_NOWAIT) != 0) {
        if (uv_hrtime() > deadline_ns) {
            print_error("the manager does not end: %s\n", eb_manager_left(fixture->manager));
            return -1; /* the manager's threads still use the fixture */
        }
        uv_sleep(1);
    }
    eb_manager_destroy(fixture->manager);
    eb_faults_disarm();
    eb_scratch_deinit(&fixture->scratch);
    int rc = uv_loop_close(&fixture->uv);
    free(fixture);
    return rc;
}

static uint64_t served_by_router(void)
{
    const struct eb_snapshot_model *model = eb_snapshot_find(fixture->snapshot, "m");
    return model && model->served ? model->served->version : 0;
}

/* Returns the state of a version of "m", or 0 if the version is not in the snapshot. */
static enum eb_version_state state_on_router(uint64_t number)
{
    const struct eb_snapshot_model *model = eb_snapshot_find(fixture->snapshot, "m");
    for (size_t i = 0; model && i < model->version_count; i++) {
        if (model->versions[i].number == number) {
            return model->versions[i].state;
        }
    }
    return 0;
}

static void turn_router(int count)
{
    for (int i = 0; i < count; i++) {
        uv_run(&fixture->uv, UV_RUN_NOWAIT);
        uv_sleep(1);
    }
}

#define WAIT_FOR(condition)                                                                        \
    do {                                                                                           \
        uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;                       \
        while (!(condition) && uv_hrtime() < deadline_ns) {                                        \
            turn_router(1);                                                                        \
        }                                                                                          \
        assert_true(condition);                                                                    \
    } while (0)

static void on_router_done(
    struct eb_model_command *command, enum eb_model_outcome outcome, const char *text)
{
    (void)command;
    fixture->done_count++;
    fixture->outcome = outcome;
    fixture->served_then = served_by_router();
    snprintf(fixture->text, sizeof fixture->text, "%s", text);
}

static void send_to_router(enum eb_model_verb verb, uint64_t version)
{
    fixture->done_count = 0;
    fixture->command = (struct eb_model_command){
        .verb = verb, .model = "m", .version = version, .on_done = on_router_done};
    eb_manager_ask(fixture->manager, &fixture->command);
}

static void expect_answer(enum eb_model_outcome outcome, const char *part)
{
    WAIT_FOR(fixture->done_count == 1);
    if (fixture->outcome != outcome) {
        fail_msg("outcome %d: %s", fixture->outcome, fixture->text);
    }
    eb_scratch_expect(fixture->text, part);
}

/* ---- the start ---- */

static void tells_of_all_models_and_loads_none_by_itself(void **state)
{
    (void)state;
    write_router_table("n/7/t.npy");
    eb_scratch_write_text(&fixture->scratch, "n/model.yaml", "versions: {serve: 7}\n");
    load_router();
    assert_string_equal(fixture->told, "m serve 0 served 0: 1 2; n serve 7 served 0: 7");
    assert_int_equal(fixture->snapshot->loads.done, 0);
    assert_int_equal(served_by_router(), 0);
}

static void does_not_load_what_is_published_later_by_itself(void **state)
{
    (void)state;
    start_router();
    add_router_version("m/10");
    WAIT_FOR(strcmp(fixture->told, "m serve 0 served 0: 1 2 10") == 0);
    turn_router(20);
    assert_int_equal(fixture->snapshot->loads.done, 0);
}

static void serves_from_the_start_what_is_chosen_at_once(void **state)
{
    (void)state;
    fixture->choose = choose_simply;
    load_router();
    assert_int_equal(served_by_router(), 2);
    assert_string_equal(fixture->told, "m serve 0 served 2: 1 2 loaded");
    assert_int_equal(fixture->snapshot->loads.done, 1);
}

static void chooses_again_at_the_start_where_a_version_fails(void **state)
{
    (void)state;
    write_junk_version("m/3/t.npy");
    write_junk_version("m/4/t.npy");
    fixture->choose = choose_simply;
    load_router();
    assert_int_equal(served_by_router(), 2);
    assert_string_equal(fixture->told, "m serve 0 served 2: 1 2 loaded 3 failed 4 failed");
}

static bool is_fixture_settled(const void *context)
{
    assert_ptr_equal(context, fixture);
    return fixture->is_settled;
}

/* Chooses version 2 late, and serves it once it is loaded. Only then is it settled. */
static void on_late_choice(uv_timer_t *timer)
{
    if (!strstr(fixture->loaded, " 2")) {
        ROUTE(0, 2);
        return;
    }
    ROUTE(2, 2);
    fixture->is_settled = true;
    uv_close((uv_handle_t *)timer, NULL);
}

static void on_late_nothing(uv_timer_t *timer)
{
    fixture->is_settled = true;
    uv_close((uv_handle_t *)timer, NULL);
}

static void load_late(uv_timer_cb on_timer)
{
    fixture->options.is_settled = is_fixture_settled;
    uv_timer_init(&fixture->uv, &fixture->late);
    uv_timer_start(&fixture->late, on_timer, 20, 1);
    load_router();
    assert_true(fixture->is_settled);
}

static void waits_at_the_start_for_a_late_choice(void **state)
{
    (void)state;
    load_late(on_late_choice);
    assert_int_equal(served_by_router(), 2);
    assert_string_equal(fixture->told, "m serve 0 served 2: 1 2 loaded");
}

static void ends_the_start_when_nothing_is_chosen(void **state)
{
    (void)state;
    load_late(on_late_nothing);
    assert_int_equal(served_by_router(), 0);
    assert_int_equal(fixture->snapshot->loads.done, 0);
}

static void loads_labelled_versions_at_the_start(void **state)
{
    (void)state;
    write_model_yaml("versions: {labels: [{name: old, version: 1}]}\n");
    load_router();
    assert_int_equal(state_on_router(1), EB_VERSION_READY);
    assert_string_equal(fixture->told_first, "m serve 0 served 0: 1 labelled 2");
    assert_string_equal(fixture->told, "m serve 0 served 0: 1 loaded labelled 2");
    assert_int_equal(eb_snapshot_find_label(eb_snapshot_find(fixture->snapshot, "m"), "old"), 1);
}

static void starts_where_nothing_can_be_loaded(void **state)
{
    (void)state;
    move_directory("m", ".gone");
    write_junk_version("m/5/t.npy");
    write_model_yaml("tables: nonsense\n");
    fixture->choose = choose_simply;
    load_router();
    assert_string_equal(fixture->told, "m serve 0 served 0:");
}

static void does_not_start_on_an_empty_repository(void **state)
{
    struct eb_failure failure = {.text = ""};
    (void)state;
    move_directory("m", ".gone");
    assert_int_equal(eb_manager_create(&fixture->manager, &fixture->options, &fixture->uv), 0);
    assert_false(eb_manager_load(fixture->manager, &failure));
    eb_scratch_expect(failure.text, "there is no model in it");
    assert_int_equal(fixture->told_count, 0);
}

static void ends_the_first_load_though_the_flip_never_agrees(void **state)
{
    (void)state;
    fixture->choose = choose_otherwise;
    start_router();
    assert_in_range(fixture->told_count, 2, 20);
}

/* Creates a manager on a loop of its own, and loads with the `number`-th allocation failing.
 * Returns whether there were fewer allocations. */
static bool load_short(unsigned number)
{
    struct eb_failure failure = {.text = ""};
    assert_int_equal(uv_loop_init(&fixture->own_uv), 0);
    assert_int_equal(eb_manager_create(&fixture->manager, &fixture->options, &fixture->own_uv), 0);
    eb_faults_fail_allocation(number);
    bool is_good = eb_manager_load(fixture->manager, &failure);
    bool is_whole = eb_faults_allocation_count() < number;
    eb_faults_fail_allocation(0);
    fixture->snapshot = eb_manager_snapshot(fixture->manager);
    assert_int_equal(is_good, !!fixture->snapshot);
    assert_true(is_good || !is_whole);
    if (!is_good) {
        eb_scratch_expect(failure.text, "memory");
    }
    return is_whole;
}

static void end_load_short(void)
{
    eb_manager_stop(fixture->manager);
    assert_int_equal(uv_run(&fixture->own_uv, UV_RUN_DEFAULT), 0);
    eb_manager_destroy(fixture->manager);
    fixture->manager = NULL;
    assert_int_equal(uv_loop_close(&fixture->own_uv), 0);
}

static void goes_on_where_memory_runs_out_at_the_start(void **state)
{
    (void)state;
    unsigned tries = 1;
    write_model_yaml("versions: {labels: [{name: old, version: 1}]}\n");
    fixture->choose = choose_simply;
    while (!load_short(tries)) {
        end_load_short();
        tries++;
    }
    assert_int_equal(served_by_router(), 2);
    assert_int_equal(state_on_router(1), EB_VERSION_READY);
    end_load_short();
    assert_true(tries > 20);
}

/* ---- choices ---- */

static void follows_the_choices(void **state)
{
    (void)state;
    start_router();
    ROUTE(0, 1);
    WAIT_FOR(state_on_router(1) == EB_VERSION_READY);
    assert_string_equal(fixture->told, "m serve 0 served 0: 1 loaded 2");
    ROUTE(1, 1);
    assert_string_equal(fixture->told, "m serve 0 served 1: 1 loaded 2");
    WAIT_FOR(served_by_router() == 1);
    add_router_version("m/3");
    WAIT_FOR(strstr(fixture->told, " 3"));
    ROUTE(1, 1, 3);
    WAIT_FOR(state_on_router(3) == EB_VERSION_READY);
    assert_int_equal(served_by_router(), 1);
    ROUTE(3, 3, 1);
    WAIT_FOR(served_by_router() == 3);
    ROUTE(1, 1);
    WAIT_FOR(served_by_router() == 1);
    assert_int_equal(fixture->snapshot->loads.done, 2);
}

static void follows_choices_that_are_made_while_it_tells(void **state)
{
    (void)state;
    start_router();
    fixture->choose = choose_simply;
    add_router_version("m/3");
    WAIT_FOR(served_by_router() == 3);
    /* Version 2 may have been loaded before. */
    WAIT_FOR(strstr(fixture->told, " served 3: 1 2") && strstr(fixture->told, " 3 loaded"));
    write_model_yaml("versions: {serve: 1}\n");
    WAIT_FOR(served_by_router() == 1);
    /* The flip disagrees at once with what the test has chosen for it. */
    ROUTE(3, 3, 1);
    assert_non_null(strstr(fixture->told, "m serve 1 served 1: 1 loaded 2"));
    assert_non_null(strstr(fixture->told, " 3 loaded"));
}

static void loads_in_the_order_of_the_choice(void **state)
{
    (void)state;
    write_router_table("m/3/t.npy");
    write_router_table("m/4/t.npy");
    write_model_yaml("versions: {labels: [{name: old, version: 4}]}\n");
    start_router();
    assert_string_equal(fixture->loaded, " 4");
    ROUTE(0, 2, 3, 1);
    WAIT_FOR(state_on_router(1) == EB_VERSION_READY);
    assert_string_equal(fixture->loaded, " 4 2 3 1");
}

static void changes_to_another_choice_during_a_load(void **state)
{
    (void)state;
    start_router();
    atomic_store(&is_load_held, true);
    ROUTE(0, 2);
    WAIT_FOR(state_on_router(2) == EB_VERSION_LOADING);
    ROUTE(0, 1);
    atomic_store(&is_load_held, false);
    WAIT_FOR(state_on_router(1) == EB_VERSION_READY);
    assert_int_equal(state_on_router(2), 0);
    assert_string_equal(fixture->loaded, " 1");
}

static void goes_on_with_a_load_that_is_wanted_later(void **state)
{
    (void)state;
    start_router();
    atomic_store(&is_load_held, true);
    ROUTE(0, 2);
    WAIT_FOR(state_on_router(2) == EB_VERSION_LOADING);
    ROUTE(0, 1, 2);
    atomic_store(&is_load_held, false);
    WAIT_FOR(state_on_router(1) == EB_VERSION_READY);
    assert_string_equal(fixture->loaded, " 2 1");
}

static void serves_on_where_the_choice_cannot_be_loaded(void **state)
{
    (void)state;
    write_junk_version("m/3/t.npy");
    start_router();
    ROUTE(0, 1);
    WAIT_FOR(state_on_router(1) == EB_VERSION_READY);
    ROUTE(1, 1);
    ROUTE(3, 3, 2, 1);
    WAIT_FOR(state_on_router(2) == EB_VERSION_READY);
    WAIT_FOR(state_on_router(3) == EB_VERSION_FAILED);
    assert_string_equal(fixture->told, "m serve 0 served 1: 1 loaded 2 loaded 3 failed");
    ROUTE(9, 1);
    turn_router(20);
    assert_int_equal(served_by_router(), 1);
    /* When its files have changed, it is tried again, and served. */
    ROUTE(3, 3);
    move_directory("m/3", "m/.old");
    add_router_version("m/3");
    WAIT_FOR(served_by_router() == 3);
}

static void drops_what_is_no_longer_wanted(void **state)
{
    (void)state;
    write_model_yaml("versions: {keep: 1, keep_s: 0}\n");
    start_router();
    ROUTE(0, 1, 2);
    WAIT_FOR(state_on_router(2) == EB_VERSION_READY);
    ROUTE(1, 1, 2);
    turn_router(20);
    assert_int_equal(state_on_router(2), EB_VERSION_READY);
    ROUTE(1, 1);
    WAIT_FOR(state_on_router(2) == 0);
    assert_string_equal(fixture->told, "m serve 0 served 1: 1 loaded 2");
    /* The served version stays until another one is served. */
    ROUTE(1, 2);
    WAIT_FOR(state_on_router(2) == EB_VERSION_READY);
    assert_int_equal(state_on_router(1), EB_VERSION_SERVING);
    ROUTE(2, 2);
    WAIT_FOR(state_on_router(1) == 0);
    write_model_yaml("versions: {keep: 1, keep_s: 3600}\n");
    ROUTE(1, 1, 2);
    WAIT_FOR(served_by_router() == 1);
    ROUTE(1, 1);
    turn_router(50);
    assert_int_equal(state_on_router(2), EB_VERSION_READY);
}

static void ignores_the_choice_for_an_unknown_model(void **state)
{
    (void)state;
    start_router();
    unsigned told_count = fixture->told_count;
    route_model("n", 1, 1, (uint64_t[]){1});
    assert_int_equal(fixture->told_count, told_count);
    write_router_table("n/1/t.npy");
    WAIT_FOR(strcmp(fixture->told, "m serve 0 served 0: 1 2; n serve 0 served 0: 1") == 0);
    turn_router(20);
    assert_int_equal(fixture->snapshot->loads.done, 0);
}

static void follows_a_model_that_goes_and_comes_back(void **state)
{
    (void)state;
    write_router_table("n/1/t.npy");
    write_model_yaml("versions: {keep_s: 0}\n");
    fixture->options.poll_ms = 5;
    fixture->choose = choose_simply;
    start_router();
    assert_int_equal(served_by_router(), 2);
    move_directory("m", ".m");
    WAIT_FOR(strcmp(fixture->told, "n serve 0 served 1: 1 loaded") == 0);
    WAIT_FOR(!eb_snapshot_find(fixture->snapshot, "m"));
    move_directory(".m", "m");
    WAIT_FOR(served_by_router() == 2);
}

static void serves_on_while_the_repository_cannot_be_read(void **state)
{
    (void)state;
    fixture->options.watch = EB_MANAGER_WATCH_POLL;
    fixture->options.poll_ms = 5;
    fixture->choose = choose_simply;
    start_router();
    move_directory("m", ".m");
    turn_router(50);
    assert_int_equal(served_by_router(), 2);
    assert_string_equal(fixture->told, "m serve 0 served 2: 1 2 loaded");
}

static void turns_to_other_events_though_the_flip_never_agrees(void **state)
{
    (void)state;
    start_router();
    fixture->choose = choose_otherwise;
    unsigned told_count = fixture->told_count;
    ROUTE(0, 1);
    assert_in_range(fixture->told_count, told_count + 2, told_count + 20);
    send_to_router(EB_MODEL_LOAD, 1);
    expect_answer(EB_MODEL_DONE, "version 1 is in memory");
    /* It tries again later even if nothing else happens. */
    turn_router(5);
    told_count = fixture->told_count;
    WAIT_FOR(fixture->told_count > told_count);
}

static void tells_again_where_memory_ran_out(void **state)
{
    (void)state;
    refused_lists = 2;
    start_router();
    WAIT_FOR(strcmp(fixture->told, "m serve 0 served 0: 1 2") == 0);
    fixture->choose = choose_simply;
    refused_lists = 1;
    ROUTE(0, 1);
    WAIT_FOR(served_by_router() == 2);
    assert_int_equal(refused_lists, 0);
}

static void takes_choices_when_it_has_stopped(void **state)
{
    (void)state;
    start_router();
    atomic_store(&is_load_held, true);
    ROUTE(0, 2);
    WAIT_FOR(state_on_router(2) == EB_VERSION_LOADING);
    unsigned told_count = fixture->told_count;
    eb_manager_stop(fixture->manager);
    ROUTE(1, 1);
    atomic_store(&is_load_held, false);
    WAIT_FOR(!eb_manager_left(fixture->manager));
    ROUTE(2, 2);
    assert_int_equal(fixture->told_count, told_count);
}

/* ---- commands ---- */

static void answers_a_command_to_serve_once_the_flip_has_served_it(void **state)
{
    (void)state;
    fixture->choose = choose_simply;
    start_router();
    send_to_router(EB_MODEL_SERVE, 1);
    expect_answer(EB_MODEL_DONE, "version 1 is served");
    assert_int_equal(fixture->served_then, 1);
    assert_string_equal(fixture->told, "m serve 1 served 1: 1 loaded 2 loaded");
    send_to_router(EB_MODEL_SERVE, 0);
    expect_answer(EB_MODEL_DONE, "version ");
    WAIT_FOR(served_by_router() == 2);
    /* The flip may take its time. */
    fixture->choose = NULL;
    send_to_router(EB_MODEL_SERVE, 1);
    turn_router(50);
    assert_int_equal(fixture->done_count, 0);
    assert_string_equal(fixture->told, "m serve 1 served 2: 1 loaded 2 loaded");
    ROUTE(1, 1);
    expect_answer(EB_MODEL_DONE, "version 1 is served");
    assert_int_equal(fixture->served_then, 1);
}

static void takes_a_command_back_whose_version_fails(void **state)
{
    (void)state;
    fixture->choose = choose_simply;
    start_router();
    write_junk_version("m/.3/t.npy");
    move_directory("m/.3", "m/3");
    WAIT_FOR(strstr(fixture->told, "3 failed"));
    send_to_router(EB_MODEL_SERVE, 3);
    WAIT_FOR(strstr(fixture->told, "serve 3 "));
    expect_answer(EB_MODEL_FAILED, "m/3/t.npy: byte 0: not an npy");
    WAIT_FOR(strcmp(fixture->told, "m serve 0 served 2: 1 2 loaded 3 failed") == 0);
    send_to_router(EB_MODEL_SERVE, 4);
    expect_answer(EB_MODEL_NOT_FOUND, "no version 4");
}

static void takes_a_command_back_that_the_flip_does_not_carry_out(void **state)
{
    (void)state;
    fixture->options.serve_wait_ms = 3600000;
    start_router();
    ROUTE(0, 2);
    WAIT_FOR(state_on_router(2) == EB_VERSION_READY);
    fixture->options.serve_wait_ms = 1000;
    eb_manager_set(fixture->manager, &fixture->options);
    uint64_t begun_ns = uv_hrtime();
    send_to_router(EB_MODEL_SERVE, 2);
    assert_string_equal(fixture->told, "m serve 2 served 0: 1 2 loaded");
    expect_answer(EB_MODEL_FAILED, "version 2 was not complete within 1 s: at least one of");
    assert_in_range(uv_hrtime() - begun_ns, UINT64_C(900000000), UINT64_C(15000000000));
    WAIT_FOR(strcmp(fixture->told, "m serve 0 served 0: 1 2 loaded") == 0);
}

static void holds_and_unloads_on_command(void **state)
{
    (void)state;
    start_router();
    send_to_router(EB_MODEL_LOAD, 0);
    expect_answer(EB_MODEL_FAILED, "no version of model \"m\" is complete yet");
    send_to_router(EB_MODEL_LOAD, 1);
    expect_answer(EB_MODEL_DONE, "version 1 is in memory");
    assert_string_equal(fixture->told, "m serve 0 served 0: 1 loaded held 2");
    ROUTE(0, 1);
    send_to_router(EB_MODEL_UNLOAD, 1);
    expect_answer(EB_MODEL_DONE, "version 1 no longer answers requests");
    turn_router(20);
    assert_string_equal(fixture->told, "m serve 0 served 0: 1 2");
    ROUTE(0, 2);
    WAIT_FOR(state_on_router(2) == EB_VERSION_READY);
    send_to_router(EB_MODEL_UNLOAD, 2);
    expect_answer(EB_MODEL_REFUSED, "version 2 is to be served next, or requests name it");
}

static void ends_while_a_command_waits_for_the_flip(void **state)
{
    (void)state;
    start_router();
    send_to_router(EB_MODEL_SERVE, 1);
    WAIT_FOR(strcmp(fixture->told, "m serve 1 served 0: 1 2") == 0);
    assert_int_equal(fixture->done_count, 0);
    eb_manager_stop(fixture->manager);
    assert_int_equal(fixture->done_count, 1);
    assert_int_equal(fixture->outcome, EB_MODEL_CANCELLED);
}

EB_TEST_GROUP(router)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(tells_of_all_models_and_loads_none_by_itself),
        FIXTURE(does_not_load_what_is_published_later_by_itself),
        FIXTURE(serves_from_the_start_what_is_chosen_at_once),
        FIXTURE(chooses_again_at_the_start_where_a_version_fails),
        FIXTURE(waits_at_the_start_for_a_late_choice),
        FIXTURE(ends_the_start_when_nothing_is_chosen),
        FIXTURE(loads_labelled_versions_at_the_start),
        FIXTURE(starts_where_nothing_can_be_loaded),
        FIXTURE(does_not_start_on_an_empty_repository),
        FIXTURE(ends_the_first_load_though_the_flip_never_agrees),
        FIXTURE(goes_on_where_memory_runs_out_at_the_start),
        FIXTURE(follows_the_choices),
        FIXTURE(follows_choices_that_are_made_while_it_tells),
        FIXTURE(loads_in_the_order_of_the_choice),
        FIXTURE(changes_to_another_choice_during_a_load),
        FIXTURE(goes_on_with_a_load_that_is_wanted_later),
        FIXTURE(serves_on_where_the_choice_cannot_be_loaded),
        FIXTURE(drops_what_is_no_longer_wanted),
        FIXTURE(ignores_the_choice_for_an_unknown_model),
        FIXTURE(follows_a_model_that_goes_and_comes_back),
        FIXTURE(serves_on_while_the_repository_cannot_be_read),
        FIXTURE(turns_to_other_events_though_the_flip_never_agrees),
        FIXTURE(tells_again_where_memory_ran_out),
        FIXTURE(takes_choices_when_it_has_stopped),
        FIXTURE(answers_a_command_to_serve_once_the_flip_has_served_it),
        FIXTURE(takes_a_command_back_whose_version_fails),
        FIXTURE(takes_a_command_back_that_the_flip_does_not_carry_out),
        FIXTURE(holds_and_unloads_on_command),
        FIXTURE(ends_while_a_command_waits_for_the_flip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
