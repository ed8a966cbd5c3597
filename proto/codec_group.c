#include "proto/codec_group.h"

#include <assert.h>

static bool check_enums(const struct eb_codec_place *place, const Embag__V1__FeatureGroup *group)
{
    const struct eb_codec_enum enums[] = {
        {"reduction", (int)group->reduction, &embag__v1__reduction__descriptor},
        {"missing", (int)group->missing, &embag__v1__missing__descriptor},
        {"weights_type", (int)group->weights_type, &embag__v1__data_type__descriptor},
    };
    return eb_codec_form_check_enums(place, enums, sizeof enums / sizeof *enums);
}

static bool check_features(const struct eb_codec_place *place, const Embag__V1__FeatureGroup *group)
{
    if (group->name[0] != 0 && group->n_features > 0) {
        return eb_codec_form_refuse(place, "name and features are two forms of one list");
    }
    for (size_t i = 0; i < group->n_features; i++) {
        if (group->features[i][0] == 0) {
            return eb_codec_form_refuse(place, "features[%zu] is empty", i);
        }
    }
    return true;
}

static bool choose_arrays(const struct eb_codec_place *place, const Embag__V1__FeatureGroup *group,
    struct eb_wire_group *out)
{
    const struct eb_wire_array values[] = {
        eb_codec_form_of_bytes("values_i64", group->values_i64, 8),
        eb_codec_form_of_bytes("values_i32", group->values_i32, 4),
    };
    const struct eb_wire_array lengths =
        eb_codec_form_of_bytes("lengths_i32", group->lengths_i32, 4);
    const struct eb_wire_array offsets[] = {
        eb_codec_form_of_bytes("offsets_i64", group->offsets_i64, 8),
        eb_codec_form_of_bytes("offsets_i32", group->offsets_i32, 4),
    };
    if (!eb_codec_form_choose(place, values, 2, &out->values) ||
        !eb_codec_form_choose(place, &lengths, 1, &out->lengths) ||
        !eb_codec_form_choose(place, offsets, 2, &out->offsets)) {
        return false;
    }
    if (out->lengths.field && out->offsets.field) {
        return eb_codec_form_refuse(
            place, "%s and %s say two layouts", out->lengths.field, out->offsets.field);
    }
    return true;
}

bool eb_codec_group_translate(const struct eb_codec_place *place,
    const Embag__V1__FeatureGroup *group, struct eb_wire_group *out)
{
    *out = (struct eb_wire_group){
        .name = group->name,
        .feature_count = group->n_features,
        .features = (const char *const *)group->features,
        .bags = group->bags,
        .weights = group->weights.data,
        .weights_bytes = group->weights.len,
        .weights_type = (int32_t)group->weights_type,
        .reduction = (int32_t)group->reduction,
        .missing = (int32_t)group->missing,
    };
    return check_enums(place, group) && check_features(place, group) &&
           choose_arrays(place, group, out);
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
