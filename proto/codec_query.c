#include "proto/codec_query.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <string.h>

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
#define WEIGHTS_F32 (1u << 18)

#define FIELD_LAST 23

/* A query that is read. */
struct reading {
    const struct eb_codec_place *place;
    struct eb_codec_arrays arrays;
    struct eb_field_reader table;
    struct eb_wire_query *out;
};

/* Takes what a field says; of several of one number the last one counts. false: the guard does not
 * let it pass, as it does unknown ones. */
static inline __attribute__((always_inline)) bool take_field(
    struct reading *reading, const struct eb_field *field)
{
    struct eb_codec_arrays *arrays = &reading->arrays;
    struct eb_wire_query *out = reading->out;
    const uint64_t value = field->varint;
    const size_t bytes = eb_field_reader_bytes(&field->data);
    switch (field->tag) {
    case EB_TAG_BYTES(1):
        return eb_codec_fields_take_name(field, reading->place->limits, &reading->table);
    case EB_TAG_NUMBER(2): out->reduction = eb_codec_fields_enum(field); return true;
    case EB_TAG_NUMBER(3): out->missing = eb_codec_fields_enum(field); return true;
    case EB_TAG_BYTES(4):
    case EB_TAG_BYTES(5): eb_codec_form_take(arrays, field, &out->indices); return true;
    case EB_TAG_NUMBER(6):
    case EB_TAG_BYTES(6):
        eb_codec_form_take(arrays, field, &out->indices);
        return !eb_field_reader_find_endless(field->data);
    case EB_TAG_BYTES(7):
    case EB_TAG_BYTES(8): eb_codec_form_take(arrays, field, &out->offsets); return true;
    case EB_TAG_NUMBER(9):
    case EB_TAG_BYTES(9):
        eb_codec_form_take(arrays, field, &out->offsets);
        return !eb_field_reader_find_endless(field->data);
    case EB_TAG_NUMBER(10): out->indices_per_bag = (uint32_t)value; return true;
    case EB_TAG_BYTES(11):
    case EB_TAG_BYTES(12): eb_codec_form_take(arrays, field, &out->segment_ids); return true;
    case EB_TAG_NUMBER(13):
    case EB_TAG_BYTES(13):
        eb_codec_form_take(arrays, field, &out->segment_ids);
        return !eb_field_reader_find_endless(field->data);
    case EB_TAG_NUMBER(14): out->num_segments = value; return true;
    case EB_TAG_NUMBER(15): out->include_last_offset = value != 0; return true;
    case EB_TAG_BYTES(16):
        out->weights = field->data.at;
        out->weights_bytes = bytes;
        return true;
    case EB_TAG_NUMBER(17): out->weights_type = eb_codec_fields_enum(field); return true;
    case EB_TAG_FIXED32(18):
    case EB_TAG_BYTES(18):
        arrays->seen |= WEIGHTS_F32;
        arrays->is_unsettled = true;
        return bytes % sizeof(float) == 0;
    case EB_TAG_NUMBER(19):
        out->has_default = true;
        out->default_index = (int64_t)value;
        return true;
    case EB_TAG_NUMBER(20): out->layout = eb_codec_fields_enum(field); return true;
    case EB_TAG_NUMBER(21): out->num_bags = value; return true;
    case EB_TAG_BYTES(22):
    case EB_TAG_BYTES(23): eb_codec_form_take(arrays, field, &out->lengths); return true;
    default: return field->number > FIELD_LAST;
    }
}

/* Inlined, like what it calls, so that what is read can be kept in registers. */
static inline __attribute__((always_inline)) bool read_fields(struct reading *reading)
{
    const struct eb_codec_place *place = reading->place;
    struct eb_field_reader message = reading->arrays.message;
    uint32_t count = 0;
    for (; message.at < message.end; count++) {
        struct eb_field field;
        if (eb_field_reader_read(&message, &field) || !take_field(reading, &field)) {
            return eb_codec_form_fail(place);
        }
    }
    return eb_codec_fields_count(place->limits, count, place->field_count) ||
           eb_codec_form_fail(place);
}

static bool check_enums(const struct eb_codec_place *place, const struct eb_wire_query *query)
{
    return eb_codec_form_check_enum(
               place, "reduction", &embag__v1__reduction__descriptor, query->reduction) &&
           eb_codec_form_check_enum(
               place, "missing", &embag__v1__missing__descriptor, query->missing) &&
           eb_codec_form_check_enum(
               place, "weights_type", &embag__v1__data_type__descriptor, query->weights_type) &&
           eb_codec_form_check_enum(
               place, "layout", &embag__v1__bag_layout__descriptor, query->layout);
}

static bool choose_arrays(const struct reading *reading)
{
    const struct eb_codec_place *place = reading->place;
    const struct eb_codec_arrays *arrays = &reading->arrays;
    struct eb_wire_query *out = reading->out;
    return eb_codec_form_choose(place, arrays, INDICES, &out->indices) &&
           eb_codec_form_choose(place, arrays, OFFSETS, &out->offsets) &&
           eb_codec_form_choose(place, arrays, LENGTHS, &out->lengths) &&
           eb_codec_form_choose(place, arrays, SEGMENT_IDS, &out->segment_ids);
}

/* Takes the layout that a field says; NULL: it is not there. */
static inline bool take_layout(const struct eb_codec_place *place, struct eb_wire_query *out,
    const char **said_by, int32_t layout, const char *field)
{
    if (!field) {
        return true;
    }
    if (*said_by && out->layout != layout) {
        return eb_codec_form_refuse(place, "%s and %s say two layouts", *said_by, field);
    }
    out->layout = layout;
    *said_by = field;
    return true;
}

/* Fills in out->layout from the fields that are there, which must agree with it where it is said.
 */
static bool choose_layout(const struct eb_codec_place *place, struct eb_wire_query *out)
{
    const char *packed = out->indices_per_bag != 0 ? "indices_per_bag" : NULL;
    const char *segments = out->num_segments != 0 ? "num_segments" : out->segment_ids.field;
    const char *said_by = out->layout != 0 ? "layout" : NULL;
    if (!take_layout(
            place, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS, out->offsets.field) ||
        !take_layout(
            place, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_LENGTHS, out->lengths.field) ||
        !take_layout(place, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_PACKED, packed) ||
        !take_layout(place, out, &said_by, EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_SEGMENTS, segments)) {
        return false;
    }
    if (out->include_last_offset && said_by &&
        out->layout != EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS) {
        return eb_codec_form_refuse(place, "include_last_offset and %s say two layouts", said_by);
    }
    return true;
}

/* What most queries say: offsets, or nothing, and no layout. false: it is something else. */
static inline __attribute__((always_inline)) bool take_offsets_alone(const struct reading *reading)
{
    struct eb_wire_query *out = reading->out;
    const uint32_t seen = reading->arrays.seen;
    if (out->layout != 0 || (seen & (LENGTHS | SEGMENT_IDS)) != 0 || out->indices_per_bag != 0 ||
        out->num_segments != 0) {
        return false;
    }
    out->layout = (seen & OFFSETS) != 0 ? EMBAG__V1__BAG_LAYOUT__BAG_LAYOUT_OFFSETS : 0;
    return true;
}

/* Weights of their own field are taken already. */
static bool choose_weights(const struct reading *reading)
{
    const struct eb_codec_place *place = reading->place;
    struct eb_wire_query *out = reading->out;
    if (!(reading->arrays.seen & WEIGHTS_F32)) {
        return true;
    }
    size_t bytes;
    const void *floats =
        eb_codec_fields_floats(reading->arrays.message, 18, &bytes, place->arena, place->error);
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
    struct reading reading = {
        .place = place, .arrays = {.forms = forms, .message = bytes}, .out = out};
    memset(out, 0, sizeof *out);
    if (!read_fields(&reading)) {
        return false;
    }
    out->table = eb_codec_fields_keep(reading.table, place->arena, place->error);
    if (!out->table) {
        return false;
    }
    place->name = out->table;
    if (out->table[0] == 0) {
        return eb_codec_form_refuse(place, "table is empty");
    }
    if (!check_enums(place, out)) {
        return false;
    }
    if (!reading.arrays.is_unsettled) {
        return take_offsets_alone(&reading) || choose_layout(place, out);
    }
    const struct reading unsettled = reading;
    return choose_arrays(&unsettled) && choose_layout(place, out) && choose_weights(&unsettled);
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
