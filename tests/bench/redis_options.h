/* The command line of embag-peer-redis, as far as it makes sense that of embag-load.
 * Thread: main. Memory: texts are borrowed from the arguments; nothing is on the heap. */
#pragma once

#include "client/cli/load_options.h"

struct eb_redis_options {
    /* Of the load; what it does not set is zero. The workload is `rows`. */
    struct eb_load_options load;
    bool is_fill; /* fills the store and asks nothing */
    uint64_t scale;
};

/* Reads and checks the arguments, of which the first is the program. What is wrong is said on
 * stderr; then *out is not to be used. */
enum eb_arguments_outcome eb_redis_options_read(
    struct eb_redis_options *out, int argument_count, char **arguments);
