/* A server's resident directory, made without a server: versions of a model "m" in resident files,
 * and the record of them. A version has the tables "large" (a file of its own) and "small". struct
 * eb_local_host adds a reader.
 * Thread: one at a time. Memory: the versions' tables are mapped. A failing call fails the test. */
#pragma once

#include "client/embag_local.h"
#include "server/tables/served_record.h"
#include "tests/unit/tables/resident_fixture.h"
#include "tests/unit/tables/set_fixture.h"

#define EB_LOCAL_FIXTURE_LARGE_ROWS 20000
#define EB_LOCAL_FIXTURE_SMALL_ROWS 5
#define EB_LOCAL_FIXTURE_DIM 32
#define EB_LOCAL_FIXTURE_VERSIONS_MAX 8

struct eb_local_fixture {
    struct eb_set_fixture files;
    char root[EB_RESIDENT_FIXTURE_BYTES]; /* empty: there is no tmpfs */
    struct eb_resident_dir dir;
    const char *yaml;          /* model.yaml's text; NULL: none */
    const char *manifest_yaml; /* if not NULL, the versions are recorded as part 1 of 3 */
    size_t version_count;
    uint64_t numbers[EB_LOCAL_FIXTURE_VERSIONS_MAX];
    struct eb_table_set sets[EB_LOCAL_FIXTURE_VERSIONS_MAX];
};

/* A directory with a handle and a reader, and the outcome of the reader's last lookup. */
struct eb_local_host {
    struct eb_local_fixture fixture;
    struct embag_local *local;
    struct embag_local_reader *reader;
    const struct embag_answer *answer;
    struct embag_error error;
};

/* Set-up and tear-down of cmocka. *state is a struct eb_local_host without a handle. */
int eb_local_host_set_up(void **state);
int eb_local_host_tear_down(void **state);
/* Opens the handle and the reader. */
void eb_local_host_open(struct eb_local_host *host);

/* Makes the directory, if there is a tmpfs for it. */
void eb_local_fixture_init(struct eb_local_fixture *fixture);
void eb_local_fixture_deinit(struct eb_local_fixture *fixture);
/* Removes the directory with all its versions. */
void eb_local_fixture_remove(struct eb_local_fixture *fixture);
/* Makes the directory that was removed again, as a new server does. */
void eb_local_fixture_make(struct eb_local_fixture *fixture);

/* Returns the value of a table in a version, a multiple of 1/64. */
float eb_local_fixture_value(uint64_t version, uint64_t row, uint64_t column);
/* Loads a version (skips the test if there is no tmpfs), deletes the one that was served before if
 * `is_alone`, and records the versions, the new one first. */
void eb_local_fixture_publish(struct eb_local_fixture *fixture, uint64_t version, bool is_alone);
/* Records the versions again. If `is_complete` is false, the record says that the first version has
 * a table outside files. If `file` is not NULL, it says that this version's tables are in that
 * file. */
void eb_local_fixture_record(struct eb_local_fixture *fixture, bool is_complete, const char *file);
/* Writes the path of the only file with the suffix ".t" or ".s". */
void eb_local_fixture_path(
    const struct eb_local_fixture *fixture, const char *suffix, char path[EB_SCRATCH_PATH_BYTES]);
