#include "proto/link/credentials_watch.h"

#include "proto/list.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CREDENTIALS_RETRY_MS 1000 /* time between two readings of files that are not valid */

/* ---- reading ---- */

/* Runs on a thread of its own. */
static void read_credentials(struct eb_background_task *task)
{
    struct eb_credentials_watch *watch =
        EB_CONTAINER_OF(task, struct eb_credentials_watch, reading);
    eb_credentials_reopen(&watch->fresh, &watch->access, watch->targets, &watch->fresh_files);
}

static void on_credentials_retry(uv_timer_t *timer);

/* Reads the files in a while, if that may still help. */
static void retry_later(struct eb_credentials_watch *watch)
{
    if (watch->is_patient && uv_now(watch->loop) < watch->patience_ms) {
        int rc = uv_timer_start(&watch->retry, on_credentials_retry, CREDENTIALS_RETRY_MS, 0);
        assert(rc == 0);
    } else {
        watch->is_patient = false;
    }
}

static void begin_reading(struct eb_credentials_watch *watch)
{
    if (watch->reading.is_running) {
        watch->is_due = true;
        return;
    }
    watch->is_due = false;
    if (!eb_background_task_start(&watch->reading)) {
        retry_later(watch);
    }
}

static void on_credentials_retry(uv_timer_t *timer)
{
    begin_reading(EB_CONTAINER_OF(timer, struct eb_credentials_watch, retry));
}

static void on_credentials_change(void *context)
{
    struct eb_credentials_watch *watch = context;
    watch->patience_ms = uv_now(watch->loop) + EB_CREDENTIALS_PATIENCE_MS;
    watch->is_patient = true;
    begin_reading(watch);
}

static void on_credentials_read(struct eb_background_task *task)
{
    struct eb_credentials_watch *watch =
        EB_CONTAINER_OF(task, struct eb_credentials_watch, reading);
    if (!watch->is_running) {
        eb_credentials_close(&watch->fresh);
        eb_file_list_deinit(&watch->fresh_files);
        return;
    }
    /* If out of memory, the former list, of the same files, is still watched. */
    if (watch->fresh_files.count > 0) {
        (void)eb_file_watch_set(&watch->watch, &watch->fresh_files);
    }
    bool is_stale = watch->fresh.stale_reason[0];
    watch->is_patient = watch->is_patient && is_stale;
    watch->on_read(watch->context, eb_credentials_replace(watch->credentials, &watch->fresh));
    if (watch->is_due) {
        begin_reading(watch);
    } else if (is_stale) {
        retry_later(watch);
    }
}

/* ---- life ---- */

/* Appends a copy of a text, which may be NULL, at *at. Returns the copy. */
static const char *copy_text(char **at, const char *text)
{
    if (!text) {
        return NULL;
    }
    char *copy = *at;
    *at = stpcpy(copy, text) + 1;
    return copy;
}

static size_t count_bytes(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

bool eb_credentials_watch_init(struct eb_credentials_watch *watch,
    struct eb_credentials *credentials, const struct eb_access *access,
    const struct eb_targets *targets, struct eb_file_list *files)
{
    *watch = (struct eb_credentials_watch){
        .access = {.tls = access->tls}, .targets = targets, .credentials = credentials};
    char *at = malloc(1 + count_bytes(access->tls_ca) + count_bytes(access->tls_cert) +
                      count_bytes(access->tls_key) + count_bytes(access->tls_server_name) +
                      count_bytes(access->token_file));
    if (!at) {
        eb_file_list_deinit(files);
        return false;
    }
    watch->texts = at;
    watch->access.tls_ca = copy_text(&at, access->tls_ca);
    watch->access.tls_cert = copy_text(&at, access->tls_cert);
    watch->access.tls_key = copy_text(&at, access->tls_key);
    watch->access.tls_server_name = copy_text(&at, access->tls_server_name);
    watch->access.token_file = copy_text(&at, access->token_file);
    watch->files = *files;
    *files = (struct eb_file_list){.files = NULL};
    return true;
}

void eb_credentials_watch_deinit(struct eb_credentials_watch *watch)
{
    assert(!watch->is_running);
    free(watch->texts);
    eb_file_list_deinit(&watch->files);
    watch->texts = NULL;
}

int eb_credentials_watch_start(struct eb_credentials_watch *watch, uv_loop_t *loop)
{
    if (watch->files.count == 0) {
        return 0;
    }
    struct eb_file_watch_options options = {
        .files = watch->files,
        .poll_ms = EB_CREDENTIALS_POLL_MS,
        .on_change = on_credentials_change,
        .context = watch,
    };
    watch->files = (struct eb_file_list){.files = NULL};
    watch->loop = loop;
    watch->reading =
        (struct eb_background_task){.run = read_credentials, .done = on_credentials_read};
    int rc = eb_file_watch_start(&watch->watch, loop, &options);
    if (rc < 0) {
        return rc;
    }
    rc = eb_background_task_open(&watch->reading, loop);
    if (rc < 0) {
        eb_file_watch_stop(&watch->watch);
        return rc;
    }
    rc = uv_timer_init(loop, &watch->retry);
    assert(rc == 0);
    watch->is_running = true;
    return 0;
}

void eb_credentials_watch_stop(struct eb_credentials_watch *watch)
{
    if (!watch->is_running) {
        return;
    }
    watch->is_running = false;
    eb_file_watch_stop(&watch->watch);
    eb_background_task_close(&watch->reading);
    uv_close((uv_handle_t *)&watch->retry, NULL);
}
