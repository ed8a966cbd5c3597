#include "proto/codec_infer_parameter.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Room for the names of all parameters, or of all values of one. */
#define NAMES_BYTES 256

/* Triton's priorities: 1 is the highest, 0 the server's choice. */
#define PRIORITY_HIGHEST 1
#define PRIORITY_LOWEST 2

#define KEY_FIELD 1
#define VALUE_FIELD 2
#define ENTRY_FIELD_LAST 2

/* Fields of an InferParameter. */
#define BOOL_FIELD 1
#define INT64_FIELD 2
#define STRING_FIELD 3
#define DOUBLE_FIELD 4
#define UINT64_FIELD 5
#define PARAMETER_FIELD_LAST 5

static const char *const names[] = {
#define X(name, constant) [EB_CODEC_PARAMETER_##constant] = #name,
    EB_CODEC_PARAMETER_LIST(X)
#undef X
};

/* Parameters whose values are those of an enum, without their prefix and in small letters. */
static const struct {
    const ProtobufCEnumDescriptor *type;
    const char *prefix;
} enums[] = {
    [EB_CODEC_PARAMETER_REDUCTION] = {&embag__v1__reduction__descriptor, "REDUCTION_"},
    [EB_CODEC_PARAMETER_MISSING] = {&embag__v1__missing__descriptor, "MISSING_"},
    [EB_CODEC_PARAMETER_OUTPUT_TYPE] = {&embag__v1__data_type__descriptor, "DATA_TYPE_"},
};

/* An entry that is read. */
struct entry {
    struct eb_field_reader key;
    uint32_t form; /* field of InferParameter, the last one of several; 0: none */
    uint64_t number;
    struct eb_field_reader text;
};

/* Text that is cut where it is full. */
struct list {
    size_t used;
    char text[NAMES_BYTES];
};

static void append_parameter(struct list *list, const char *name)
{
    const char *comma = list->used > 0 ? ", " : "";
    for (const char *at = comma; *at != '\0' && list->used + 1 < sizeof list->text; at++) {
        list->text[list->used++] = *at;
    }
    for (const char *at = name; *at != '\0' && list->used + 1 < sizeof list->text; at++) {
        list->text[list->used++] = (char)tolower((unsigned char)*at);
    }
    list->text[list->used] = '\0';
}

/* Sets INVALID_ARGUMENT, its text naming the place. Returns false. */
static bool refuse_parameter(const struct eb_codec_place *place, const char *text)
{
    if (place->list) {
        return eb_codec_refuse(place, "%s", text);
    }
    eb_error_set(place->error, EB_STATUS_INVALID_ARGUMENT, "%s", text);
    return false;
}

static bool fail_parameter(const struct eb_codec_place *place)
{
    if (place->list) {
        return eb_codec_fail(place);
    }
    eb_error_set(place->error, EB_STATUS_INTERNAL, "parameters cannot be read");
    return false;
}

/* Takes a field of InferParameter, of which the last one counts. false: the guard does not let it
 * pass, as it does unknown ones. */
static bool take_value(
    const struct eb_codec_place *place, const struct eb_field *field, struct entry *out)
{
    switch (field->tag) {
    case EB_TAG_NUMBER(BOOL_FIELD):
    case EB_TAG_NUMBER(INT64_FIELD):
    case EB_TAG_NUMBER(UINT64_FIELD): out->number = field->varint; break;
    case EB_TAG_FIXED64(DOUBLE_FIELD): break;
    case EB_TAG_BYTES(STRING_FIELD):
        if (!eb_codec_take_name(field, place->limits, &out->text)) {
            return false;
        }
        break;
    default: return field->number > PARAMETER_FIELD_LAST;
    }
    out->form = field->number;
    return true;
}

static bool read_parameter_value(
    const struct eb_codec_place *place, struct eb_field_reader message, struct entry *out)
{
    uint32_t count = 0;
    for (; message.at < message.end; count++) {
        struct eb_field field;
        if (eb_field_reader_read(&message, &field) || !take_value(place, &field, out)) {
            return false;
        }
    }
    return eb_codec_count_fields(place->limits, count, place->field_count);
}

static bool read_entry(
    const struct eb_codec_place *place, struct eb_field_reader message, struct entry *out)
{
    uint32_t count = 0;
    bool has_value = false;
    *out = (struct entry){.form = 0};
    for (; message.at < message.end; count++) {
        struct eb_field field;
        if (eb_field_reader_read(&message, &field)) {
            return false;
        }
        bool is_good = field.number > ENTRY_FIELD_LAST;
        if (field.tag == EB_TAG_BYTES(KEY_FIELD)) {
            is_good = eb_codec_take_name(&field, place->limits, &out->key);
        } else if (field.tag == EB_TAG_BYTES(VALUE_FIELD)) {
            is_good = !has_value && read_parameter_value(place, field.data, out);
            has_value = true;
        }
        if (!is_good) {
            return false;
        }
    }
    return eb_codec_count_fields(place->limits, count, place->field_count);
}

static bool equals_word(struct eb_field_reader text, const char *name)
{
    const size_t size = eb_field_reader_bytes(&text);
    return size == strlen(name) && memcmp(text.at, name, size) == 0;
}

/* Triton keeps these names for what it tells itself; its perf_analyzer sends one with every
 * request, triton_enable_empty_final_response, which says nothing about a call with one answer. */
static bool is_tritons_own(struct eb_field_reader name)
{
    static const char prefix[] = "triton_";
    const size_t size = sizeof prefix - 1;
    return eb_field_reader_bytes(&name) >= size && memcmp(name.at, prefix, size) == 0;
}

static bool refuse_name(
    const struct eb_codec_place *place, const struct entry *entry, unsigned allowed)
{
    struct list list = {.used = 0};
    char text[EB_ERROR_TEXT_BYTES];
    for (unsigned i = 0; i < EB_CODEC_PARAMETER_COUNT; i++) {
        if ((allowed >> i & 1) != 0) {
            append_parameter(&list, names[i]);
        }
    }
    snprintf(text, sizeof text, "parameter \"%.*s\" is not taken here; %s%s",
        (int)eb_field_reader_bytes(&entry->key), (const char *)entry->key.at,
        allowed != 0 ? "those are: " : "none is", list.text);
    return refuse_parameter(place, text);
}

static bool refuse_value(
    const struct eb_codec_place *place, enum eb_codec_parameter parameter, const char *wanted)
{
    char text[EB_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "parameter \"%s\" wants %s", names[parameter], wanted);
    return refuse_parameter(place, text);
}

static bool refuse_word(const struct eb_codec_place *place, enum eb_codec_parameter parameter)
{
    const ProtobufCEnumDescriptor *type = enums[parameter].type;
    struct list list = {.used = 0};
    char wanted[NAMES_BYTES + sizeof "a string, one of "];
    for (unsigned i = 1; i < type->n_values; i++) {
        append_parameter(&list, type->values[i].name + strlen(enums[parameter].prefix));
    }
    snprintf(wanted, sizeof wanted, "a string, one of %s", list.text);
    return refuse_value(place, parameter, wanted);
}

static bool is_parameter_word(struct eb_field_reader text, const char *name)
{
    while (text.at < text.end && *name != '\0' && *text.at == tolower((unsigned char)*name)) {
        text.at++;
        name++;
    }
    return text.at == text.end && *name == '\0';
}

/* A value of an enum, but for the unspecified one. */
static bool take_word(const struct eb_codec_place *place, const struct entry *entry,
    enum eb_codec_parameter parameter, int32_t *out)
{
    const ProtobufCEnumDescriptor *type = enums[parameter].type;
    for (unsigned i = 1; entry->form == STRING_FIELD && i < type->n_values; i++) {
        if (is_parameter_word(
                entry->text, type->values[i].name + strlen(enums[parameter].prefix))) {
            *out = type->values[i].value;
            return true;
        }
    }
    return refuse_word(place, parameter);
}

static bool is_integer(const struct entry *entry)
{
    const bool is_int64 = entry->form == INT64_FIELD;
    return is_int64 || (entry->form == UINT64_FIELD && entry->number <= INT64_MAX);
}

static bool check_flag(const struct eb_codec_place *place, const struct entry *entry,
    enum eb_codec_parameter parameter)
{
    return entry->form == BOOL_FIELD || refuse_value(place, parameter, "a boolean");
}

/* Reads Triton's priority: 0 and 1 mean interactive, 2 means batch, which is served later. */
static bool take_priority(
    const struct eb_codec_place *place, const struct entry *entry, struct eb_infer_options *options)
{
    options->priority = entry->number > PRIORITY_HIGHEST;
    return (is_integer(entry) && entry->number <= PRIORITY_LOWEST) ||
           refuse_value(place, EB_CODEC_PARAMETER_PRIORITY,
               "0 or 1, which are interactive, or 2, which is batch");
}

/* Accepts a sequence parameter whose value says that the request belongs to no sequence. */
static bool take_no_sequence(const struct eb_codec_place *place, const struct entry *entry,
    enum eb_codec_parameter parameter)
{
    const bool is_id = parameter == EB_CODEC_PARAMETER_SEQUENCE_ID;
    const bool is_empty = entry->form == STRING_FIELD && eb_field_reader_bytes(&entry->text) == 0;
    const bool is_none = is_id ? is_empty || (is_integer(entry) && entry->number == 0)
                               : entry->form == BOOL_FIELD && entry->number == 0;
    return is_none ||
           refuse_value(place, parameter,
               is_id ? "0: there are no sequences, since no state is kept between requests"
                     : "false: there are no sequences, since no state is kept between requests");
}

static bool take_raw_bytes(
    const struct eb_codec_place *place, const struct entry *entry, struct eb_infer_options *options)
{
    options->has_raw_bytes = true;
    options->raw_bytes = entry->number;
    return (entry->form == INT64_FIELD && entry->number <= INT64_MAX) ||
           refuse_value(place, EB_CODEC_PARAMETER_BINARY_DATA_SIZE,
               "an int64, the number of bytes of the input's raw contents");
}

static bool take_parameter(const struct eb_codec_place *place, const struct entry *entry,
    enum eb_codec_parameter parameter, struct eb_infer_options *options)
{
    switch (parameter) {
    case EB_CODEC_PARAMETER_REDUCTION:
        return take_word(place, entry, parameter, &options->reduction);
    case EB_CODEC_PARAMETER_MISSING: return take_word(place, entry, parameter, &options->missing);
    case EB_CODEC_PARAMETER_OUTPUT_TYPE:
        return take_word(place, entry, parameter, &options->output_type);
    case EB_CODEC_PARAMETER_DEFAULT_INDEX:
        options->has_default = true;
        options->default_index = (int64_t)entry->number;
        return is_integer(entry) || refuse_value(place, parameter, "an integer");
    case EB_CODEC_PARAMETER_INCLUDE_LAST_OFFSET:
        options->has_last_offset = true;
        options->include_last_offset = entry->number != 0;
        return check_flag(place, entry, parameter);
    case EB_CODEC_PARAMETER_TIMEOUT:
        options->timeout_us = entry->number;
        return (is_integer(entry) && entry->number <= INT64_MAX) ||
               refuse_value(place, parameter, "microseconds, an integer from 0 on");
    case EB_CODEC_PARAMETER_PRIORITY: return take_priority(place, entry, options);
    case EB_CODEC_PARAMETER_SEQUENCE_ID:
    case EB_CODEC_PARAMETER_SEQUENCE_START:
    case EB_CODEC_PARAMETER_SEQUENCE_END: return take_no_sequence(place, entry, parameter);
    case EB_CODEC_PARAMETER_BINARY_DATA_SIZE: return take_raw_bytes(place, entry, options);
    case EB_CODEC_PARAMETER_BINARY_DATA:
    case EB_CODEC_PARAMETER_BINARY_DATA_OUTPUT:
        /* Without effect: over gRPC outputs are always binary. */
        return check_flag(place, entry, parameter);
    case EB_CODEC_PARAMETER_COUNT: break;
    }
    return false;
}

/* Takes an entry that has been read. */
static bool take_entry(const struct eb_codec_place *place, const struct entry *entry,
    unsigned allowed, struct eb_infer_options *options)
{
    for (unsigned i = 0; i < EB_CODEC_PARAMETER_COUNT; i++) {
        if (equals_word(entry->key, names[i]) && (allowed >> i & 1) != 0) {
            return take_parameter(place, entry, (enum eb_codec_parameter)i, options);
        }
    }
    return is_tritons_own(entry->key) || refuse_name(place, entry, allowed);
}

bool eb_codec_infer_parameter_read_all(const struct eb_codec_place *place,
    struct eb_field_reader message, uint32_t number, unsigned allowed,
    struct eb_infer_options *options)
{
    struct eb_field_reader bytes;
    struct entry entry;
    while (eb_codec_find_field(&message, number, &bytes)) {
        if (!read_entry(place, bytes, &entry)) {
            return fail_parameter(place);
        }
        if (!take_entry(place, &entry, allowed, options)) {
            return false;
        }
    }
    return true;
}
