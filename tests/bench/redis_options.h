/* The command line of embag-peer-redis, which resembles that of embag-load.
 * Thread: main. Memory: texts are borrowed from the arguments; nothing is on the heap. */
#pragma once

#include "client/cli/load_options.h"

struct eb_redis_options {
    /* Options of the load; those that have no flag here are zero. */
    struct eb_load_options load;
    bool is_fill; /* fills the store and sends no requests */
    uint64_t scale;
};

/* Reads and checks the arguments, the first of which is the program. If they are invalid, it prints
 * an error on stderr, and *out must not be used. */
enum eb_arguments_outcome eb_redis_options_read(
    struct eb_redis_options *out, int argument_count, char **arguments);
