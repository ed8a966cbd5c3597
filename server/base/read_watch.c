#include "server/base/read_watch.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MS_PER_S 1000
#define NS_PER_MS 1000000

/* The watch of this thread; NULL if it has none. */
static _Thread_local struct eb_read_watch *attached;

static uint64_t watch_now_ms(void)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    assert(rc == 0);
    (void)rc;
    return (uint64_t)now.tv_sec * MS_PER_S + (uint64_t)now.tv_nsec / NS_PER_MS;
}

bool eb_read_watch_init(struct eb_read_watch *watch)
{
    *watch = (struct eb_read_watch){0};
    return pthread_mutex_init(&watch->mutex, NULL) == 0;
}

void eb_read_watch_deinit(struct eb_read_watch *watch)
{
    (void)pthread_mutex_destroy(&watch->mutex);
}

void eb_read_watch_attach(struct eb_read_watch *watch)
{
    attached = watch;
}

void eb_read_watch_begin(const char *path)
{
    if (attached) {
        uint64_t now_ms = watch_now_ms();
        pthread_mutex_lock(&attached->mutex);
        attached->since_ms = now_ms;
        (void)snprintf(attached->path, sizeof attached->path, "%s", path);
        pthread_mutex_unlock(&attached->mutex);
    }
}

void eb_read_watch_end(void)
{
    if (attached) {
        pthread_mutex_lock(&attached->mutex);
        attached->since_ms = 0;
        pthread_mutex_unlock(&attached->mutex);
    }
}

enum eb_read_watch_event eb_read_watch_check(
    struct eb_read_watch *watch, uint64_t stall_ms, struct eb_read_stall *stall)
{
    uint64_t now_ms = watch_now_ms();
    pthread_mutex_lock(&watch->mutex);
    uint64_t since_ms = watch->since_ms;
    memcpy(stall->path, watch->path, sizeof stall->path);
    pthread_mutex_unlock(&watch->mutex);
    if (watch->told_since_ms != 0 && since_ms != watch->told_since_ms) {
        watch->told_since_ms = 0;
        return EB_READ_WATCH_RESUMED;
    }
    /* The thread may have noted its read after `now_ms` was read. */
    uint64_t passed_ms = now_ms > since_ms ? now_ms - since_ms : 0;
    if (since_ms == 0 || since_ms == watch->told_since_ms || passed_ms < stall_ms) {
        return EB_READ_WATCH_QUIET;
    }
    watch->told_since_ms = since_ms;
    stall->seconds = passed_ms / MS_PER_S;
    return EB_READ_WATCH_STALLED;
}
