/* What the system says of this process: CPU, memory, descriptors, threads.
 * Thread: any; reads /proc, so never a loop that serves. Memory: none kept. */
#pragma once

#include <stdint.h>

/* What cannot be read is 0. */
struct eb_process_usage {
    double cpu_seconds; /* of all threads, in user and system mode */
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t threads;
    uint64_t open_files;
    uint64_t open_files_max; /* UINT64_MAX: no limit */
};

void eb_process_usage_read(struct eb_process_usage *usage);
