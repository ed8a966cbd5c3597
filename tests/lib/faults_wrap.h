/* Definitions of __wrap_<symbol> for the symbols that a test program wraps. The file that
 * embag_test_groups generates includes it, once in each program.
 * Thread: any. Memory: none. */
#pragma once

#include "tests/lib/faults.h"

#include <errno.h>

#define EB_FAULT_WRAP_ALLOCATION(result, symbol, parameters, arguments)                            \
    result __wrap_##symbol parameters;                                                             \
    result __wrap_##symbol parameters                                                              \
    {                                                                                              \
        if (eb_faults.symbol) {                                                                    \
            return eb_faults.symbol arguments;                                                     \
        }                                                                                          \
        if (eb_faults_refuse_allocation()) {                                                       \
            errno = ENOMEM;                                                                        \
            return NULL;                                                                           \
        }                                                                                          \
        return __real_##symbol arguments;                                                          \
    }

#define EB_FAULT_WRAP_CALL(result, symbol, parameters, arguments)                                  \
    result __wrap_##symbol parameters;                                                             \
    result __wrap_##symbol parameters                                                              \
    {                                                                                              \
        return eb_faults.symbol ? eb_faults.symbol arguments : __real_##symbol arguments;          \
    }
