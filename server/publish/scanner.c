#include "server/publish/scanner.h"

#include "proto/list.h"
#include "server/base/log.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- watch ---- */

bool eb_watch_update(struct eb_directory_watch *watch, const char *directory,
    const struct eb_repository *seen, int *error)
{
    *error = 0;
    bool is_new = eb_directory_watch_see(watch, directory, error);
    for (size_t i = 0; i < seen->count; i++) {
        is_new = eb_directory_watch_see(watch, seen->models[i].path, error) || is_new;
    }
    eb_directory_watch_keep_seen(watch);
    return is_new;
}

/* ---- scanner ---- */

/* Time from the first event to the scan, because the events of one rename or copy come together. */
#define SETTLE_MS 20

/* Logs once why the repository cannot be read. */
static void note_scanner_failure(struct eb_scanner *scanner, const char *why)
{
    if (why && !(scanner->told_failure && strcmp(scanner->told_failure, why) == 0)) {
        eb_log(EB_LOG_WARN, "repository_unreadable", eb_log_text("reason", why),
            eb_log_text("remedy", "check the directory and its permissions; until it can be read, "
                                  "models stay as they are"));
    }
    free(scanner->told_failure);
    scanner->told_failure = why ? strdup(why) : NULL;
}

static void watch(struct eb_scanner *scanner)
{
    int error;
    if (!scanner->is_watching) {
        return;
    }
    if (eb_watch_update(&scanner->watch, scanner->directory, &scanner->seen, &error)) {
        scanner->is_asked = true;
    }
    if (error < 0) {
        scanner->is_watching = false;
        eb_directory_watch_close(&scanner->watch);
        eb_log(EB_LOG_WARN, "watch_failed", eb_log_text("reason", uv_strerror(error)),
            eb_log_number("poll_ms", (int64_t)scanner->poll_ms),
            eb_log_text("remedy", "raise fs.inotify.max_user_watches or max_user_instances; "
                                  "until then the server scans the directories instead; set watch "
                                  "again, or restart"));
    }
}

static void take_over(struct eb_scanner *scanner)
{
    note_scanner_failure(scanner, scanner->is_good ? NULL : scanner->failure.text);
    if (scanner->is_good) {
        eb_repository_deinit(&scanner->seen);
        scanner->seen = scanner->found;
        scanner->found = (struct eb_repository){0};
        watch(scanner);
    }
}

static void on_scan_done(struct eb_job *job)
{
    struct eb_scanner *scanner = EB_CONTAINER_OF(job, struct eb_scanner, job);
    scanner->is_busy = false;
    if (scanner->is_stopping) {
        eb_repository_deinit(&scanner->found);
        scanner->on_scanned(scanner->context, false);
        return;
    }
    take_over(scanner);
    bool is_asked = scanner->is_asked;
    scanner->is_asked = false;
    scanner->on_scanned(scanner->context, scanner->is_good);
    if (is_asked) {
        eb_scanner_scan(scanner);
    }
}

/* Scans the repository. `seen` does not change meanwhile. */
static void run_scan(struct eb_job *job)
{
    struct eb_scanner *scanner = EB_CONTAINER_OF(job, struct eb_scanner, job);
    scanner->is_good = eb_repository_scan(
        scanner->directory, &scanner->terms, &scanner->seen, &scanner->found, &scanner->failure);
}

void eb_scanner_scan(struct eb_scanner *scanner)
{
    if (scanner->is_stopping) {
        return;
    }
    if (scanner->is_busy) {
        scanner->is_asked = true;
        return;
    }
    scanner->is_busy = true;
    scanner->on_begun(scanner->context);
    scanner->job = (struct eb_job){.run = run_scan, .done = on_scan_done};
    eb_worker_post(&scanner->worker, &scanner->job);
}

static void on_scanner_timer(uv_timer_t *timer)
{
    eb_scanner_scan(timer->data);
}

static void on_change(void *context)
{
    struct eb_scanner *scanner = context;
    if (!uv_is_active((uv_handle_t *)&scanner->settle)) {
        uv_timer_start(&scanner->settle, on_scanner_timer, SETTLE_MS, 0);
    }
}

int eb_scanner_start(struct eb_scanner *scanner, uv_loop_t *loop)
{
    int rc = eb_worker_start(&scanner->worker, loop);
    if (rc < 0) {
        return rc;
    }
    eb_worker_give_way(&scanner->worker);
    scanner->is_running = true;
    uv_timer_init(loop, &scanner->poll);
    uv_timer_init(loop, &scanner->settle);
    scanner->poll.data = scanner;
    scanner->settle.data = scanner;
    scanner->watch =
        (struct eb_directory_watch){.loop = loop, .on_change = on_change, .context = scanner};
    if (scanner->poll_ms > 0) {
        uv_timer_start(&scanner->poll, on_scanner_timer, scanner->poll_ms, scanner->poll_ms);
        eb_scanner_scan(scanner);
    }
    return 0;
}

void eb_scanner_set(struct eb_scanner *scanner, bool is_watching, uint64_t poll_ms)
{
    if (scanner->is_stopping) {
        return;
    }
    bool is_new = (is_watching && !scanner->is_watching) || (poll_ms > 0 && scanner->poll_ms == 0);
    if (!is_watching) {
        eb_directory_watch_close(&scanner->watch);
    }
    scanner->is_watching = is_watching;
    if (poll_ms != scanner->poll_ms) {
        uv_timer_stop(&scanner->poll);
        if (poll_ms > 0) {
            uv_timer_start(&scanner->poll, on_scanner_timer, poll_ms, poll_ms);
        }
    }
    scanner->poll_ms = poll_ms;
    if (is_new) {
        eb_scanner_scan(scanner);
    }
}

void eb_scanner_stop(struct eb_scanner *scanner)
{
    scanner->is_stopping = true;
    if (!scanner->is_running) {
        return;
    }
    eb_directory_watch_close(&scanner->watch);
    uv_close((uv_handle_t *)&scanner->poll, NULL);
    uv_close((uv_handle_t *)&scanner->settle, NULL);
}

void eb_scanner_close(struct eb_scanner *scanner)
{
    assert(scanner->is_stopping && !scanner->is_busy);
    if (scanner->is_running) {
        eb_worker_stop(&scanner->worker);
    }
}

void eb_scanner_deinit(struct eb_scanner *scanner)
{
    eb_repository_deinit(&scanner->seen);
    free(scanner->told_failure);
    scanner->told_failure = NULL;
}
