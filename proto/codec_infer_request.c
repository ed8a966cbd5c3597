/* ModelInferRequest. */
#include "proto/codec_infer.h"
#include "proto/codec_infer_tensor.h"

#include "embag/v1/embedding_bag.pb-c.h"
#include "inference/open_inference.pb-c.h"

#include <string.h>

/* As of a LookupRequest. */
#define OTHER_FIELDS_MAX 4096u
#define QUERY_FIELDS_MAX 64u

/* Inputs of a table. */
#define QUERY_INPUTS_MAX 3u

#define PARAMETERS_FIELD 4
#define INPUTS_FIELD 5
#define OUTPUTS_FIELD 6
#define RAW_FIELD 7
#define FIELD_LAST 7

#define PARAMETER(name) (1u << EB_CODEC_PARAMETER_##name)

/* A request that is read. */
struct reading {
    struct eb_arena *arena;
    struct eb_error *error;
    struct eb_guard_limits limits;
    struct eb_field_reader message;
    struct eb_field_reader model;
    struct eb_field_reader version;
    struct eb_field_reader id;
    size_t input_count;
    size_t output_count;
    size_t raw_count;
    uint32_t field_count;
};

static struct eb_guard_limits infer_request_limits(const struct eb_codec_limits *limits)
{
    const uint64_t fields = OTHER_FIELDS_MAX + (uint64_t)limits->queries_max * QUERY_FIELDS_MAX;
    return (struct eb_guard_limits){
        .fields_max = fields < UINT32_MAX ? (uint32_t)fields : UINT32_MAX,
        .name_bytes_max = limits->name_bytes_max + EB_INFER_SUFFIX_BYTES_MAX,
        .submessages_max = UINT32_MAX, /* Each is a field too. */
    };
}

/* Takes what a field of the request itself says; of several of one number the last one counts.
 * false: the guard does not let it pass, as it does unknown ones. */
static bool take_infer_field(struct reading *reading, const struct eb_field *field)
{
    const struct eb_guard_limits *limits = &reading->limits;
    switch (field->tag) {
    case EB_TAG_BYTES(1): return eb_codec_take_name(field, limits, &reading->model);
    case EB_TAG_BYTES(2): return eb_codec_take_name(field, limits, &reading->version);
    case EB_TAG_BYTES(3): return eb_codec_take_name(field, limits, &reading->id);
    case EB_TAG_BYTES(PARAMETERS_FIELD): return true;
    case EB_TAG_BYTES(INPUTS_FIELD): reading->input_count++; return true;
    case EB_TAG_BYTES(OUTPUTS_FIELD): reading->output_count++; return true;
    case EB_TAG_BYTES(RAW_FIELD): reading->raw_count++; return true;
    default: return field->number > FIELD_LAST;
    }
}

static bool read_infer_fields(struct reading *reading)
{
    struct eb_field_reader message = reading->message;
    uint32_t count = 0;
    bool is_sound = true;
    for (; message.at < message.end && is_sound; count++) {
        struct eb_field field;
        is_sound = !eb_field_reader_read(&message, &field) && take_infer_field(reading, &field);
    }
    if (is_sound && eb_codec_count_fields(&reading->limits, count, &reading->field_count)) {
        return true;
    }
    eb_error_set(reading->error, EB_STATUS_INTERNAL, "ModelInferRequest cannot be read");
    return false;
}

/* What concerns the request as a whole. */
static bool check_infer_counts(const struct reading *reading, const struct eb_codec_limits *limits)
{
    if (reading->output_count > limits->queries_max ||
        reading->input_count > (size_t)QUERY_INPUTS_MAX * limits->queries_max) {
        eb_error_set(reading->error, EB_STATUS_RESOURCE_EXHAUSTED,
            "%zu inputs and %zu outputs are more than a request may have: those of %u tables",
            reading->input_count, reading->output_count, (unsigned)limits->queries_max);
        return false;
    }
    if (reading->raw_count > 0 && reading->raw_count != reading->input_count) {
        eb_error_set(reading->error, EB_STATUS_INVALID_ARGUMENT,
            "raw_input_contents has %zu elements for %zu inputs; it has one of each, or none",
            reading->raw_count, reading->input_count);
        return false;
    }
    return true;
}

static bool read_inputs(
    struct reading *reading, struct eb_codec_place *place, struct eb_infer_request *out)
{
    struct eb_field_reader inputs = reading->message;
    struct eb_field_reader raws = reading->message;
    struct eb_field_reader bytes;
    struct eb_field_reader raw;
    out->inputs = eb_codec_take_elements(
        reading->arena, reading->input_count, sizeof *out->inputs, reading->error);
    bool is_good = out->inputs;
    place->list = "inputs";
    while (is_good && eb_codec_find_field(&inputs, INPUTS_FIELD, &bytes)) {
        const bool is_raw = eb_codec_find_field(&raws, RAW_FIELD, &raw);
        place->index = out->input_count++;
        place->name = "";
        is_good = eb_codec_infer_tensor_read_input(
            place, bytes, is_raw ? &raw : NULL, &out->inputs[place->index]);
    }
    return is_good;
}

static bool read_outputs(
    struct reading *reading, struct eb_codec_place *place, struct eb_infer_request *out)
{
    struct eb_field_reader outputs = reading->message;
    struct eb_field_reader bytes;
    out->outputs = eb_codec_take_elements(
        reading->arena, reading->output_count, sizeof *out->outputs, reading->error);
    bool is_good = out->outputs;
    place->list = "outputs";
    while (is_good && eb_codec_find_field(&outputs, OUTPUTS_FIELD, &bytes)) {
        place->index = out->output_count++;
        place->name = "";
        is_good = eb_codec_infer_tensor_read_output(place, bytes, &out->outputs[place->index]);
    }
    return is_good;
}

/* What of a LookupRequest is said here too. */
static bool read_infer_head(struct reading *reading, struct eb_codec_place *place,
    const struct eb_codec_limits *limits, struct eb_infer_request *out)
{
    struct eb_arena *arena = reading->arena;
    struct eb_error *error = reading->error;
    struct eb_wire_request *request = &out->request;
    const unsigned parameters = PARAMETER(REDUCTION) | PARAMETER(MISSING) | PARAMETER(OUTPUT_TYPE) |
                                PARAMETER(DEFAULT_INDEX) | PARAMETER(INCLUDE_LAST_OFFSET) |
                                PARAMETER(TIMEOUT) | PARAMETER(PRIORITY) | PARAMETER(SEQUENCE_ID) |
                                PARAMETER(SEQUENCE_START) | PARAMETER(SEQUENCE_END) |
                                PARAMETER(BINARY_DATA_OUTPUT);
    const char *version = eb_codec_keep_text(reading->version, arena, error);
    request->model = eb_codec_keep_text(reading->model, arena, error);
    request->version_label = "";
    request->infer = out;
    out->id = eb_codec_keep_text(reading->id, arena, error);
    if (!version || !request->model || !out->id) {
        return false;
    }
    if (eb_field_reader_bytes(&reading->model) > limits->name_bytes_max) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "model_name is longer than a name may be, %u bytes", (unsigned)limits->name_bytes_max);
        return false;
    }
    if (!eb_infer_version_read(version, &request->version, error) ||
        !eb_codec_infer_parameter_read_all(
            place, reading->message, PARAMETERS_FIELD, parameters, &out->options)) {
        return false;
    }
    request->output_type = out->options.output_type;
    request->timeout_us = out->options.timeout_us;
    request->priority = out->options.priority;
    return true;
}

static struct eb_infer_request *read_infer_request(
    struct reading *reading, const struct eb_codec_limits *limits)
{
    struct eb_codec_place place = {
        .arena = reading->arena,
        .error = reading->error,
        .limits = &reading->limits,
        .field_count = &reading->field_count,
    };
    struct eb_infer_request *out =
        eb_codec_take_elements(reading->arena, 1, sizeof *out, reading->error);
    if (!out) {
        return NULL;
    }
    memset(out, 0, sizeof *out);
    const bool is_good = read_infer_fields(reading) && check_infer_counts(reading, limits) &&
                         read_infer_head(reading, &place, limits, out) &&
                         read_inputs(reading, &place, out) && read_outputs(reading, &place, out);
    return is_good ? out : NULL;
}

/* What has been read to its end has nothing that the guard refuses; where there is an error, the
 * guard, which looks at all bytes, comes first. */
struct eb_infer_request *eb_infer_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_decode_failure *failure)
{
    struct reading reading = {
        .arena = arena,
        .error = &failure->error,
        .limits = infer_request_limits(limits),
        .message = eb_field_reader_of(bytes, size),
    };
    struct eb_infer_request *request = read_infer_request(&reading, limits);
    if (!request) {
        (void)eb_guard_check(&inference__model_infer_request__descriptor, bytes, size,
            &reading.limits, &failure->error);
        failure->request_id = 0;
        failure->cancel = false;
        failure->undecodable = failure->error.status == EB_STATUS_INTERNAL;
    }
    return request;
}
