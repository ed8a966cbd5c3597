#include "server/settings_update.h"

#include "proto/list.h"
#include "server/base/log.h"
#include "server/base/name.h"
#include "server/config_parts.h"
#include "server/net/loop.h"
#include "server/net/watchers.h"
#include "server/publish/manager.h"
#include "server/rpc/service.h"
#include "server/work/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WATCH_POLL_MS 10000 /* time between two scans of the file, which find all changes */
#define ESCAPE_BYTES 4      /* bytes of \xNN, which stands for a byte that is not UTF-8 */

/* Carries the settings to one loop, and comes back when the loop has taken them over. */
struct handed_settings {
    struct eb_mail mail;
    struct eb_loop *loop;
    struct handout *handout;
};

/* New settings that not every loop has taken over yet. */
struct handout {
    struct eb_settings_update *update;
    struct eb_settings_request *request; /* done when all loops have taken over; NULL if none */
    struct eb_loop_limits loop_limits;
    struct eb_service_settings service;
    size_t open_count;              /* loops that have not taken over the settings */
    struct handed_settings loops[]; /* [open_count] */
};

/* ---- handing out ---- */

static void end_handout(struct handout *handout)
{
    if (handout->request) {
        handout->request->on_done(handout->request);
    }
    free(handout);
}

static void on_handed_back(struct eb_mail *mail)
{
    struct handout *handout = EB_CONTAINER_OF(mail, struct handed_settings, mail)->handout;
    handout->open_count--;
    if (handout->open_count == 0) {
        end_handout(handout);
    }
}

/* Runs on the loop's thread. */
static void on_settings_mail(struct eb_mail *mail)
{
    struct handed_settings *handed = EB_CONTAINER_OF(mail, struct handed_settings, mail);
    const struct handout *handout = handed->handout;
    eb_loop_set_limits(handed->loop, &handout->loop_limits);
    eb_service_set(handed->loop, &handout->service);
    handed->mail.deliver = on_handed_back;
    eb_mailbox_post(handout->update->subjects.mailbox, &handed->mail);
}

/* Returns NULL if out of memory. */
static struct handout *create_handout(struct eb_settings_update *update)
{
    size_t count = update->subjects.loop_count;
    struct handout *handout = calloc(1, sizeof *handout + count * sizeof handout->loops[0]);
    if (handout) {
        handout->update = update;
        handout->open_count = count;
        for (size_t i = 0; i < count; i++) {
            handout->loops[i] = (struct handed_settings){
                .mail = {.deliver = on_settings_mail},
                .loop = update->subjects.loops[i],
                .handout = handout,
            };
        }
    }
    return handout;
}

/* Hands the settings in force to the manager, the executor and all loops. */
static void hand_out(struct eb_settings_update *update, struct handout *handout)
{
    const struct eb_config *config = &update->live.running;
    struct eb_manager_options options = {.directory = config->model_repository};
    eb_config_set_manager_options(config, &options);
    eb_manager_set(update->subjects.manager, &options);
    eb_executor_set_queue_bytes_max(update->subjects.executor, config->limits.queue_bytes_max);
    handout->loop_limits = eb_config_loop_limits(config);
    handout->service = eb_config_service_settings(config);
    for (size_t i = 0; i < update->subjects.loop_count; i++) {
        eb_mailbox_post(eb_loop_mailbox(handout->loops[i].loop), &handout->loops[i].mail);
    }
}

/* ---- reading again ---- */

/* Makes room in main's loop for the sockets of more connections. */
static bool watch_more_files(const struct eb_settings_update *update,
    const struct eb_config_change *change, struct eb_failure *failure)
{
    uint64_t connections_max = change->next.limits.connections_max;
    if (connections_max <= update->live.running.limits.connections_max) {
        return true;
    }
    eb_config_raise_file_limit(&change->next);
    int rc = eb_watchers_extend(update->subjects.uv, connections_max);
    return rc == 0 || eb_failure_set(failure, "connections_max: %s", uv_strerror(rc));
}

/* Adds the file, with the stamp that it had before it was read. Returns false if out of memory. */
static bool list_file(struct eb_file_list *list, const struct eb_config *config)
{
    if (!eb_file_list_add(list, config->config_file)) {
        return false;
    }
    list->files[0].stamp = config->file_stamp;
    return true;
}

/* Watches the file again, so that a change since it was read last causes a reload. */
static void watch_again(struct eb_settings_update *update, const struct eb_config *read)
{
    struct eb_file_list list = {.files = NULL};
    bool is_watched = update->live.running.watch_settings == EB_CONFIG_TRUE && read->config_file;
    if (is_watched && !(list_file(&list, read) && eb_file_watch_set(&update->watch, &list))) {
        eb_log(EB_LOG_WARN, "watch_failed", eb_log_text("reason", "out of memory"),
            eb_log_text("remedy", "send SIGHUP if the file of settings changes"));
    }
}

/* Reads the settings and puts them in force. Returns NULL with *failure set if that fails; then
 * nothing has changed. */
static struct handout *read_and_apply(
    struct eb_settings_update *update, size_t *changed_count, struct eb_failure *failure)
{
    struct eb_config_change change = {0};
    struct handout *handout = create_handout(update);
    bool is_good = (handout || eb_failure_set(failure, "out of memory")) &&
                   eb_config_live_read(&update->live, &change, failure) &&
                   watch_more_files(update, &change, failure);
    if (is_good) {
        *changed_count = change.changed_count;
        eb_config_live_apply(&update->live, &change);
        hand_out(update, handout);
    } else {
        free(handout);
        handout = NULL;
    }
    watch_again(update, is_good ? &update->live.read : &change.read);
    eb_config_change_deinit(&change);
    return handout;
}

static struct handout *reload(
    struct eb_settings_update *update, size_t *changed_count, struct eb_failure *failure)
{
    struct handout *handout = read_and_apply(update, changed_count, failure);
    if (!handout) {
        eb_log(EB_LOG_ERROR, "reload_failed", eb_log_text("what", "settings"),
            eb_log_text("reason", failure->text),
            eb_log_text(
                "remedy", "correct it and reload again; until then the settings stay as they are"));
    }
    return handout;
}

bool eb_settings_update_reload(struct eb_settings_update *update)
{
    struct eb_failure failure;
    size_t changed_count;
    return reload(update, &changed_count, &failure);
}

/* ---- watching the file ---- */

static void on_file_change(void *context)
{
    struct eb_settings_update *update = context;
    bool is_good = eb_settings_update_reload(update);
    if (update->on_reload) {
        update->on_reload(update->context, is_good);
    }
}

static void on_file_unreported(void *context, int error)
{
    (void)context;
    eb_log(EB_LOG_WARN, "watch_failed", eb_log_text("reason", uv_strerror(error)),
        eb_log_number("poll_ms", WATCH_POLL_MS),
        eb_log_text("remedy", "raise fs.inotify.max_user_watches or max_user_instances; until then "
                              "the server scans the file of settings every poll_ms"));
}

int eb_settings_update_watch(struct eb_settings_update *update)
{
    const struct eb_config *config = &update->live.running;
    struct eb_file_watch_options options = {
        .poll_ms = WATCH_POLL_MS,
        .on_change = on_file_change,
        .on_unreported = on_file_unreported,
        .context = update,
    };
    if (config->watch_settings == EB_CONFIG_FALSE || !config->config_file) {
        return 0;
    }
    if (!list_file(&options.files, config)) {
        return UV_ENOMEM;
    }
    return eb_file_watch_start(&update->watch, update->subjects.uv, &options);
}

void eb_settings_update_stop(struct eb_settings_update *update)
{
    eb_file_watch_stop(&update->watch);
}

const char *eb_settings_update_left(const struct eb_settings_update *update)
{
    return eb_file_watch_is_scanning(&update->watch) ? update->live.running.config_file : NULL;
}

/* ---- requests ---- */

static void reload_for(struct eb_settings_update *update, struct eb_settings_request *request)
{
    struct eb_failure failure;
    size_t changed_count;
    struct handout *handout = reload(update, &changed_count, &failure);
    if (handout) {
        handout->request = request;
        request->error.status = EB_STATUS_OK;
        request->reload = (struct eb_wire_reload){
            (uint32_t)changed_count, (uint32_t)eb_config_live_count_pending(&update->live)};
    } else {
        eb_error_set(&request->error, EB_STATUS_FAILED_PRECONDITION, "%s", failure.text);
    }
    if (update->on_reload) {
        update->on_reload(update->context, handout);
    }
    if (!handout) {
        request->on_done(request);
    }
}

/* Writes the value to `out`, which has room for ESCAPE_BYTES for each of its bytes. A message holds
 * only UTF-8, but a path may have any bytes; those that are not UTF-8 become \xNN. */
static void write_value(const char *value, char *out)
{
    size_t left = strlen(value);
    while (left > 0) {
        size_t bytes = eb_name_char_bytes((const uint8_t *)value, left);
        if (bytes > 0) {
            out = mempcpy(out, value, bytes);
        } else {
            out += snprintf(out, ESCAPE_BYTES + 1, "\\x%02x", (unsigned)(uint8_t)*value);
            bytes = 1;
        }
        value += bytes;
        left -= bytes;
    }
    *out = '\0';
}

/* Returns the value as a text in the request's memory. Returns NULL if out of memory. */
static const char *copy_value(struct eb_settings_request *request, const struct eb_config *config,
    const struct eb_config_setting *setting)
{
    char value[EB_CONFIG_VALUE_BYTES];
    eb_config_setting_format(config, setting, value);
    char *copy = eb_arena_take(&request->arena, ESCAPE_BYTES * strlen(value) + 1);
    if (copy) {
        write_value(value, copy);
    }
    return copy;
}

/* Fills in a setting of a list. Returns false if out of memory. */
static bool list_setting(const struct eb_config_live *live, struct eb_settings_request *request,
    const struct eb_config_setting *setting, struct eb_wire_setting *out)
{
    size_t index = (size_t)(setting - eb_config_settings);
    bool is_pending = eb_config_live_is_pending(live, setting);
    *out = (struct eb_wire_setting){
        .name = setting->name,
        .value = copy_value(request, &live->running, setting),
        .origin = live->running.sources[index],
        .live = setting->effect == EB_CONFIG_LIVE,
        .pending = is_pending,
        .pending_value = is_pending ? copy_value(request, &live->read, setting) : "",
    };
    return out->value && out->pending_value;
}

static void list_settings(const struct eb_config_live *live, struct eb_settings_request *request)
{
    struct eb_wire_setting *settings =
        eb_arena_take(&request->arena, EB_CONFIG_SETTING_COUNT * sizeof *settings);
    bool is_good = settings;
    for (size_t i = 0; is_good && i < EB_CONFIG_SETTING_COUNT; i++) {
        is_good = list_setting(live, request, &eb_config_settings[i], &settings[i]);
    }
    request->error.status = EB_STATUS_OK;
    request->list = (struct eb_wire_setting_list){EB_CONFIG_SETTING_COUNT, settings};
    if (!is_good) {
        eb_error_set(&request->error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left; retry later");
    }
    request->on_done(request);
}

void eb_settings_update_ask(
    struct eb_settings_update *update, struct eb_settings_request *request, bool is_stopping)
{
    if (request->verb == EB_SETTINGS_LIST) {
        list_settings(&update->live, request);
    } else if (is_stopping) {
        eb_error_set(&request->error, EB_STATUS_UNAVAILABLE, "the server is shutting down");
        request->on_done(request);
    } else {
        reload_for(update, request);
    }
}
