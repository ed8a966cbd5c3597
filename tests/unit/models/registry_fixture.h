/* What tests of the registry share: a registry on a repository of empty directories.
 * Thread: one at a time. Memory: on the heap from open to close. */
#pragma once

#include "server/models/registry.h"

#include "tests/lib/scratch.h"

#define KEEP_MS UINT64_C(600000)
#define TOLD_BYTES 4096
#define VERSION_BYTES 1000

/* A registry on a repository of empty directories, whose versions the test "loads". */
struct registry_fixture {
    struct eb_scratch scratch;
    struct eb_repository seen;
    struct eb_registry registry;
    uint64_t now_ms;
    uint64_t wake_ms;
    char told[TOLD_BYTES]; /* by the registry's events */
};

/* For cmocka: *state is the trial. */
int registry_fixture_open(void **state);
int registry_fixture_close(void **state);

/* A directory, and what is in front of it. */
void registry_fixture_make(struct registry_fixture *fixture, const char *name);
void registry_fixture_take_away(struct registry_fixture *fixture, const char *name);
/* m/model.yaml. */
void registry_fixture_write_config(struct registry_fixture *fixture, const char *text);
/* Takes over what is on disk; what it tells is all that is told then. */
void registry_fixture_look(struct registry_fixture *fixture);
/* The same for decisions. */
void registry_fixture_decide(struct registry_fixture *fixture);
/* What is to be loaded next; 0: nothing. */
uint64_t registry_fixture_next(struct registry_fixture *fixture, const char *model);
/* "Loads" it. */
void registry_fixture_put(struct registry_fixture *fixture, const char *model, uint64_t number);
/* Loads all there is to load and decides. */
void registry_fixture_settle(struct registry_fixture *fixture, const char *model);
/* The same of what is on disk by now. */
void registry_fixture_follow(struct registry_fixture *fixture);
/* Version 1 is served, and 2 on its way. */
void registry_fixture_begin_second(struct registry_fixture *fixture);
/* 0: none. */
uint64_t registry_fixture_served(struct registry_fixture *fixture, const char *name);
struct eb_snapshot *registry_fixture_snapshot(struct registry_fixture *fixture);
/* 0: it is not in the snapshot. */
enum eb_version_state registry_fixture_state_of(
    struct registry_fixture *fixture, const char *name, uint64_t number);
