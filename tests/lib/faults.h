/* Fault injection for tests. Calls of the symbols that a test program wraps (embag_test_groups,
 * WRAP) reach the real functions, unless the test sets up a fault in one of two ways:
 *
 *     eb_faults_fail_allocation(3);      the third allocation of this thread from now on fails
 *     eb_faults.mmap = map_from_pool;    calls of mmap go to this function of the test, which can
 *                                        call the real one as __real_mmap
 *
 * The test's teardown calls eb_faults_disarm.
 * Thread: allocations are counted for each thread separately. Hooks run on any thread; set and
 * remove them only while no other thread calls the symbols they replace. Memory: none. */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

/* EB_FAULT_<symbol>(X): X(result, symbol, parameters, arguments). */
#define EB_FAULT_malloc(X) X(void *, malloc, (size_t bytes), (bytes))
#define EB_FAULT_calloc(X) X(void *, calloc, (size_t count, size_t bytes), (count, bytes))
#define EB_FAULT_realloc(X) X(void *, realloc, (void *memory, size_t bytes), (memory, bytes))
#define EB_FAULT_aligned_alloc(X)                                                                  \
    X(void *, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))
#define EB_FAULT_strdup(X) X(char *, strdup, (const char *text), (text))
#define EB_FAULT_strndup(X) X(char *, strndup, (const char *text, size_t bytes), (text, bytes))
/* Symbols whose calls eb_faults_fail_allocation counts. */
#define EB_FAULT_ALLOCATIONS(X)                                                                    \
    EB_FAULT_malloc(X) EB_FAULT_calloc(X) EB_FAULT_realloc(X) EB_FAULT_aligned_alloc(X)            \
        EB_FAULT_strdup(X) EB_FAULT_strndup(X)

#define EB_FAULT_clock_gettime(X)                                                                  \
    X(int, clock_gettime, (clockid_t clock, struct timespec * out), (clock, out))
#define EB_FAULT_mmap(X)                                                                           \
    X(void *, mmap, (void *at, size_t bytes, int protection, int flags, int file, off_t offset),   \
        (at, bytes, protection, flags, file, offset))
#define EB_FAULT_munmap(X) X(int, munmap, (void *at, size_t bytes), (at, bytes))
#define EB_FAULT_mprotect(X)                                                                       \
    X(int, mprotect, (void *at, size_t bytes, int protection), (at, bytes, protection))
#define EB_FAULT_madvise(X)                                                                        \
    X(int, madvise, (void *at, size_t bytes, int advice), (at, bytes, advice))
#define EB_FAULT_mbind(X)                                                                          \
    X(long, mbind,                                                                                 \
        (void *base, unsigned long bytes, int mode, const unsigned long *nodes,                    \
            unsigned long node_bits, unsigned flags),                                              \
        (base, bytes, mode, nodes, node_bits, flags))
#define EB_FAULT_numa_available(X) X(int, numa_available, (void), ())
#define EB_FAULT_sched_getaffinity(X)                                                              \
    X(int, sched_getaffinity, (pid_t process, size_t bytes, cpu_set_t * set), (process, bytes, set))
#define EB_FAULT_access(X) X(int, access, (const char *path, int mode), (path, mode))
#define EB_FAULT_renameat2(X)                                                                      \
    X(int, renameat2,                                                                              \
        (int from_folder, const char *from, int to_folder, const char *to, unsigned flags),        \
        (from_folder, from, to_folder, to, flags))
#define EB_FAULT_linkat(X)                                                                         \
    X(int, linkat, (int from_folder, const char *from, int to_folder, const char *to, int flags),  \
        (from_folder, from, to_folder, to, flags))
#define EB_FAULT_fnmatch(X)                                                                        \
    X(int, fnmatch, (const char *pattern, const char *text, int flags), (pattern, text, flags))
#define EB_FAULT_pread(X)                                                                          \
    X(ssize_t, pread, (int file, void *out, size_t bytes, off_t offset), (file, out, bytes, offset))
#define EB_FAULT_pwrite(X)                                                                         \
    X(ssize_t, pwrite, (int file, const void *from, size_t bytes, off_t offset),                   \
        (file, from, bytes, offset))
#define EB_FAULT_fsync(X) X(int, fsync, (int file), (file))
#define EB_FAULT_eb_machine_available_bytes(X) X(uint64_t, eb_machine_available_bytes, (void), ())

/* Symbols that only a hook can make fail. */
#define EB_FAULT_CALLS(X)                                                                          \
    EB_FAULT_clock_gettime(X) EB_FAULT_mmap(X) EB_FAULT_munmap(X) EB_FAULT_mprotect(X)             \
        EB_FAULT_madvise(X) EB_FAULT_mbind(X) EB_FAULT_numa_available(X)                           \
            EB_FAULT_sched_getaffinity(X) EB_FAULT_access(X) EB_FAULT_renameat2(X)                 \
                EB_FAULT_linkat(X) EB_FAULT_fnmatch(X) EB_FAULT_pread(X) EB_FAULT_pwrite(X)        \
                    EB_FAULT_fsync(X) EB_FAULT_eb_machine_available_bytes(X)

/* Hooks by symbol. A hook is a function that is called instead of the real one; if it is NULL, the
 * real function is called. */
struct eb_faults {
#define X(result, symbol, parameters, arguments) result(*symbol) parameters;
    EB_FAULT_ALLOCATIONS(X)
    EB_FAULT_CALLS(X)
#undef X
};
extern struct eb_faults eb_faults;

#define X(result, symbol, parameters, arguments) result __real_##symbol parameters;
EB_FAULT_ALLOCATIONS(X)
EB_FAULT_CALLS(X)
#undef X

/* Restarts the count of the calling thread's allocations and makes only its `number`-th one fail,
 * or none if `number` is 0. */
void eb_faults_fail_allocation(unsigned number);
/* Returns the number of allocations that the calling thread has requested since the count was
 * restarted, including the failed one. */
unsigned eb_faults_allocation_count(void);
/* Counts an allocation of the calling thread and returns whether it must fail. Hooks of other
 * functions that allocate call it. */
bool eb_faults_refuse_allocation(void);
/* Removes all hooks, and makes no allocation of the calling thread fail. */
void eb_faults_disarm(void);
/* Calls eb_faults_disarm; for use as cmocka's teardown of a test or a group. Returns 0. */
int eb_faults_tear_down(void **state);
