#include "server/publish/command_queue.h"

#include "proto/list.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOW_MS 1000

/* Model "m" has versions 1 to 3 on disk and serves version 3. The test itself does the loading. */
struct fixture {
    struct eb_repository seen;
    struct eb_registry registry;
    struct eb_command_queue queue;
};

static struct fixture fixture;

struct asked {
    struct eb_model_command command;
    unsigned done_count;
    enum eb_model_outcome outcome;
    char text[EB_FAILURE_BYTES];
    uint64_t done_bytes;
};

static void on_command_done(
    struct eb_model_command *command, enum eb_model_outcome outcome, const char *text)
{
    struct asked *asked = EB_CONTAINER_OF(command, struct asked, command);
    asked->done_count++;
    asked->outcome = outcome;
    strcpy(asked->text, text);
}

static void on_progress(struct eb_model_command *command, uint64_t done_bytes, uint64_t total_bytes)
{
    assert_int_equal(total_bytes, 100);
    (EB_CONTAINER_OF(command, struct asked, command))->done_bytes = done_bytes;
}

static void put(uint64_t number)
{
    struct eb_model_version *loaded = calloc(1, sizeof *loaded);
    loaded->model = strdup("m");
    loaded->version = number;
    atomic_init(&loaded->references, 1);
    eb_registry_note_loaded(&fixture.registry, loaded, NOW_MS);
}

static void decide(void)
{
    uint64_t wake_ms;
    eb_registry_decide(&fixture.registry, NOW_MS, &wake_ms);
    eb_command_queue_finish(&fixture.queue);
}

/* Returns the number of the next version to load, or 0 if there is none. */
static uint64_t next(void)
{
    struct eb_registry_version *version;
    return eb_registry_next(&fixture.registry, &version) ? version->number : 0;
}

static int set_up(void **state)
{
    static const char yaml[] = "versions: {labels: [{name: stable, version: 2}]}\n";
    struct eb_scratch scratch;
    struct eb_failure failure;
    (void)state;
    fixture = (struct fixture){0};
    fixture.queue.registry = &fixture.registry;
    eb_scratch_init(&scratch);
    eb_scratch_make_directory(&scratch, "m/1");
    eb_scratch_make_directory(&scratch, "m/2");
    eb_scratch_make_directory(&scratch, "m/3");
    eb_scratch_write_text(&scratch, "m/model.yaml", yaml);
    assert_true(eb_repository_scan(scratch.root,
        &(struct eb_repository_terms){.name_bytes_max = 255}, NULL, &fixture.seen, &failure));
    assert_true(eb_registry_update(&fixture.registry, &fixture.seen));
    eb_scratch_deinit(&scratch);
    assert_int_equal(next(), 3);
    put(3);
    assert_int_equal(next(), 2);
    put(2);
    decide();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(fixture.queue.first);
    eb_registry_deinit(&fixture.registry);
    eb_repository_deinit(&fixture.seen);
    return 0;
}

static struct eb_registry_model *model(void)
{
    return eb_registry_find(&fixture.registry, "m");
}

/* Makes a scan of the disk that began after the commands arrived. */
static void look(void)
{
    fixture.queue.scans_begun++;
    fixture.queue.scans_done++;
}

static void push_command(struct asked *asked, enum eb_model_verb verb, uint64_t version)
{
    *asked = (struct asked){.command = {.verb = verb,
                                .model = "m",
                                .version = version,
                                .on_done = on_command_done,
                                .on_progress = on_progress}};
    eb_command_queue_push(&fixture.queue, &asked->command);
    look();
    eb_command_queue_begin(&fixture.queue);
    decide();
}

static void expect(const struct asked *asked, enum eb_model_outcome outcome, const char *part)
{
    assert_int_equal(asked->done_count, 1);
    assert_int_equal(asked->outcome, outcome);
    eb_scratch_expect(asked->text, part);
}

static void loads_a_version_that_stays_until_it_is_unloaded(void **state)
{
    (void)state;
    struct asked asked;
    push_command(&asked, EB_MODEL_LOAD, 1);
    assert_int_equal(asked.done_count, 0);
    assert_int_equal(next(), 1);
    eb_command_queue_tell(&fixture.queue, "m", 40, 100);
    eb_command_queue_tell(&fixture.queue, "n", 50, 100);
    assert_int_equal(asked.done_bytes, 40);
    put(1);
    decide();
    expect(&asked, EB_MODEL_DONE, "version 1 is in memory");
    assert_int_equal(model()->served->version, 3);
    push_command(&asked, EB_MODEL_UNLOAD, 1);
    expect(&asked, EB_MODEL_DONE, "version 1 no longer answers requests");
    assert_null(eb_registry_find_version(model(), 1)->loaded);
    assert_int_equal(next(), 0);
    push_command(&asked, EB_MODEL_UNLOAD, 1);
    expect(&asked, EB_MODEL_NOT_FOUND, "version 1 is not in memory");
}

static void does_not_unload_what_routers_claim(void **state)
{
    static const struct eb_claim claim = {.model = "m", .version = 1};
    (void)state;
    struct eb_claim_set set = {.router = "router-1", .count = 1, .claims = &claim};
    struct asked asked;
    assert_true(eb_registry_claim(&fixture.registry, &set));
    push_command(&asked, EB_MODEL_UNLOAD, 1);
    expect(&asked, EB_MODEL_REFUSED, "version 1 is claimed by routers (router-1)");
    assert_int_equal(next(), 1);
    put(1);
    decide();
    push_command(&asked, EB_MODEL_UNLOAD, 1);
    expect(&asked, EB_MODEL_REFUSED, "version 1 is claimed by routers (router-1)");
    eb_registry_unclaim(&fixture.registry, &set);
    push_command(&asked, EB_MODEL_UNLOAD, 1);
    expect(&asked, EB_MODEL_DONE, "version 1 no longer answers requests");
}

static void serves_an_older_version_and_returns_to_the_highest(void **state)
{
    (void)state;
    struct asked asked;
    push_command(&asked, EB_MODEL_SERVE, 2);
    expect(&asked, EB_MODEL_DONE, "version 2 is served");
    push_command(&asked, EB_MODEL_SERVE, 1);
    assert_int_equal(asked.done_count, 0);
    assert_int_equal(model()->served->version, 2);
    assert_int_equal(next(), 1);
    put(1);
    decide();
    expect(&asked, EB_MODEL_DONE, "version 1 is served");
    push_command(&asked, EB_MODEL_SERVE, 0);
    expect(&asked, EB_MODEL_DONE, "version 3 is served");
}

static void leaves_all_as_it_was_where_a_version_fails(void **state)
{
    (void)state;
    struct asked asked;
    push_command(&asked, EB_MODEL_SERVE, 2);
    push_command(&asked, EB_MODEL_SERVE, 1);
    assert_int_equal(next(), 1);
    eb_registry_fail(&fixture.registry, "m", 1, "it is broken", EB_REGISTRY_BROKEN);
    decide();
    expect(&asked, EB_MODEL_FAILED, "it is broken");
    assert_int_equal(model()->commanded, 2);
    assert_int_equal(model()->served->version, 2);
    /* A failed version is tried again if a command asks for it. */
    push_command(&asked, EB_MODEL_LOAD, 1);
    assert_int_equal(next(), 1);
    eb_registry_fail(&fixture.registry, "m", 1, "it still is", EB_REGISTRY_BROKEN);
    decide();
    expect(&asked, EB_MODEL_FAILED, "it still is");
    push_command(&asked, EB_MODEL_LOAD, 1);
    assert_int_equal(next(), 1);
    eb_registry_fail(&fixture.registry, "m", 1, "it is too large", EB_REGISTRY_SHORT);
    decide();
    expect(&asked, EB_MODEL_SHORT, "it is too large");
    assert_false(eb_registry_find_version(model(), 1)->is_held);
}

static void refuses_to_unload_what_answers_without_a_number(void **state)
{
    (void)state;
    struct asked asked;
    push_command(&asked, EB_MODEL_UNLOAD, 3);
    expect(&asked, EB_MODEL_REFUSED, "version 3 is being served");
    push_command(&asked, EB_MODEL_UNLOAD, 2);
    expect(&asked, EB_MODEL_REFUSED, "version 2 has a label");
    push_command(&asked, EB_MODEL_UNLOAD, 0);
    expect(&asked, EB_MODEL_REFUSED, "no version is named");
}

static void does_not_find_what_is_not_there(void **state)
{
    (void)state;
    struct asked asked;
    push_command(&asked, EB_MODEL_LOAD, 4);
    expect(&asked, EB_MODEL_NOT_FOUND, "model \"m\" has no version 4; rename its directory to ");
    model()->settings->config.is_manifest_required = true;
    push_command(&asked, EB_MODEL_LOAD, 4);
    expect(&asked, EB_MODEL_NOT_FOUND, "model.yaml requires a manifest, so it needs ");
    push_command(&asked, EB_MODEL_SERVE, 4);
    expect(&asked, EB_MODEL_NOT_FOUND, "no version 4");
    struct asked other = {
        .command = {.verb = EB_MODEL_LOAD, .model = "n", .on_done = on_command_done}};
    eb_command_queue_push(&fixture.queue, &other.command);
    look();
    eb_command_queue_begin(&fixture.queue);
    expect(&other, EB_MODEL_NOT_FOUND, "no model \"n\"");
}

static void answers_a_load_whose_version_is_unloaded_before_it_hears_of_it(void **state)
{
    (void)state;
    struct asked load;
    push_command(&load, EB_MODEL_LOAD, 1);
    assert_int_equal(next(), 1);
    put(1);
    struct asked unload;
    push_command(&unload, EB_MODEL_UNLOAD, 1);
    expect(&unload, EB_MODEL_DONE, "version 1 no longer answers requests");
    expect(&load, EB_MODEL_REFUSED, "version 1 was unloaded by another command");
    assert_int_equal(next(), 0);
}

static void answers_a_load_that_is_wanted_again_after_an_unload(void **state)
{
    (void)state;
    struct asked asked[3];
    push_command(&asked[0], EB_MODEL_LOAD, 1);
    assert_int_equal(next(), 1);
    put(1);
    asked[1].command = (struct eb_model_command){
        .verb = EB_MODEL_UNLOAD, .model = "m", .version = 1, .on_done = on_command_done};
    asked[1].done_count = 0;
    eb_command_queue_push(&fixture.queue, &asked[1].command);
    eb_command_queue_begin(&fixture.queue);
    push_command(&asked[2], EB_MODEL_LOAD, 1);
    expect(&asked[1], EB_MODEL_DONE, "version 1 no longer answers requests");
    assert_int_equal(asked[0].done_count + asked[2].done_count, 0);
    assert_int_equal(next(), 1);
    put(1);
    decide();
    expect(&asked[0], EB_MODEL_DONE, "version 1 is in memory");
    expect(&asked[2], EB_MODEL_DONE, "version 1 is in memory");
}

static void answers_when_the_directory_goes_while_a_reader_has_the_version(void **state)
{
    (void)state;
    struct asked asked;
    push_command(&asked, EB_MODEL_LOAD, 1);
    assert_int_equal(next(), 1);
    put(1);
    decide();
    push_command(&asked, EB_MODEL_UNLOAD, 1);
    push_command(&asked, EB_MODEL_SERVE, 1);
    assert_int_equal(next(), 1);
    eb_registry_find_version(model(), 1)->is_on_disk = false;
    eb_registry_fail(&fixture.registry, "m", 1, NULL, EB_REGISTRY_BROKEN);
    decide();
    expect(&asked, EB_MODEL_NOT_FOUND, "version 1 is gone");
    assert_int_equal(model()->commanded, 0);
}

static void says_that_the_disk_cannot_be_read(void **state)
{
    (void)state;
    struct asked asked;
    fixture.queue.disk_failure = "/r: the directory cannot be read";
    push_command(&asked, EB_MODEL_LOAD, 4);
    expect(&asked, EB_MODEL_FAILED, "/r: the directory cannot be read");
    push_command(&asked, EB_MODEL_LOAD, 0);
    expect(&asked, EB_MODEL_FAILED, "/r: the directory cannot be read");
    push_command(&asked, EB_MODEL_UNLOAD, 4);
    expect(&asked, EB_MODEL_NOT_FOUND, "no version 4 in memory");
    push_command(&asked, EB_MODEL_SERVE, 2);
    expect(&asked, EB_MODEL_DONE, "version 2 is served");
    push_command(&asked, EB_MODEL_SERVE, 0);
    expect(&asked, EB_MODEL_DONE, "version 3 is served");
    struct asked other = {
        .command = {.verb = EB_MODEL_LOAD, .model = "n", .on_done = on_command_done}};
    eb_command_queue_push(&fixture.queue, &other.command);
    look();
    eb_command_queue_begin(&fixture.queue);
    expect(&other, EB_MODEL_FAILED, "/r: the directory cannot be read");
}

static void says_what_keeps_a_model_from_being_loaded(void **state)
{
    (void)state;
    struct asked asked;
    model()->config_failure = strdup("model.yaml: line 1: nonsense");
    push_command(&asked, EB_MODEL_LOAD, 4);
    expect(&asked, EB_MODEL_NOT_FOUND, "no version 4");
    model()->is_described = false;
    push_command(&asked, EB_MODEL_LOAD, 4);
    expect(&asked, EB_MODEL_FAILED, "model.yaml: line 1: nonsense");
    model()->is_described = true;
    model()->failure = strdup("m: Permission denied");
    push_command(&asked, EB_MODEL_LOAD, 1);
    expect(&asked, EB_MODEL_FAILED, "m: Permission denied");
    push_command(&asked, EB_MODEL_SERVE, 2);
    expect(&asked, EB_MODEL_DONE, "version 2 is served");
}

static void says_why_a_directory_is_no_version(void **state)
{
    (void)state;
    struct asked asked;
    struct eb_registry_version *version = eb_registry_find_version(model(), 1);
    version->is_on_disk = false;
    version->failure = strdup("m/1: another directory is also version 1");
    push_command(&asked, EB_MODEL_LOAD, 1);
    expect(&asked, EB_MODEL_FAILED, "m/1: another directory is also version 1");
}

static void unloads_what_is_served_of_a_model_that_was_taken_away(void **state)
{
    (void)state;
    struct asked asked;
    asked.command = (struct eb_model_command){
        .verb = EB_MODEL_UNLOAD, .model = "m", .version = 3, .on_done = on_command_done};
    assert_true(eb_command_queue_needs_disk(&fixture.queue, &asked.command));
    for (size_t i = 0; i < model()->count; i++) {
        model()->versions[i].is_on_disk = false;
    }
    push_command(&asked, EB_MODEL_UNLOAD, 3);
    expect(&asked, EB_MODEL_DONE, "version 3 no longer answers requests");
    push_command(&asked, EB_MODEL_UNLOAD, 2);
    expect(&asked, EB_MODEL_DONE, "version 2 no longer answers requests");
    assert_null(model()->served);
    assert_int_equal(next(), 0);
}

static void gives_way_to_a_later_command(void **state)
{
    (void)state;
    struct asked first;
    struct asked second;
    push_command(&first, EB_MODEL_SERVE, 1);
    assert_int_equal(next(), 1);
    push_command(&second, EB_MODEL_SERVE, 2);
    expect(&first, EB_MODEL_REFUSED, "a later command replaced");
    expect(&second, EB_MODEL_DONE, "version 2 is served");
    put(1);
}

static void returns_to_what_was_where_a_version_goes(void **state)
{
    (void)state;
    struct asked asked;
    push_command(&asked, EB_MODEL_SERVE, 1);
    assert_int_equal(next(), 1);
    eb_registry_find_version(model(), 1)->is_on_disk = false;
    eb_registry_fail(&fixture.registry, "m", 1, "no such file", EB_REGISTRY_BROKEN);
    decide();
    expect(&asked, EB_MODEL_NOT_FOUND, "version 1 is gone");
    assert_int_equal(model()->commanded, 0);
}

static void does_not_return_to_what_was_refused(void **state)
{
    (void)state;
    struct asked asked[3];
    eb_registry_drop(&fixture.registry, model(), eb_registry_find_version(model(), 3));
    push_command(&asked[0], EB_MODEL_SERVE, 1);
    assert_int_equal(next(), 1);
    push_command(&asked[1], EB_MODEL_SERVE, 3);
    expect(&asked[0], EB_MODEL_REFUSED, "a later command replaced");
    push_command(&asked[2], EB_MODEL_SERVE, 3);
    eb_registry_fail(&fixture.registry, "m", 1, NULL, EB_REGISTRY_BROKEN);
    assert_int_equal(next(), 3);
    eb_registry_fail(&fixture.registry, "m", 3, "it is broken", EB_REGISTRY_BROKEN);
    decide();
    expect(&asked[1], EB_MODEL_FAILED, "it is broken");
    expect(&asked[2], EB_MODEL_FAILED, "it is broken");
    assert_int_equal(model()->commanded, 0);
    assert_int_equal(next(), 0);
}

static void looks_at_the_disk_for_what_is_not_in_memory(void **state)
{
    (void)state;
    struct asked asked = {
        .command = {.verb = EB_MODEL_LOAD, .model = "m", .version = 1, .on_done = on_command_done}};
    assert_true(eb_command_queue_needs_disk(&fixture.queue, &asked.command));
    eb_command_queue_push(&fixture.queue, &asked.command);
    eb_command_queue_begin(&fixture.queue);
    assert_int_equal(next(), 0);
    eb_command_queue_cancel(&fixture.queue);
    expect(&asked, EB_MODEL_CANCELLED, "shutting down");
    asked.command.version = 2;
    assert_false(eb_command_queue_needs_disk(&fixture.queue, &asked.command));
    asked.command.verb = EB_MODEL_UNLOAD;
    asked.command.version = 1;
    assert_false(eb_command_queue_needs_disk(&fixture.queue, &asked.command));
}

/* ---- routers ---- */

/* Makes the registry a router's, whose flip wants versions 3 and 1. */
static void route(uint64_t served)
{
    struct eb_routed_choice choice = {
        .model = "m", .served = served, .wanted_count = 2, .wanted = {3, 1}};
    fixture.registry.is_routed = true;
    fixture.queue.now_ms = NOW_MS;
    fixture.queue.serve_wait_ms = 5000;
    eb_registry_route(&fixture.registry, &choice);
}

static void waits_until_a_flip_serves_the_version(void **state)
{
    (void)state;
    struct asked asked;
    route(3);
    assert_int_equal(eb_command_queue_due_ms(&fixture.queue), UINT64_MAX);
    push_command(&asked, EB_MODEL_SERVE, 2);
    assert_int_equal(model()->commanded, 2);
    assert_int_equal(eb_command_queue_due_ms(&fixture.queue), NOW_MS + 5000);
    fixture.queue.now_ms += 4999;
    decide();
    assert_int_equal(asked.done_count, 0);
    route(2);
    decide();
    expect(&asked, EB_MODEL_DONE, "version 2 is served");
    assert_int_equal(model()->commanded, 2);
    assert_int_equal(eb_command_queue_due_ms(&fixture.queue), UINT64_MAX);
    push_command(&asked, EB_MODEL_SERVE, 0);
    assert_int_equal(next(), 1);
    put(1);
    decide();
    expect(&asked, EB_MODEL_DONE, "version 2 is served");
    assert_int_equal(model()->commanded, 0);
}

static void does_not_wait_for_a_flip_for_ever(void **state)
{
    (void)state;
    struct asked asked[2];
    route(3);
    assert_int_equal(next(), 1);
    eb_registry_fail(&fixture.registry, "m", 1, "it is broken", EB_REGISTRY_BROKEN);
    push_command(&asked[0], EB_MODEL_SERVE, 2);
    fixture.queue.now_ms += 5000;
    decide();
    expect(&asked[0], EB_MODEL_FAILED,
        "version 2 was not complete within 5 s: at least one of its parts has no server");
    assert_int_equal(model()->commanded, 0);
    assert_int_equal(model()->served->version, 3);
    route(3);
    push_command(&asked[0], EB_MODEL_SERVE, 1);
    fixture.queue.now_ms += 4000;
    push_command(&asked[1], EB_MODEL_SERVE, 1);
    assert_int_equal(eb_command_queue_due_ms(&fixture.queue), NOW_MS + 5000);
    fixture.queue.now_ms += 1000;
    decide();
    expect(&asked[0], EB_MODEL_FAILED, "its tables placed everywhere have not been loaded yet");
    assert_int_equal(asked[1].done_count, 0);
    assert_int_equal(eb_command_queue_due_ms(&fixture.queue), NOW_MS + 9000);
    fixture.queue.now_ms += 4000;
    decide();
    expect(&asked[1], EB_MODEL_FAILED, "version 1 was not complete within 5 s");
    assert_int_equal(model()->commanded, 0);
}

static void answers_a_router_whose_version_fails_or_goes(void **state)
{
    (void)state;
    struct asked asked;
    route(3);
    push_command(&asked, EB_MODEL_SERVE, 1);
    assert_int_equal(next(), 1);
    eb_registry_fail(&fixture.registry, "m", 1, "it is broken", EB_REGISTRY_BROKEN);
    decide();
    expect(&asked, EB_MODEL_FAILED, "it is broken");
    push_command(&asked, EB_MODEL_SERVE, 1);
    assert_int_equal(asked.done_count, 0);
    eb_registry_find_version(model(), 1)->is_on_disk = false;
    decide();
    expect(&asked, EB_MODEL_NOT_FOUND, "version 1 is gone");
    push_command(&asked, EB_MODEL_SERVE, 4);
    expect(&asked, EB_MODEL_NOT_FOUND, "no version 4");
    assert_int_equal(model()->commanded, 0);
    eb_registry_drop(&fixture.registry, model(), eb_registry_find_version(model(), 3));
    route(0);
    assert_int_equal(next(), 3);
    push_command(&asked, EB_MODEL_SERVE, 0);
    assert_int_equal(asked.done_count, 0);
    put(3);
    decide();
    expect(&asked, EB_MODEL_FAILED, "no version of model \"m\" is complete yet");
}

static void unloads_on_a_router_only_what_its_flip_does_not_need(void **state)
{
    (void)state;
    struct asked asked;
    route(3);
    assert_int_equal(next(), 1);
    put(1);
    decide();
    push_command(&asked, EB_MODEL_UNLOAD, 1);
    expect(&asked, EB_MODEL_REFUSED, "version 1 is to be served next, or requests name it");
    push_command(&asked, EB_MODEL_UNLOAD, 3);
    expect(&asked, EB_MODEL_REFUSED, "version 3 is being served");
    /* The flip may want a version only because a command holds it. */
    push_command(&asked, EB_MODEL_LOAD, 1);
    expect(&asked, EB_MODEL_DONE, "version 1 is in memory");
    push_command(&asked, EB_MODEL_UNLOAD, 1);
    expect(&asked, EB_MODEL_DONE, "version 1 no longer answers requests");
    assert_int_equal(next(), 0);
}

EB_TEST_GROUP(command_queue)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(loads_a_version_that_stays_until_it_is_unloaded),
        FIXTURE(does_not_unload_what_routers_claim),
        FIXTURE(serves_an_older_version_and_returns_to_the_highest),
        FIXTURE(leaves_all_as_it_was_where_a_version_fails),
        FIXTURE(refuses_to_unload_what_answers_without_a_number),
        FIXTURE(does_not_find_what_is_not_there),
        FIXTURE(answers_a_load_whose_version_is_unloaded_before_it_hears_of_it),
        FIXTURE(answers_a_load_that_is_wanted_again_after_an_unload),
        FIXTURE(answers_when_the_directory_goes_while_a_reader_has_the_version),
        FIXTURE(says_that_the_disk_cannot_be_read),
        FIXTURE(says_what_keeps_a_model_from_being_loaded),
        FIXTURE(says_why_a_directory_is_no_version),
        FIXTURE(unloads_what_is_served_of_a_model_that_was_taken_away),
        FIXTURE(gives_way_to_a_later_command),
        FIXTURE(returns_to_what_was_where_a_version_goes),
        FIXTURE(does_not_return_to_what_was_refused),
        FIXTURE(looks_at_the_disk_for_what_is_not_in_memory),
        FIXTURE(waits_until_a_flip_serves_the_version),
        FIXTURE(does_not_wait_for_a_flip_for_ever),
        FIXTURE(answers_a_router_whose_version_fails_or_goes),
        FIXTURE(unloads_on_a_router_only_what_its_flip_does_not_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
