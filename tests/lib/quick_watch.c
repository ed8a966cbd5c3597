/* Makes watches on files report changes after QUICK_QUIET_MS instead of a second, so that tests
 * need not wait that long for each. A test program gets it by linking embag_quick_watch and
 * wrapping eb_file_watch_start. */
#include "proto/net/file_watch.h"

#define QUICK_QUIET_MS 50

int __real_eb_file_watch_start(
    struct eb_file_watch *watch, uv_loop_t *loop, const struct eb_file_watch_options *options);
int __wrap_eb_file_watch_start(
    struct eb_file_watch *watch, uv_loop_t *loop, const struct eb_file_watch_options *options);

int __wrap_eb_file_watch_start(
    struct eb_file_watch *watch, uv_loop_t *loop, const struct eb_file_watch_options *options)
{
    struct eb_file_watch_options quick = *options;
    quick.quiet_ms = QUICK_QUIET_MS;
    return __real_eb_file_watch_start(watch, loop, &quick);
}
