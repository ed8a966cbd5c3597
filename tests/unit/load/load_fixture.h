/* Input for the tests of the load generator: a model as a server might list it, and arguments as a
 * user might type them. */
#pragma once

#include "client/cli/load_pool.h"

/* Reads "--flag value ..." after "--server x:1". The words are kept until the next call. */
enum eb_arguments_outcome load_fixture_read(struct eb_load_options *options, const char *words);

/* Returns a list of one model, "m", whose version 9 is served. Its tables are a (100 rows of 4) and
 * b (7 rows of 3), both f32, c (5 rows of 2), bf16, and k and l (3 rows each), which are keyed. */
const struct embag_model_list *load_fixture_models(void);

/* Makes a target and a pool from arguments that must be right. The caller deinitialises both. */
void load_fixture_make(struct eb_load_options *options, struct eb_load_target *target,
    struct eb_load_pool *pool, const char *words);
