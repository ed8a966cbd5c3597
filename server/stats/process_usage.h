/* Reads how much CPU, memory, descriptors and threads this process uses.
 * Thread: any, but not a loop that serves, because it reads /proc. Memory: none kept. */
#pragma once

#include <stdint.h>

/* A value that cannot be read is 0. */
struct eb_process_usage {
    double cpu_seconds; /* of all threads, in user and system mode */
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t threads;
    uint64_t open_files;
    uint64_t open_files_max; /* UINT64_MAX if there is no limit */
};

void eb_process_usage_read(struct eb_process_usage *usage);
