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
