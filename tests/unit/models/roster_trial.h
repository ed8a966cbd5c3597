/* What tests of the roster share: a roster on a repository of empty directories.
 * Thread: one at a time. Memory: on the heap from open to close. */
#pragma once

#include "server/models/roster.h"

#include "tests/lib/scratch.h"

#define KEEP_MS UINT64_C(600000)
#define TOLD_BYTES 4096
#define VERSION_BYTES 1000

/* A roster on a repository of empty directories, whose versions the test "loads". */
struct roster_trial {
    struct eb_scratch scratch;
    struct eb_repository seen;
    struct eb_roster roster;
    uint64_t now_ms;
    uint64_t wake_ms;
    char told[TOLD_BYTES]; /* by the roster's events */
};

/* For cmocka: *state is the trial. */
int roster_trial_open(void **state);
int roster_trial_close(void **state);

/* A directory, and what is in front of it. */
void roster_trial_make(struct roster_trial *trial, const char *name);
void roster_trial_take_away(struct roster_trial *trial, const char *name);
/* m/model.yaml. */
void roster_trial_write_config(struct roster_trial *trial, const char *text);
/* Takes over what is on disk; what it tells is all that is told then. */
void roster_trial_look(struct roster_trial *trial);
/* The same for decisions. */
void roster_trial_decide(struct roster_trial *trial);
/* What is to be loaded next; 0: nothing. */
uint64_t roster_trial_next(struct roster_trial *trial, const char *model);
/* "Loads" it. */
void roster_trial_put(struct roster_trial *trial, const char *model, uint64_t number);
/* Loads all there is to load and decides. */
void roster_trial_settle(struct roster_trial *trial, const char *model);
/* The same of what is on disk by now. */
void roster_trial_follow(struct roster_trial *trial);
/* Version 1 is served, and 2 on its way. */
void roster_trial_begin_second(struct roster_trial *trial);
/* 0: none. */
uint64_t roster_trial_served(struct roster_trial *trial, const char *name);
struct eb_snapshot *roster_trial_snapshot(struct roster_trial *trial);
/* 0: it is not in the snapshot. */
enum eb_version_state roster_trial_state_of(
    struct roster_trial *trial, const char *name, uint64_t number);
