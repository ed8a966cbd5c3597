/* Preloaded into embagd by test_killed_calls.py: ends the process with SIGKILL at one system call
 * on resident files. KILLED_CALL is NAME:NUMBER:WHEN, for example `renameat:2:after`: after the
 * second renameat. Of openat only calls that may create a file count. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAME_BYTES 16

/* Returns whether the process must end at this call of `name`, if `when` is "before" or "after". */
static bool must_end(const char *name, const char *when, unsigned number)
{
    char wanted_name[NAME_BYTES];
    char wanted_when[NAME_BYTES];
    unsigned wanted_number;
    const char *stop = getenv("KILLED_CALL");
    return stop && sscanf(stop, "%15[^:]:%u:%15s", wanted_name, &wanted_number, wanted_when) == 3 &&
           strcmp(wanted_name, name) == 0 && wanted_number == number &&
           strcmp(wanted_when, when) == 0;
}

static void may_end(const char *name, const char *when, unsigned number)
{
    if (must_end(name, when, number)) {
        (void)kill(getpid(), SIGKILL);
    }
}

/* Makes the system call, and counts it. */
static long call(const char *name, atomic_uint *count, long number, const long *arguments)
{
    unsigned place = atomic_fetch_add(count, 1) + 1;
    may_end(name, "before", place);
    long result = syscall(number, arguments[0], arguments[1], arguments[2], arguments[3]);
    may_end(name, "after", place);
    return result;
}

#define CALL(name, number, ...)                                                                    \
    static atomic_uint count;                                                                      \
    const long arguments[4] = {__VA_ARGS__};                                                       \
    return (int)call(name, &count, number, arguments)

/* The following replace the C library's functions, which are no longer called. */

int openat(int directory, const char *path, int flags, ...)
{
    if (!(flags & O_CREAT)) {
        return (int)syscall(SYS_openat, directory, path, flags, 0);
    }
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    CALL("openat", SYS_openat, directory, (long)path, flags, (long)mode);
}

int mkdirat(int directory, const char *path, mode_t mode)
{
    CALL("mkdirat", SYS_mkdirat, directory, (long)path, (long)mode);
}

int flock(int file, int operation)
{
    CALL("flock", SYS_flock, file, operation);
}

int ftruncate(int file, off_t bytes)
{
    CALL("ftruncate", SYS_ftruncate, file, bytes);
}

int fallocate(int file, int mode, off_t offset, off_t bytes)
{
    CALL("fallocate", SYS_fallocate, file, mode, offset, bytes);
}

int fchmod(int file, mode_t mode)
{
    CALL("fchmod", SYS_fchmod, file, (long)mode);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
    CALL("renameat", SYS_renameat, from_directory, (long)from, to_directory, (long)to);
}

int unlinkat(int directory, const char *path, int flags)
{
    CALL("unlinkat", SYS_unlinkat, directory, (long)path, flags);
}
