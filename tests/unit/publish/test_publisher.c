#include "server/publish/publisher.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define READERS 2
#define SNAPSHOTS 3

/* The owner's loop and a reader's loop. The test runs both and checks in between who holds which
 * snapshot. */
struct fixture {
    uv_loop_t owner;
    uv_loop_t reader;
    struct eb_mailbox owner_mailbox;
    struct eb_mailbox reader_mailbox;
    struct eb_snapshot *held[READERS];
    struct eb_publisher_reader readers[READERS];
    struct eb_publisher publisher;
    unsigned settled_count;
};

static struct eb_snapshot *swap_snapshot(void *context, struct eb_snapshot *snapshot)
{
    struct eb_snapshot **held = context;
    struct eb_snapshot *former = *held;
    *held = snapshot;
    return former;
}

static void on_settled(void *context)
{
    ((struct fixture *)context)->settled_count++;
}

/* Makes a snapshot with one model of one version. The references to the version show whether the
 * snapshot still exists. */
static struct eb_snapshot *make_snapshot(struct eb_model_version *version)
{
    struct eb_snapshot *snapshot = calloc(1, sizeof *snapshot);
    snapshot->models = calloc(1, sizeof *snapshot->models);
    snapshot->count = 1;
    snapshot->models[0].name = strdup("m");
    snapshot->models[0].versions = calloc(1, sizeof *snapshot->models[0].versions);
    snapshot->models[0].version_count = 1;
    snapshot->models[0].versions[0].loaded = eb_model_version_take(version);
    return snapshot;
}

static void open_publisher(struct fixture *fixture, struct eb_model_version *first)
{
    *fixture = (struct fixture){0};
    assert_int_equal(uv_loop_init(&fixture->owner), 0);
    assert_int_equal(uv_loop_init(&fixture->reader), 0);
    assert_int_equal(eb_mailbox_open(&fixture->owner_mailbox, &fixture->owner), 0);
    assert_int_equal(eb_mailbox_open(&fixture->reader_mailbox, &fixture->reader), 0);
    struct eb_snapshot *snapshot = make_snapshot(first);
    for (size_t i = 0; i < READERS; i++) {
        fixture->held[i] = snapshot;
        fixture->readers[i] = (struct eb_publisher_reader){
            &fixture->reader_mailbox, swap_snapshot, &fixture->held[i]};
    }
    fixture->publisher = (struct eb_publisher){.mailbox = &fixture->owner_mailbox,
        .reader_count = READERS,
        .readers = fixture->readers,
        .on_settled = on_settled,
        .context = fixture};
    eb_publisher_start(&fixture->publisher, snapshot);
}

static void close_publisher(struct fixture *fixture)
{
    eb_publisher_deinit(&fixture->publisher);
    eb_mailbox_close(&fixture->owner_mailbox);
    eb_mailbox_close(&fixture->reader_mailbox);
    uv_run(&fixture->owner, UV_RUN_DEFAULT);
    uv_run(&fixture->reader, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fixture->owner), 0);
    assert_int_equal(uv_loop_close(&fixture->reader), 0);
}

static unsigned long references(const struct eb_model_version *version)
{
    return (unsigned long)atomic_load(&version->references);
}

static void frees_a_snapshot_when_every_reader_has_the_next(void **state)
{
    (void)state;
    struct fixture fixture;
    struct eb_model_version versions[SNAPSHOTS] = {
        {.references = 1}, {.references = 1}, {.references = 1}};
    open_publisher(&fixture, &versions[0]);
    struct eb_snapshot *second = make_snapshot(&versions[1]);
    assert_true(eb_publisher_publish(&fixture.publisher, second));
    assert_true(eb_publisher_publish(&fixture.publisher, make_snapshot(&versions[2])));
    assert_int_equal(references(&versions[0]), 2);
    uv_run(&fixture.reader, UV_RUN_NOWAIT);
    assert_ptr_equal(fixture.held[0], fixture.publisher.current);
    assert_ptr_equal(fixture.held[1], fixture.publisher.current);
    assert_int_equal(references(&versions[0]), 2);
    assert_int_equal(references(&versions[1]), 2);
    assert_int_equal(fixture.settled_count, 0);
    uv_run(&fixture.owner, UV_RUN_NOWAIT);
    assert_int_equal(references(&versions[0]), 1);
    assert_int_equal(references(&versions[1]), 1);
    assert_int_equal(references(&versions[2]), 2);
    assert_int_equal(fixture.settled_count, 1);
    assert_int_equal(fixture.publisher.delivery_count, 0);
    close_publisher(&fixture);
    assert_int_equal(references(&versions[2]), 1);
}

EB_TEST_GROUP(publisher)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frees_a_snapshot_when_every_reader_has_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
