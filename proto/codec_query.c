#include "proto/codec_query.h"

#include "embag/v1/embedding_bag.pb-c.h"

static const struct eb_codec_enum enums[] = {
    {"reduction", 2, &embag__v1__reduction__descriptor},
    {"missing", 3, &embag__v1__missing__descriptor},
    {"weights_type", 17, &embag__v1__data_type__descriptor},
    {"layout", 20, &embag__v1__bag_layout__descriptor},
};

static const enum eb_codec_kind kinds[EB_CODEC_FIELDS_END] = {
    [1] = EB_CODEC_NAME,
    [2] = EB_CODEC_NUMBER,
    [3] = EB_CODEC_NUMBER,
    [4] = EB_CODEC_BYTES,
    [5] = EB_CODEC_BYTES,
    [6] = EB_CODEC_INTEGERS,
    [7] = EB_CODEC_BYTES,
    [8] = EB_CODEC_BYTES,
    [9] = EB_CODEC_INTEGERS,
    [10] = EB_CODEC_NUMBER,
    [11] = EB_CODEC_BYTES,
    [12] = EB_CODEC_BYTES,
    [13] = EB_CODEC_INTEGERS,
    [14] = EB_CODEC_NUMBER,
    [15] = EB_CODEC_NUMBER,
    [16] = EB_CODEC_BYTES,
    [17] = EB_CODEC_NUMBER,
    [18] = EB_CODEC_FLOATS,
    [19] = EB_CODEC_NUMBER,
    [20] = EB_CODEC_NUMBER,
    [21] = EB_CODEC_NUMBER,
    [22] = EB_CODEC_BYTES,
    [23] = EB_CODEC_BYTES,
};

static const struct eb_codec_form forms[] = {
    [4] = {"indices_i64", 8, false},
    [5] = {"indices_i32", 4, false},
    [6] = {"indices", 8, true},
    [7] = {"offsets_i64", 8, false},
    [8] = {"offsets_i32", 4, false},
    [9] = {"offsets", 8, true},
    [11] = {"segment_ids_i64", 8, false},
    [12] = {"segment_ids_i32", 4, false},
    [13] = {"segment_ids", 8, true},
    [22] = {"lengths_i32", 4, false},
    [23] = {"lengths_i64", 8, false},
};

#define INDICES (7u << 4)
#define OFFSETS (7u << 7)
#define SEGMENT_IDS (7u << 11)
#define LENGTHS (3u << 22)

static bool choose_arrays(const struct eb_codec_place *place, const struct eb_codec_fields *fields,
    struct eb_wire_query *out)
{
    return eb_codec_form_choose(place, fields, forms, INDICES, &out->indices) &&
           eb_codec_form_choose(place, fields, forms, OFFSETS, &out->offsets) &&
           eb_codec_form_choose(place, fields, forms, LENGTHS, &out->lengths) &&
           eb_codec_form_choose(place, fields, forms, SEGMENT_IDS, &out->segment_ids);
}

/* Fills in out->layout from the fields that are there, which must agree with it where it is said.
 */
static bool choose_layout(const struct eb_codec_place *place, struct eb_wire_query *out)
{
    const char *packed = out->indices_per_bag != 0 ? "indices_per_bag" : NULL;
    const char *segments = out->num_segments != 0 ? "num_segments" : out->segment_ids.field;
    const struct {
        int32_t layout;
        const char *field; /* that says so; NULL: none does */
    } layouts[] = {
        {EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS, out->offsets.field},
        {EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_LENGTHS, out->lengths.field},
        {EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_PACKED, packed},
        {EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_SEGMENTS, segments},
    };
    const char *said_by = out->layout != 0 ? "layout" : NULL;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (!layouts[i].field) {
            continue;
        }
        if (said_by && out->layout != layouts[i].layout) {
            return eb_codec_form_refuse(
                place, "%s and %s say two layouts", said_by, layouts[i].field);
        }
        out->layout = layouts[i].layout;
        said_by = layouts[i].field;
    }
    if (out->include_last_offset && said_by &&
        out->layout != EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS) {
        return eb_codec_form_refuse(place, "include_last_offset and %s say two layouts", said_by);
    }
    return true;
}

/* Weights of their own field are taken already. */
static bool choose_weights(const struct eb_codec_place *place, const struct eb_codec_fields *fields,
    struct eb_wire_query *out)
{
    if (!eb_codec_fields_has(fields, 18)) {
        return true;
    }
    size_t bytes;
    const void *floats = eb_codec_fields_floats(fields, 18, &bytes, place->arena, place->error);
    if (!floats || bytes == 0) {
        return floats != NULL;
    }
    if (out->weights_bytes > 0) {
        return eb_codec_form_refuse(place, "weights and weights_f32 are two forms of one array");
    }
    if (out->weights_type != EMBAG__V1__DATA_TYPE__DATA_TYPE_UNSPECIFIED &&
        out->weights_type != EMBAG__V1__DATA_TYPE__DATA_TYPE_F32) {
        return eb_codec_form_refuse(
            place, "weights_f32 is not of weights_type = %d", (int)out->weights_type);
    }
    out->weights = floats;
    out->weights_bytes = bytes;
    out->weights_type = EMBAG__V1__DATA_TYPE__DATA_TYPE_F32;
    return true;
}

bool eb_codec_query_read(
    struct eb_codec_place *place, struct eb_field_reader bytes, struct eb_wire_query *out)
{
    struct eb_codec_fields fields;
    if (!eb_codec_form_read(place, &fields, bytes, kinds)) {
        return false;
    }
    *out = (struct eb_wire_query){
        .table = eb_codec_fields_text(&fields, 1, place->arena, place->error),
        .reduction = eb_codec_fields_enum(&fields, 2),
        .missing = eb_codec_fields_enum(&fields, 3),
        .layout = eb_codec_fields_enum(&fields, 20),
        .indices_per_bag = (uint32_t)eb_codec_fields_value(&fields, 10),
        .num_segments = eb_codec_fields_value(&fields, 14),
        .num_bags = eb_codec_fields_value(&fields, 21),
        .include_last_offset = eb_codec_fields_value(&fields, 15) != 0,
        .has_default = eb_codec_fields_has(&fields, 19),
        .default_index = (int64_t)eb_codec_fields_value(&fields, 19),
        .weights = eb_codec_fields_bytes(&fields, 16),
        .weights_bytes = eb_codec_fields_value(&fields, 16),
        .weights_type = eb_codec_fields_enum(&fields, 17),
    };
    place->name = out->table;
    if (!out->table) {
        return false;
    }
    if (out->table[0] == 0) {
        return eb_codec_form_refuse(place, "table is empty");
    }
    return eb_codec_form_check_enums(place, &fields, enums, sizeof enums / sizeof *enums) &&
           choose_arrays(place, &fields, out) && choose_layout(place, out) &&
           choose_weights(place, &fields, out);
}

void eb_codec_query_write(struct eb_field_writer *writer, const struct eb_wire_query *query)
{
    eb_field_put_text(writer, 1, query->table);
    eb_field_put_enum(writer, 2, query->reduction);
    eb_field_put_enum(writer, 3, query->missing);
    eb_codec_form_put(writer, &query->indices, 4, 5);
    eb_codec_form_put(writer, &query->offsets, 7, 8);
    eb_field_put_number(writer, 10, query->indices_per_bag);
    eb_codec_form_put(writer, &query->segment_ids, 11, 12);
    eb_field_put_number(writer, 14, query->num_segments);
    eb_field_put_number(writer, 15, query->include_last_offset);
    eb_field_put_bytes(writer, 16, query->weights, query->weights_bytes);
    eb_field_put_enum(writer, 17, query->weights_type);
    if (query->has_default) {
        eb_field_put_present(writer, 19, (uint64_t)query->default_index);
    }
    eb_field_put_enum(writer, 20, query->layout);
    eb_field_put_number(writer, 21, query->num_bags);
    eb_codec_form_put(writer, &query->lengths, 23, 22);
}
