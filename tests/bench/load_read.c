/* Reads a file as a load does, in chunks of 512 KiB that threads take from one counter, and prints
 * the rate and the CPU time. It drops the file from the page cache first, so that the disk is
 * measured. The bytes before the data of an npy file put the chunks at odd offsets.
 * Usage: embag-load-read FILE THREADS */
#include "server/formats/table_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES (UINT64_C(512) << 10)
#define HEADER_BYTES 128
#define THREADS_MAX 64

static const char *path;
static _Atomic uint64_t next_chunk;
static _Atomic bool has_failed;

static void *read_chunks(void *unused)
{
    struct eb_table_file file;
    struct eb_failure failure;
    (void)unused;
    uint8_t *chunk = malloc(CHUNK_BYTES);
    bool is_open = chunk && eb_table_file_open(path, &file, &failure);
    bool is_good = is_open;
    while (is_good) {
        uint64_t offset = HEADER_BYTES + atomic_fetch_add(&next_chunk, 1) * CHUNK_BYTES;
        if (offset >= file.bytes) {
            break;
        }
        uint64_t left = file.bytes - offset;
        is_good = eb_table_file_read(
            &file, offset, chunk, left < CHUNK_BYTES ? left : CHUNK_BYTES, &failure);
    }
    if (is_open) {
        eb_table_file_close(&file);
    }
    free(chunk);
    if (!is_good) {
        atomic_store(&has_failed, true);
    }
    return NULL;
}

static double monotonic_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double used_cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static bool drop_cached(void)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return false;
    }
    bool is_good =
        fsync(descriptor) == 0 && posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED) == 0;
    (void)close(descriptor);
    return is_good;
}

int main(int argument_count, char **arguments)
{
    pthread_t threads[THREADS_MAX];
    unsigned long count = argument_count == 3 ? strtoul(arguments[2], NULL, 10) : 0;
    if (count == 0 || count > THREADS_MAX) {
        fprintf(stderr, "Usage: embag-load-read FILE THREADS (1 to %d)\n", THREADS_MAX);
        return 2;
    }
    path = arguments[1];
    if (!drop_cached()) {
        perror(path);
        return 1;
    }
    double began = monotonic_seconds();
    double cpu = used_cpu_seconds();
    unsigned long started = 0;
    while (started < count && pthread_create(&threads[started], NULL, read_chunks, NULL) == 0) {
        started++;
    }
    for (unsigned long i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    double took = monotonic_seconds() - began;
    cpu = used_cpu_seconds() - cpu;
    struct eb_direct_read_bytes bytes = eb_direct_read_count();
    double gigabytes = (double)(bytes.cached + bytes.direct + bytes.plain) * 1e-9;
    printf("%lu threads: %.2f GB/s, %.3f s of CPU per GB; cached %" PRIu64 ", direct %" PRIu64
           ", plain %" PRIu64 " bytes\n",
        count, gigabytes / took, cpu / gigabytes, bytes.cached, bytes.direct, bytes.plain);
    return started < count || atomic_load(&has_failed);
}
