/* Preloaded into embagd by tests: simulates a disk that does not answer while the file that
 * HELD_DISK names exists. Reads of files whose path contains the text in that file wait; all reads
 * do if it is empty. A waiting read creates a second file, whose name has `.waiting` appended.
 *
 * Two more variables are optional. HELD_DISK_BYTES_MIN: shorter reads do not wait, such as those of
 * headers. HELD_DISK_LATE_S: until a read waits, the coarse clock is this many seconds behind, so
 * that this read then seems to have taken so long already. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 5000000
#define COARSE_NS 4000000
#define LINK_BYTES 32

static atomic_bool has_waited;

/* Returns the number that a variable holds, or 0. */
static unsigned long read_variable(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : 0;
}

/* Reads the text in the file that HELD_DISK names. Returns false if there is no such file. */
static bool read_held_part(char part[PATH_MAX])
{
    const char *name = getenv("HELD_DISK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        return false;
    }
    ssize_t bytes = read(file, part, PATH_MAX - 1);
    close(file);
    part[bytes > 0 ? bytes : 0] = '\0';
    return bytes >= 0;
}

/* Returns whether a read of `count` bytes from the file must wait. */
static bool is_held(int file, size_t count)
{
    char part[PATH_MAX];
    char path[PATH_MAX];
    char link[LINK_BYTES];
    if (!read_held_part(part) || count < read_variable("HELD_DISK_BYTES_MIN")) {
        return false;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t bytes = readlink(link, path, sizeof path - 1);
    path[bytes > 0 ? bytes : 0] = '\0';
    return strstr(path, part);
}

/* Notes that a read waits. */
static void tell_waiting(void)
{
    char waiting[PATH_MAX];
    atomic_store(&has_waited, true);
    snprintf(waiting, sizeof waiting, "%s.waiting", getenv("HELD_DISK"));
    int file = open(waiting, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (file >= 0) {
        close(file);
    }
}

/* The following replace the C library's functions, which are no longer called. */

ssize_t pread(int file, void *bytes, size_t count, off_t offset)
{
    struct timespec pause = {.tv_nsec = LOOK_NS};
    if (is_held(file, count)) {
        tell_waiting();
        while (is_held(file, count)) {
            nanosleep(&pause, NULL);
        }
    }
    return syscall(SYS_pread64, file, bytes, count, offset);
}

/* Finds nothing in the page cache while the disk does not answer. */
ssize_t preadv2(int file, const struct iovec *ranges, int count, off_t offset, int flags)
{
    if ((flags & RWF_NOWAIT) && count == 1 && is_held(file, ranges->iov_len)) {
        errno = EAGAIN;
        return -1;
    }
    return syscall(SYS_preadv2, file, ranges, count, offset, 0L, flags);
}

/* Keeps libuv from measuring time with the coarse clock, which it does if that is fine enough. */
int clock_getres(clockid_t clock, struct timespec *resolution)
{
    int rc = (int)syscall(SYS_clock_getres, clock, resolution);
    if (rc == 0 && clock == CLOCK_MONOTONIC_COARSE && resolution) {
        *resolution = (struct timespec){.tv_nsec = COARSE_NS};
    }
    return rc;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, now);
    if (rc == 0 && clock == CLOCK_MONOTONIC_COARSE && !atomic_load(&has_waited)) {
        now->tv_sec -= (time_t)read_variable("HELD_DISK_LATE_S");
    }
    return rc;
}
