#include "client/local/local_follow.h"

#include "server/tables/served_record.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

/* Room for some notices; those that do not fit are read in the next round. */
#define NOTICES_BYTES 4096

/* Asks for notices about the directory. If that fails, none are used. */
static void watch_directory(struct eb_local_follow *follow, const char *path)
{
    follow->watch = inotify_add_watch(follow->notices, path, IN_MOVED_TO);
    if (follow->watch < 0) {
        (void)close(follow->notices);
        follow->notices = -1;
    }
}

bool eb_local_follow_open(
    struct eb_local_follow *follow, const char *path, int directory, struct eb_failure *failure)
{
    *follow = (struct eb_local_follow){.directory = directory};
    follow->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (follow->wakeup < 0) {
        return eb_failure_set(failure, "eventfd: %s", strerror(errno));
    }
    follow->notices = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (follow->notices >= 0) {
        watch_directory(follow, path);
    }
    return true;
}

void eb_local_follow_set(struct eb_local_follow *follow, const char *path, int directory)
{
    follow->directory = directory;
    if (follow->notices >= 0) {
        /* Fails if the system has dropped the watch together with its directory. */
        (void)inotify_rm_watch(follow->notices, follow->watch);
        watch_directory(follow, path);
    }
}

void eb_local_follow_close(struct eb_local_follow *follow)
{
    (void)close(follow->wakeup);
    if (follow->notices >= 0) {
        (void)close(follow->notices);
    }
}

/* Reads all that has been reported, so that the next wait waits. */
static void drain(int descriptor)
{
    char bytes[NOTICES_BYTES];
    ssize_t count;
    do {
        count = read(descriptor, bytes, sizeof bytes);
    } while (count > 0);
}

void eb_local_follow_wait(const struct eb_local_follow *follow, int timeout_ms)
{
    struct pollfd polled[] = {
        {.fd = follow->wakeup, .events = POLLIN},
        {.fd = follow->notices, .events = POLLIN}, /* ignored if it is -1 */
    };
    if (follow->notices < 0 && timeout_ms > EB_LOCAL_FOLLOW_POLL_MS) {
        timeout_ms = EB_LOCAL_FOLLOW_POLL_MS;
    }
    if (poll(polled, sizeof polled / sizeof polled[0], timeout_ms) <= 0) {
        return;
    }
    drain(follow->wakeup);
    if (follow->notices >= 0) {
        drain(follow->notices);
    }
}

void eb_local_follow_wake(const struct eb_local_follow *follow)
{
    uint64_t one = 1;
    /* A full counter also wakes. */
    ssize_t written = write(follow->wakeup, &one, sizeof one);
    (void)written;
}

struct eb_local_stamp eb_local_follow_stamp(const struct eb_local_follow *follow)
{
    struct stat status;
    if (fstatat(follow->directory, EB_SERVED_RECORD_NAME, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return (struct eb_local_stamp){0};
    }
    return (struct eb_local_stamp){
        .inode = status.st_ino,
        .changed_ns = status.st_ctim.tv_sec * NS_PER_S + status.st_ctim.tv_nsec,
    };
}
