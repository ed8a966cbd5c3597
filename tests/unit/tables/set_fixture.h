/* A version directory that a test fills and then loads with a model.yaml.
 * Thread: one at a time. Memory: none besides that of a loaded set. A failing call fails the
 * test. */
#pragma once

#include "server/contents/model_config.h"
#include "server/tables/set_load.h"
#include "tests/lib/scratch.h"

struct eb_set_fixture {
    struct eb_scratch scratch;
    const struct eb_load_progress *progress; /* may be NULL */
};

void eb_set_fixture_init(struct eb_set_fixture *fixture);
void eb_set_fixture_deinit(struct eb_set_fixture *fixture);

/* Writes ROOT/name, an npy file of one or two dims. The second is 0 if there is only one. */
void eb_set_fixture_write_npy(const struct eb_set_fixture *fixture, const char *name,
    enum eb_storage storage, const uint64_t dims[2], const void *data);
void eb_set_fixture_remove(const struct eb_set_fixture *fixture, const char *name);

/* Loads ROOT. `yaml` is the text of model.yaml, or "" for no such file. */
void eb_set_fixture_load(
    const struct eb_set_fixture *fixture, const char *yaml, struct eb_table_set *set);
/* Expects the load to fail with a text that contains both parts. */
void eb_set_fixture_expect_failure(const struct eb_set_fixture *fixture, const char *yaml,
    const char *part, const char *other_part);
