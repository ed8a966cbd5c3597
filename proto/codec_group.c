#include "proto/codec_group.h"

#include "proto/unpack.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <assert.h>

static const struct eb_codec_enum enums[] = {
    {"reduction", 11, &embag__v1__reduction__descriptor},
    {"missing", 12, &embag__v1__missing__descriptor},
    {"weights_type", 10, &embag__v1__data_type__descriptor},
};

static const enum eb_codec_kind kinds[EB_CODEC_FIELDS_END] = {
    [1] = EB_CODEC_NAME,
    [EB_CODEC_GROUP_FEATURES_FIELD] = EB_CODEC_NAME,
    [3] = EB_CODEC_NUMBER,
    [4] = EB_CODEC_BYTES,
    [5] = EB_CODEC_BYTES,
    [6] = EB_CODEC_BYTES,
    [7] = EB_CODEC_BYTES,
    [8] = EB_CODEC_BYTES,
    [9] = EB_CODEC_BYTES,
    [10] = EB_CODEC_NUMBER,
    [11] = EB_CODEC_NUMBER,
    [12] = EB_CODEC_NUMBER,
};

static const struct eb_codec_form forms[] = {
    [4] = {"values_i64", 8, false},
    [5] = {"values_i32", 4, false},
    [6] = {"lengths_i32", 4, false},
    [7] = {"offsets_i64", 8, false},
    [8] = {"offsets_i32", 4, false},
};

#define VALUES (3u << 4)
#define LENGTHS (1u << 6)
#define OFFSETS (3u << 7)

/* Keeps the names of the features. */
static bool read_features(const struct eb_codec_place *place, const struct eb_codec_fields *fields,
    struct eb_wire_group *out)
{
    size_t count = fields->counts[EB_CODEC_GROUP_FEATURES_FIELD];
    const char **features = eb_unpack_take(place->arena, count, sizeof *features, place->error);
    if (!features) {
        return false;
    }
    struct eb_field_reader message = fields->message;
    for (size_t i = 0; i < count; i++) {
        features[i] =
            eb_codec_fields_keep(eb_codec_fields_next(&message, EB_CODEC_GROUP_FEATURES_FIELD),
                place->arena, place->error);
        if (!features[i]) {
            return false;
        }
    }
    out->feature_count = count;
    out->features = features;
    return true;
}

static bool check_features(const struct eb_codec_place *place, const struct eb_wire_group *group)
{
    if (group->name[0] != 0 && group->feature_count > 0) {
        return eb_codec_form_refuse(place, "name and features are two forms of one list");
    }
    for (size_t i = 0; i < group->feature_count; i++) {
        if (group->features[i][0] == 0) {
            return eb_codec_form_refuse(place, "features[%zu] is empty", i);
        }
    }
    return true;
}

static bool choose_arrays(const struct eb_codec_place *place, const struct eb_codec_fields *fields,
    struct eb_wire_group *out)
{
    if (!eb_codec_form_choose(place, fields, forms, VALUES, &out->values) ||
        !eb_codec_form_choose(place, fields, forms, LENGTHS, &out->lengths) ||
        !eb_codec_form_choose(place, fields, forms, OFFSETS, &out->offsets)) {
        return false;
    }
    if (out->lengths.field && out->offsets.field) {
        return eb_codec_form_refuse(
            place, "%s and %s say two layouts", out->lengths.field, out->offsets.field);
    }
    return true;
}

bool eb_codec_group_read(
    struct eb_codec_place *place, struct eb_field_reader bytes, struct eb_wire_group *out)
{
    struct eb_codec_fields fields;
    if (!eb_codec_form_read(place, &fields, bytes, kinds)) {
        return false;
    }
    *out = (struct eb_wire_group){
        .name = eb_codec_fields_text(&fields, 1, place->arena, place->error),
        .bags = (uint32_t)eb_codec_fields_value(&fields, 3),
        .weights = eb_codec_fields_bytes(&fields, 9),
        .weights_bytes = eb_codec_fields_value(&fields, 9),
        .weights_type = eb_codec_fields_enum(&fields, 10),
        .reduction = eb_codec_fields_enum(&fields, 11),
        .missing = eb_codec_fields_enum(&fields, 12),
    };
    place->name = out->name;
    return out->name && read_features(place, &fields, out) &&
           eb_codec_form_check_enums(place, &fields, enums, sizeof enums / sizeof *enums) &&
           check_features(place, out) && choose_arrays(place, &fields, out);
}

void eb_codec_group_write(struct eb_field_writer *writer, const struct eb_wire_group *group)
{
    assert(group->lengths.width != 8);
    eb_field_put_text(writer, 1, group->name);
    for (size_t i = 0; i < group->feature_count; i++) {
        const char *feature = group->features[i];
        size_t size = strlen(feature);
        eb_field_put_length(writer, 2, size);
        eb_field_put_content(writer, feature, size);
    }
    eb_field_put_number(writer, 3, group->bags);
    eb_codec_form_put(writer, &group->values, 4, 5);
    eb_field_put_bytes(writer, 6, group->lengths.data, group->lengths.bytes);
    eb_codec_form_put(writer, &group->offsets, 7, 8);
    eb_field_put_bytes(writer, 9, group->weights, group->weights_bytes);
    eb_field_put_enum(writer, 10, group->weights_type);
    eb_field_put_enum(writer, 11, group->reduction);
    eb_field_put_enum(writer, 12, group->missing);
}
