/* A registry with a repository, for tests of the registry.
 * Thread: one at a time. Memory: on the heap from open to close. */
#pragma once

#include "server/models/registry.h"

#include "tests/lib/scratch.h"

#define KEEP_MS UINT64_C(600000)
#define TOLD_BYTES 4096
#define VERSION_BYTES 1000

/* A registry on a repository of empty directories. The test only pretends to load versions. */
struct registry_fixture {
    struct eb_scratch scratch;
    struct eb_repository seen;
    struct eb_registry registry;
    uint64_t now_ms;
    uint64_t wake_ms;
    char told[TOLD_BYTES]; /* reports of the registry's events */
};

/* For cmocka: set *state to a new fixture, and release it. */
int registry_fixture_open(void **state);
int registry_fixture_close(void **state);

/* Creates a directory and its parents. */
void registry_fixture_make(struct registry_fixture *fixture, const char *name);
void registry_fixture_take_away(struct registry_fixture *fixture, const char *name);
/* Replaces m/model.yaml. */
void registry_fixture_write_config(struct registry_fixture *fixture, const char *text);
/* Scans the disk and updates the registry. Afterwards `told` has only the reports of this
 * update. */
void registry_fixture_look(struct registry_fixture *fixture);
/* Lets the registry decide. Afterwards `told` has only the reports of this decision. */
void registry_fixture_decide(struct registry_fixture *fixture);
/* Returns the version of `model` that is to be loaded next, or 0 if there is none. */
uint64_t registry_fixture_next(struct registry_fixture *fixture, const char *model);
/* Pretends to load a version. */
void registry_fixture_put(struct registry_fixture *fixture, const char *model, uint64_t number);
/* Loads every version of the model that is due to be loaded, then lets the registry decide. */
void registry_fixture_settle(struct registry_fixture *fixture, const char *model);
/* Scans the disk, then settles "m". */
void registry_fixture_follow(struct registry_fixture *fixture);
/* Serves version 1, and leaves version 2 to be loaded next. */
void registry_fixture_begin_second(struct registry_fixture *fixture);
/* Returns the version that is served, or 0 if there is none. */
uint64_t registry_fixture_served(struct registry_fixture *fixture, const char *name);
struct eb_snapshot *registry_fixture_snapshot(struct registry_fixture *fixture);
/* Returns the state of a version, or 0 if the version is not in the snapshot. */
enum eb_version_state registry_fixture_state_of(
    struct registry_fixture *fixture, const char *name, uint64_t number);
