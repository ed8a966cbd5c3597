#include "proto/codec_group.h"

#include "proto/codec_common.h"

#include "embag/v1/embedding_bag.fields.h"
#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>
#include <string.h>

static const struct eb_codec_form forms[] = {
    [EB_FIELD_FEATURE_GROUP_VALUES_I64] = {"values_i64", 8, false},
    [EB_FIELD_FEATURE_GROUP_VALUES_I32] = {"values_i32", 4, false},
    [EB_FIELD_FEATURE_GROUP_LENGTHS_I32] = {"lengths_i32", 4, false},
    [EB_FIELD_FEATURE_GROUP_OFFSETS_I64] = {"offsets_i64", 8, false},
    [EB_FIELD_FEATURE_GROUP_OFFSETS_I32] = {"offsets_i32", 4, false},
};

/* The forms of each array, a bit for each field. */
#define FORM(name) (1u << EB_FIELD_FEATURE_GROUP_##name)
#define VALUES (FORM(VALUES_I64) | FORM(VALUES_I32))
#define LENGTHS FORM(LENGTHS_I32)
#define OFFSETS (FORM(OFFSETS_I64) | FORM(OFFSETS_I32))

/* A group that is read. */
struct reading {
    const struct eb_codec_place *place;
    struct eb_codec_arrays arrays;
    struct eb_field_reader name;
    size_t feature_count;
    size_t features_bytes;                 /* of the features' names */
    bool has_empty;                        /* one of them is empty */
    const struct eb_known_features *known; /* all so far are its; NULL: they are not */
    const uint8_t *run;                    /* where the features' fields begin */
    const uint8_t *run_end;                /* where they end; NULL: others lie between them */
    struct eb_wire_group *out;
};

/* What its name is made of is looked at when it is kept. The field is [begin, end). false: the
 * guard does not let it pass. */
static inline bool take_feature(
    struct reading *reading, struct eb_field_reader name, const uint8_t *begin, const uint8_t *end)
{
    if (reading->feature_count == 0) {
        reading->run = begin;
        reading->run_end = begin;
    }
    reading->run_end = reading->run_end == begin ? end : NULL;
    reading->known = NULL;
    reading->feature_count++;
    reading->features_bytes += eb_field_reader_bytes(&name);
    reading->has_empty |= name.at == name.end;
    return eb_codec_is_short(name, reading->place->limits);
}

/* Takes what a field says; of several of one number the last one counts. false: the guard does not
 * let it pass, as it does unknown ones. */
static inline bool take_group_bytes(
    struct reading *reading, const struct eb_field *field, const uint8_t *begin)
{
    const struct eb_guard_limits *limits = reading->place->limits;
    struct eb_codec_arrays *arrays = &reading->arrays;
    struct eb_wire_group *out = reading->out;
    switch (field->number) {
    case EB_FIELD_FEATURE_GROUP_NAME: return eb_codec_take_name(field, limits, &reading->name);
    case EB_FIELD_FEATURE_GROUP_FEATURES:
        return take_feature(reading, field->data, begin, field->data.end);
    case EB_FIELD_FEATURE_GROUP_VALUES_I64:
    case EB_FIELD_FEATURE_GROUP_VALUES_I32:
        eb_codec_take_array(arrays, field->number, field->data, &out->values);
        return true;
    case EB_FIELD_FEATURE_GROUP_LENGTHS_I32:
        eb_codec_take_array(arrays, field->number, field->data, &out->lengths);
        return true;
    case EB_FIELD_FEATURE_GROUP_OFFSETS_I64:
    case EB_FIELD_FEATURE_GROUP_OFFSETS_I32:
        eb_codec_take_array(arrays, field->number, field->data, &out->offsets);
        return true;
    case EB_FIELD_FEATURE_GROUP_WEIGHTS:
        out->weights = field->data.at;
        out->weights_bytes = eb_field_reader_bytes(&field->data);
        return true;
    default: return field->number > EB_FIELD_FEATURE_GROUP_MAX;
    }
}

/* Of any other wire type. */
static inline bool take_number(const struct eb_field *field, struct eb_wire_group *out)
{
    switch (field->tag) {
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_BAGS):
        out->bags = (uint32_t)field->varint;
        return true;
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_WEIGHTS_TYPE):
        out->weights_type = eb_codec_enum_of(field);
        return true;
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_REDUCTION):
        out->reduction = eb_codec_enum_of(field);
        return true;
    case EB_TAG_NUMBER(EB_FIELD_FEATURE_GROUP_MISSING):
        out->missing = eb_codec_enum_of(field);
        return true;
    default: return field->number > EB_FIELD_FEATURE_GROUP_MAX;
    }
}

static inline bool take_group_field(
    struct reading *reading, const struct eb_field *field, const uint8_t *begin)
{
    return field->wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED
               ? take_group_bytes(reading, field, begin)
               : take_number(field, reading->out);
}

/* The longest known list that the message goes on with. NULL: none. */
static const struct eb_known_features *find_group_known(
    const struct eb_codec_place *place, const struct eb_field_reader *message)
{
    const struct eb_known_features *found = NULL;
    for (size_t i = 0; i < place->known_count; i++) {
        const struct eb_known_features *known = &place->known[i];
        if (known->run_bytes <= eb_field_reader_bytes(message) &&
            (!found || known->run_bytes > found->run_bytes) &&
            memcmp(message->at, known->run, known->run_bytes) == 0) {
            found = known;
        }
    }
    return found;
}

/* Moves past the group's first features where they are a known list's, and then counts their
 * fields. */
static bool take_known(
    struct reading *reading, struct eb_field_reader *message, uint32_t *field_count)
{
    if (reading->feature_count > 0 ||
        *message->at != EB_TAG_BYTES(EB_FIELD_FEATURE_GROUP_FEATURES)) {
        return false;
    }
    const struct eb_known_features *known = find_group_known(reading->place, message);
    if (!known) {
        return false;
    }
    reading->known = known;
    reading->run = message->at;
    message->at += known->run_bytes;
    reading->run_end = message->at;
    reading->feature_count = known->count;
    reading->features_bytes = known->text_bytes;
    *field_count += (uint32_t)known->count;
    return true;
}

static bool read_group_fields(struct reading *reading)
{
    const struct eb_codec_place *place = reading->place;
    struct eb_field_reader message = reading->arrays.message;
    struct eb_field_reader feature;
    uint32_t count = 0;
    while (message.at < message.end) {
        if (take_known(reading, &message, &count)) {
            continue;
        }
        const uint8_t *begin = message.at;
        struct eb_field field;
        const bool is_sound =
            eb_field_reader_take_next(&message, EB_FIELD_FEATURE_GROUP_FEATURES, &feature)
                ? take_feature(reading, feature, begin, message.at)
                : !eb_field_reader_read(&message, &field) &&
                      take_group_field(reading, &field, begin);
        count++;
        if (!is_sound) {
            return eb_codec_fail(place);
        }
    }
    return eb_codec_count_fields(place->limits, count, place->field_count) || eb_codec_fail(place);
}

/* Keeps the names of the features. */
static bool keep_features(const struct reading *reading)
{
    const struct eb_codec_place *place = reading->place;
    struct eb_wire_group *out = reading->out;
    const size_t text_bytes = reading->features_bytes + reading->feature_count;
    if (reading->run_end) {
        out->run = reading->run;
        out->run_bytes = (size_t)(reading->run_end - reading->run);
    }
    if (reading->known) {
        out->known = reading->known;
        out->features = reading->known->names;
        out->feature_count = reading->known->count;
        return true;
    }
    const char **features = eb_codec_take_elements(
        place->arena, reading->feature_count, sizeof *features, place->error);
    char *text = eb_codec_take_elements(place->arena, text_bytes, 1, place->error);
    if (!features || !text) {
        return false;
    }
    out->features = features;
    out->feature_count = reading->feature_count;
    struct eb_field_reader message = reading->arrays.message;
    struct eb_field_reader name;
    for (size_t i = 0; i < out->feature_count &&
                       eb_codec_find_field(&message, EB_FIELD_FEATURE_GROUP_FEATURES, &name);
         i++) {
        features[i] = text;
        if (!eb_codec_copy_name(text, name)) {
            return eb_codec_fail(place);
        }
        text += eb_field_reader_bytes(&name) + 1;
    }
    return true;
}

static bool check_group_features(const struct reading *reading)
{
    const struct eb_codec_place *place = reading->place;
    const struct eb_wire_group *group = reading->out;
    if (group->name[0] != 0 && group->feature_count > 0) {
        return eb_codec_refuse(place, "name and features are two forms of one list");
    }
    for (size_t i = 0; reading->has_empty && i < group->feature_count; i++) {
        if (group->features[i][0] == 0) {
            return eb_codec_refuse(place, "features[%zu] is empty", i);
        }
    }
    return true;
}

static bool check_group_enums(const struct eb_codec_place *place, const struct eb_wire_group *group)
{
    return eb_codec_check_enum(
               place, "reduction", &embag__v1__reduction__descriptor, group->reduction) &&
           eb_codec_check_enum(place, "missing", &embag__v1__missing__descriptor, group->missing) &&
           eb_codec_check_enum(
               place, "weights_type", &embag__v1__data_type__descriptor, group->weights_type);
}

static bool choose_group_arrays(const struct reading *reading)
{
    const struct eb_codec_place *place = reading->place;
    struct eb_wire_group *out = reading->out;
    if (!eb_codec_choose_array(place, &reading->arrays, VALUES, &out->values) ||
        !eb_codec_choose_array(place, &reading->arrays, LENGTHS, &out->lengths) ||
        !eb_codec_choose_array(place, &reading->arrays, OFFSETS, &out->offsets)) {
        return false;
    }
    if (out->lengths.field && out->offsets.field) {
        return eb_codec_refuse(
            place, "%s and %s say two layouts", out->lengths.field, out->offsets.field);
    }
    return true;
}

bool eb_codec_group_read(
    struct eb_codec_place *place, struct eb_field_reader bytes, struct eb_wire_group *out)
{
    struct reading reading = {
        .place = place, .arrays = {.forms = forms, .message = bytes}, .out = out};
    eb_codec_clear(out, sizeof *out);
    if (!read_group_fields(&reading)) {
        return false;
    }
    out->name = eb_codec_keep_text(reading.name, place->arena, place->error);
    if (!out->name) {
        return false;
    }
    place->name = out->name;
    return keep_features(&reading) && check_group_enums(place, out) &&
           check_group_features(&reading) && choose_group_arrays(&reading);
}

void eb_codec_group_write(struct eb_field_writer *writer, const struct eb_wire_group *group)
{
    assert(group->lengths.width != 8);
    eb_field_put_text(writer, EB_FIELD_FEATURE_GROUP_NAME, group->name);
    for (size_t i = 0; i < group->feature_count; i++) {
        const char *feature = group->features[i];
        size_t size = strlen(feature);
        eb_field_put_length(writer, EB_FIELD_FEATURE_GROUP_FEATURES, size);
        eb_field_put_content(writer, feature, size);
    }
    eb_field_put_number(writer, EB_FIELD_FEATURE_GROUP_BAGS, group->bags);
    eb_codec_put_array(writer, &group->values, EB_FIELD_FEATURE_GROUP_VALUES_I64,
        EB_FIELD_FEATURE_GROUP_VALUES_I32);
    eb_field_put_bytes(
        writer, EB_FIELD_FEATURE_GROUP_LENGTHS_I32, group->lengths.data, group->lengths.bytes);
    eb_codec_put_array(writer, &group->offsets, EB_FIELD_FEATURE_GROUP_OFFSETS_I64,
        EB_FIELD_FEATURE_GROUP_OFFSETS_I32);
    eb_field_put_bytes(
        writer, EB_FIELD_FEATURE_GROUP_WEIGHTS, group->weights, group->weights_bytes);
    eb_field_put_enum(writer, EB_FIELD_FEATURE_GROUP_WEIGHTS_TYPE, group->weights_type);
    eb_field_put_enum(writer, EB_FIELD_FEATURE_GROUP_REDUCTION, group->reduction);
    eb_field_put_enum(writer, EB_FIELD_FEATURE_GROUP_MISSING, group->missing);
}
