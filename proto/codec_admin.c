#include "proto/codec_admin.h"

#include "proto/codec_common.h"
#include "proto/field.h"

#include "embag/v1/model_admin.fields.h"
#include "embag/v1/model_admin.pb-c.h"

/* Largest accepted number of fields, including unknown ones. The message declares two. */
#define REQUEST_FIELDS_MAX 64

struct eb_wire_model_query *eb_version_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_error *error)
{
    struct eb_codec_input input = {&embag__v1__version_request__descriptor, bytes, size,
        {.fields_max = REQUEST_FIELDS_MAX, .name_bytes_max = limits->name_bytes_max}};
    const Embag__V1__VersionRequest *message = eb_codec_unpack(arena, &input, error);
    struct eb_wire_model_query *request =
        message ? eb_codec_take_elements(arena, 1, sizeof *request, error) : NULL;
    if (request) {
        *request = (struct eb_wire_model_query){message->model, message->version};
    }
    return request;
}

static void write_admin_request(
    struct eb_field_writer *writer, const struct eb_wire_model_query *request)
{
    eb_field_put_text(writer, EB_FIELD_VERSION_REQUEST_MODEL, request->model);
    eb_field_put_number(writer, EB_FIELD_VERSION_REQUEST_VERSION, request->version);
}

size_t eb_version_request_bytes(const struct eb_wire_model_query *request)
{
    struct eb_field_writer counter = {.out = NULL};
    write_admin_request(&counter, request);
    return counter.bytes;
}

void eb_version_request_encode(const struct eb_wire_model_query *request, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_admin_request(&writer, request);
}

struct eb_wire_progress *eb_version_progress_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_codec_input input = {
        &embag__v1__version_progress__descriptor, bytes, size, eb_codec_answer_limits};
    const Embag__V1__VersionProgress *message = eb_codec_unpack(arena, &input, error);
    struct eb_wire_progress *progress =
        message ? eb_codec_take_elements(arena, 1, sizeof *progress, error) : NULL;
    if (progress) {
        *progress = (struct eb_wire_progress){
            message->done_bytes, message->total_bytes, message->done, message->text};
    }
    return progress;
}

static void write_progress(struct eb_field_writer *writer, const struct eb_wire_progress *progress)
{
    eb_field_put_number(writer, EB_FIELD_VERSION_PROGRESS_DONE_BYTES, progress->done_bytes);
    eb_field_put_number(writer, EB_FIELD_VERSION_PROGRESS_TOTAL_BYTES, progress->total_bytes);
    eb_field_put_number(writer, EB_FIELD_VERSION_PROGRESS_DONE, progress->done);
    eb_field_put_text(writer, EB_FIELD_VERSION_PROGRESS_TEXT, progress->text);
}

size_t eb_version_progress_bytes(const struct eb_wire_progress *progress)
{
    struct eb_field_writer counter = {.out = NULL};
    write_progress(&counter, progress);
    return counter.bytes;
}

void eb_version_progress_encode(const struct eb_wire_progress *progress, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_progress(&writer, progress);
}

/* ---- settings ---- */

struct eb_wire_reload *eb_reload_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_codec_input input = {
        &embag__v1__reload_settings_response__descriptor, bytes, size, eb_codec_answer_limits};
    const Embag__V1__ReloadSettingsResponse *message = eb_codec_unpack(arena, &input, error);
    struct eb_wire_reload *reload =
        message ? eb_codec_take_elements(arena, 1, sizeof *reload, error) : NULL;
    if (reload) {
        *reload = (struct eb_wire_reload){message->changed, message->pending};
    }
    return reload;
}

static void write_reload(struct eb_field_writer *writer, const struct eb_wire_reload *reload)
{
    eb_field_put_number(writer, EB_FIELD_RELOAD_SETTINGS_RESPONSE_CHANGED, reload->changed);
    eb_field_put_number(writer, EB_FIELD_RELOAD_SETTINGS_RESPONSE_PENDING, reload->pending);
}

size_t eb_reload_bytes(const struct eb_wire_reload *reload)
{
    struct eb_field_writer counter = {.out = NULL};
    write_reload(&counter, reload);
    return counter.bytes;
}

void eb_reload_encode(const struct eb_wire_reload *reload, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_reload(&writer, reload);
}

struct eb_wire_setting_list *eb_setting_list_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_codec_input input = {
        &embag__v1__list_settings_response__descriptor, bytes, size, eb_codec_answer_limits};
    const Embag__V1__ListSettingsResponse *message = eb_codec_unpack(arena, &input, error);
    struct eb_wire_setting_list *list =
        message ? eb_codec_take_elements(arena, 1, sizeof *list, error) : NULL;
    struct eb_wire_setting *settings =
        list ? eb_codec_take_elements(arena, message->n_settings, sizeof *settings, error) : NULL;
    if (!settings) {
        return NULL;
    }
    for (size_t i = 0; i < message->n_settings; i++) {
        const Embag__V1__Setting *setting = message->settings[i];
        settings[i] = (struct eb_wire_setting){setting->name, setting->value,
            (int32_t)setting->origin, setting->live, setting->pending, setting->pending_value};
    }
    *list = (struct eb_wire_setting_list){message->n_settings, settings};
    return list;
}

static void write_setting(struct eb_field_writer *writer, const struct eb_wire_setting *setting)
{
    eb_field_put_text(writer, EB_FIELD_SETTING_NAME, setting->name);
    eb_field_put_text(writer, EB_FIELD_SETTING_VALUE, setting->value);
    eb_field_put_enum(writer, EB_FIELD_SETTING_ORIGIN, setting->origin);
    eb_field_put_number(writer, EB_FIELD_SETTING_LIVE, setting->live);
    eb_field_put_number(writer, EB_FIELD_SETTING_PENDING, setting->pending);
    eb_field_put_text(writer, EB_FIELD_SETTING_PENDING_VALUE, setting->pending_value);
}

static size_t setting_bytes(const struct eb_wire_setting *setting)
{
    struct eb_field_writer counter = {.out = NULL};
    write_setting(&counter, setting);
    return counter.bytes;
}

static void write_setting_list(
    struct eb_field_writer *writer, const struct eb_wire_setting_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        eb_field_put_length(
            writer, EB_FIELD_LIST_SETTINGS_RESPONSE_SETTINGS, setting_bytes(&list->settings[i]));
        write_setting(writer, &list->settings[i]);
    }
}

size_t eb_setting_list_bytes(const struct eb_wire_setting_list *list)
{
    struct eb_field_writer counter = {.out = NULL};
    write_setting_list(&counter, list);
    return counter.bytes;
}

void eb_setting_list_encode(const struct eb_wire_setting_list *list, uint8_t *out)
{
    struct eb_field_writer writer = {.out = out};
    write_setting_list(&writer, list);
}
