/* Preloaded into embagd by test_held_disk.py: simulates a disk that does not answer while the file
 * that HELD_DISK names exists. A waiting read creates a second file, whose name has `.waiting`
 * appended. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 5000000

static void wait_for_disk(const char *name)
{
    struct timespec pause = {.tv_nsec = LOOK_NS};
    char waiting[PATH_MAX];
    if (access(name, F_OK) != 0) {
        return;
    }
    snprintf(waiting, sizeof waiting, "%s.waiting", name);
    int file = open(waiting, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (file >= 0) {
        close(file);
    }
    while (access(name, F_OK) == 0) {
        nanosleep(&pause, NULL);
    }
}

/* Replaces the C library's function, which is no longer called. */
ssize_t pread(int file, void *bytes, size_t count, off_t offset)
{
    const char *name = getenv("HELD_DISK");
    if (name) {
        wait_for_disk(name);
    }
    return syscall(SYS_pread64, file, bytes, count, offset);
}
