/* What the tests of the load generator share: a model as a server might list it, and arguments as a
 * user might type them. */
#pragma once

#include "client/cli/load_pool.h"

/* Reads "--flag value ..." behind "--server x"; the words are kept until the next call. */
enum eb_arguments_outcome load_fixture_read(struct eb_load_options *options, const char *words);

/* A list of one model, "m", with the tables a (100 rows of 4) and b (7 rows of 3), both f32, and c
 * (5 rows of 2), bf16, and k and l (3 rows), which are keyed; its version 9 is served. */
const struct embag_model_list *load_fixture_models(void);

/* A target and a pool for arguments that must be right. The caller deinitialises both. */
void load_fixture_make(struct eb_load_options *options, struct eb_load_target *target,
    struct eb_load_pool *pool, const char *words);
