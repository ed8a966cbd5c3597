#include "server/stats/process_usage.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define STAT_BYTES 1024

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

/* Reads the count of threads and the memory from /proc/self/stat. The program's name, which may
 * hold any character, is followed by the state and by numbers. Counted from the state, these are
 * fields 18, 21 and 22. */
static void read_stat(struct eb_process_usage *usage)
{
    char text[STAT_BYTES];
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file) {
        return;
    }
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *behind = strrchr(text, ')');
    uint64_t pages = 0;
    if (behind && sscanf(behind + 1,
                      " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                      "%" SCNu64 " %*s %*s %" SCNu64 " %" SCNu64,
                      &usage->threads, &usage->virtual_bytes, &pages) == 3) {
        usage->resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    }
}

static uint64_t count_open_files(void)
{
    uint64_t count = 0;
    DIR *entries = opendir("/proc/self/fd");
    if (!entries) {
        return 0;
    }
    while (readdir(entries)) {
        count++;
    }
    closedir(entries);
    return count < 3 ? 0 : count - 3; /* ".", ".." and the directory itself */
}

void eb_process_usage_read(struct eb_process_usage *usage)
{
    *usage = (struct eb_process_usage){0};
    struct rusage used;
    struct rlimit limit;
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        usage->cpu_seconds = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        usage->open_files_max = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
    }
    usage->open_files = count_open_files();
    read_stat(usage);
}
