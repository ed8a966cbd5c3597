#include "server/security_watch.h"

#include "proto/list.h"
#include "server/base/log.h"

#include <assert.h>

/* Watches the files that were read last. */
static void watch_read_files(struct eb_security_watched *watched)
{
    struct eb_file_list files =
        eb_security_take_files(watched->watch->options.security, watched->kind);
    if (!eb_file_watch_set(&watched->files, &files)) {
        eb_log(EB_LOG_WARN, "watch_failed", eb_log_text("reason", "out of memory"),
            eb_log_text("remedy", "send SIGHUP if the files of tls_cert or auth_file change"));
    }
}

static void on_retry_timer(uv_timer_t *timer);

/* Reads the files of one kind again. Reports the result, unless the files are not valid and will be
 * read once more. */
static void reread_files(struct eb_security_watched *watched)
{
    struct eb_security_watch *watch = watched->watch;
    const struct eb_security_watch_options *options = &watch->options;
    struct eb_failure failure;
    bool was_trying = uv_is_active((uv_handle_t *)&watched->retry);
    uint64_t now_ms = uv_now(watch->loop);
    bool is_good = eb_security_reload_kind(
        options->security, watched->kind, options->loops, options->loop_count, &failure);
    watch_read_files(watched);
    if (!is_good && !was_trying) {
        watched->patience_ms = now_ms + EB_SECURITY_PATIENCE_MS;
        int rc = uv_timer_start(
            &watched->retry, on_retry_timer, EB_SECURITY_RETRY_MS, EB_SECURITY_RETRY_MS);
        assert(rc == 0);
        eb_log(EB_LOG_INFO, "reload_delayed",
            eb_log_text("what", eb_security_kind_name(watched->kind)),
            eb_log_text("reason", failure.text),
            eb_log_number("tried_for_ms", EB_SECURITY_PATIENCE_MS));
        return;
    }
    if (!is_good && now_ms < watched->patience_ms) {
        return;
    }
    uv_timer_stop(&watched->retry);
    if (!is_good) {
        eb_security_log_kept(watched->kind, &failure);
    }
    options->on_reloaded(options->context, is_good);
}

static void on_retry_timer(uv_timer_t *timer)
{
    reread_files(EB_CONTAINER_OF(timer, struct eb_security_watched, retry));
}

static void on_security_change(void *context)
{
    reread_files(context);
}

static void on_security_unreported(void *context, int error)
{
    struct eb_security_watched *watched = context;
    struct eb_security_watch *watch = watched->watch;
    if (watch->has_warned) {
        return;
    }
    watch->has_warned = true;
    eb_log(EB_LOG_WARN, "watch_failed", eb_log_text("reason", uv_strerror(error)),
        eb_log_number("poll_ms", (int64_t)watch->options.poll_ms),
        eb_log_text("remedy", "raise fs.inotify.max_user_watches or max_user_instances; until then "
                              "the server scans certificates and auth_file every poll_ms"));
}

static int watch_kind(struct eb_security_watched *watched)
{
    struct eb_security_watch *watch = watched->watch;
    struct eb_file_watch_options options = {
        .files = eb_security_take_files(watch->options.security, watched->kind),
        .poll_ms = watch->options.poll_ms,
        .is_polling_only = watch->options.is_polling_only,
        .on_change = on_security_change,
        .on_unreported = on_security_unreported,
        .context = watched,
    };
    int rc = uv_timer_init(watch->loop, &watched->retry);
    assert(rc == 0);
    return options.files.count > 0 ? eb_file_watch_start(&watched->files, watch->loop, &options)
                                   : 0;
}

int eb_security_watch_start(struct eb_security_watch *watch, uv_loop_t *loop,
    const struct eb_security_watch_options *options)
{
    int rc = 0;
    *watch = (struct eb_security_watch){.options = *options, .loop = loop, .is_running = true};
    for (int i = 0; i < EB_SECURITY_KINDS; i++) {
        watch->watched[i].watch = watch;
        watch->watched[i].kind = (enum eb_security_kind)i;
        int kind_rc = watch_kind(&watch->watched[i]);
        rc = rc < 0 ? rc : kind_rc;
    }
    return rc;
}

void eb_security_watch_renew(struct eb_security_watch *watch)
{
    for (int i = 0; watch->is_running && i < EB_SECURITY_KINDS; i++) {
        uv_timer_stop(&watch->watched[i].retry);
        watch_read_files(&watch->watched[i]);
    }
}

const char *eb_security_watch_left(const struct eb_security_watch *watch)
{
    for (int i = 0; i < EB_SECURITY_KINDS; i++) {
        if (eb_file_watch_is_scanning(&watch->watched[i].files)) {
            return eb_security_kind_file(watch->options.security, watch->watched[i].kind);
        }
    }
    return NULL;
}

void eb_security_watch_stop(struct eb_security_watch *watch)
{
    for (int i = 0; watch->is_running && i < EB_SECURITY_KINDS; i++) {
        eb_file_watch_stop(&watch->watched[i].files);
        uv_close((uv_handle_t *)&watch->watched[i].retry, NULL);
    }
    watch->is_running = false;
}
