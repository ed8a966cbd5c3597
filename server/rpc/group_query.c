#include "server/rpc/group_query.h"

#include <string.h>

static int64_t read_feature_integer(const struct eb_wire_array *array, uint64_t i)
{
    if (array->width == 4) {
        int32_t value;
        memcpy(&value, (const uint8_t *)array->data + i * sizeof value, sizeof value);
        return value;
    }
    int64_t value;
    memcpy(&value, (const uint8_t *)array->data + i * sizeof value, sizeof value);
    return value;
}

static bool refuse_feature(
    const struct eb_bag_query_position *position, struct eb_error *error, const char *text)
{
    return eb_bag_query_refuse(position, error, EB_STATUS_INVALID_ARGUMENT, "%s", text);
}

/* Checks that the arrays are present and hold whole entries. */
static bool check_form(const struct eb_bag_query_position *position,
    const struct eb_wire_group *wire, struct eb_error *error)
{
    const struct eb_wire_array *arrays[] = {&wire->values, &wire->lengths, &wire->offsets};
    bool has_layout = wire->lengths.width != 0 || wire->offsets.width != 0;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        if (arrays[i]->width > 0 && arrays[i]->bytes % arrays[i]->width != 0) {
            return eb_bag_query_refuse(position, error, EB_STATUS_INVALID_ARGUMENT,
                "%s has %zu bytes, which is not a multiple of %u", arrays[i]->field,
                arrays[i]->bytes, arrays[i]->width);
        }
    }
    if (!has_layout && (wire->bags > 0 || wire->values.bytes > 0)) {
        return refuse_feature(position, error, "it has neither lengths nor offsets");
    }
    return true;
}

/* Checks that the layout has an entry for each of `bags` bags of each feature. */
static bool check_feature_counts(const struct eb_bag_query_position *position,
    const struct eb_wire_group *wire, struct eb_error *error)
{
    bool has_offsets = wire->offsets.width != 0;
    const struct eb_wire_array *array = has_offsets ? &wire->offsets : &wire->lengths;
    uint64_t wanted = (uint64_t)wire->feature_count * wire->bags + has_offsets;
    if (array->width != 0 && eb_wire_array_count(array) != wanted) {
        return eb_bag_query_refuse(position, error, EB_STATUS_INVALID_ARGUMENT,
            "%s has %llu entries, but %zu features of %u bags need %llu", array->field,
            (unsigned long long)eb_wire_array_count(array), wire->feature_count, wire->bags,
            (unsigned long long)wanted);
    }
    return true;
}

/* Turns the group's offsets into lengths. */
static bool make_lengths(const struct eb_bag_query_position *position,
    const struct eb_wire_group *wire, struct eb_arena *arena, struct eb_group_query *group,
    struct eb_error *error)
{
    uint64_t count = (uint64_t)wire->feature_count * wire->bags;
    int64_t value_count = (int64_t)eb_wire_array_count(&wire->values);
    int32_t *lengths = eb_arena_take(arena, (count + 1) * sizeof *lengths);
    if (!lengths) {
        return eb_bag_query_refuse(
            position, error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left for its lengths");
    }
    int64_t before = read_feature_integer(&wire->offsets, 0);
    if (before != 0) {
        return eb_bag_query_refuse(position, error, EB_STATUS_INVALID_ARGUMENT,
            "%s[0] = %lld is not 0", wire->offsets.field, (long long)before);
    }
    for (uint64_t i = 0; i < count; i++) {
        int64_t offset = read_feature_integer(&wire->offsets, i + 1);
        if (offset < before || offset > value_count || offset - before > INT32_MAX) {
            return eb_bag_query_refuse(position, error, EB_STATUS_INVALID_ARGUMENT,
                "%s[%llu] = %lld is not possible: the offset before it is %lld, and there are %lld "
                "values",
                wire->offsets.field, (unsigned long long)(i + 1), (long long)offset,
                (long long)before, (long long)value_count);
        }
        lengths[i] = (int32_t)(offset - before);
        before = offset;
    }
    group->lengths = (struct eb_wire_array){.data = lengths,
        .bytes = (size_t)count * sizeof *lengths,
        .width = sizeof *lengths,
        .field = wire->offsets.field};
    return true;
}

/* Finds the start of each feature's values, and checks that the features together use all
 * values. */
static bool find_feature_starts(const struct eb_bag_query_position *position,
    struct eb_arena *arena, struct eb_group_query *group, struct eb_error *error)
{
    const struct eb_wire_group *wire = group->wire;
    uint64_t value_count = eb_wire_array_count(&wire->values);
    uint64_t *starts = eb_arena_take(arena, (wire->feature_count + 1) * sizeof *starts);
    if (!starts) {
        return eb_bag_query_refuse(
            position, error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left for its features");
    }
    uint64_t start = 0;
    for (size_t f = 0; f < wire->feature_count; f++) {
        starts[f] = start;
        for (uint64_t b = 0; b < wire->bags; b++) {
            int64_t length = read_feature_integer(&group->lengths, f * (uint64_t)wire->bags + b);
            if (length < 0 || (uint64_t)length > value_count - start) {
                return eb_bag_query_refuse(position, error, EB_STATUS_INVALID_ARGUMENT,
                    "%s: bag %llu of features[%zu] has %lld values, but %llu are left",
                    group->lengths.field, (unsigned long long)b, f, (long long)length,
                    (unsigned long long)(value_count - start));
            }
            start += (uint64_t)length;
        }
    }
    starts[wire->feature_count] = start;
    group->starts = starts;
    if (start != value_count) {
        return eb_bag_query_refuse(position, error, EB_STATUS_INVALID_ARGUMENT,
            "%s add up to %llu values, but there are %llu", group->lengths.field,
            (unsigned long long)start, (unsigned long long)value_count);
    }
    return true;
}

static bool check_feature_weights(const struct eb_bag_query_position *position,
    struct eb_group_query *group, struct eb_error *error)
{
    const struct eb_wire_group *wire = group->wire;
    uint64_t value_count = eb_wire_array_count(&wire->values);
    if (wire->weights_bytes == 0) {
        return true;
    }
    group->weight_bytes = value_count > 0 ? wire->weights_bytes / value_count : 0;
    if (group->weight_bytes * value_count != wire->weights_bytes || group->weight_bytes == 0) {
        return eb_bag_query_refuse(position, error, EB_STATUS_INVALID_ARGUMENT,
            "weights has %zu bytes; expected one weight for each of %llu values",
            wire->weights_bytes, (unsigned long long)value_count);
    }
    return true;
}

bool eb_group_query_list(const struct eb_wire_request *request,
    const struct eb_model_version *version, uint64_t count_max, struct eb_error *error)
{
    uint64_t count = request->query_count;
    for (size_t i = 0; i < request->group_count; i++) {
        struct eb_wire_group *group = &request->groups[i];
        const struct eb_feature_group *found =
            group->feature_count == 0 && group->name[0] != '\0' && !group->error
                ? eb_feature_set_find_group(&version->features, group->name)
                : NULL;
        if (found) {
            group->feature_count = found->count;
            group->features = found->names;
        }
        count += group->feature_count;
    }
    if (count > count_max) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "%llu queries and features of groups; a request may have at most %llu",
            (unsigned long long)count, (unsigned long long)count_max);
        return false;
    }
    return true;
}

bool eb_group_query_begin(const struct eb_bag_query_position *position,
    const struct eb_wire_group *wire, struct eb_group_query *group, struct eb_error *error)
{
    *group = (struct eb_group_query){.wire = wire,
        .lengths = wire->lengths,
        .is_sequence_set = eb_wire_sequence_is_set(&wire->sequence)};
    if (wire->error) {
        *error = *wire->error;
        return false;
    }
    if (wire->feature_count == 0 && wire->name[0] != '\0') {
        return eb_bag_query_refuse(position, error, EB_STATUS_NOT_FOUND,
            "model \"%s\" version %llu has no group of that name", position->version->model,
            (unsigned long long)position->version->version);
    }
    return wire->feature_count > 0 || refuse_feature(position, error, "it has no features");
}

bool eb_group_query_lay_out(const struct eb_bag_query_position *position, struct eb_arena *arena,
    struct eb_group_query *group, struct eb_error *error)
{
    const struct eb_wire_group *wire = group->wire;
    if (!check_form(position, wire, error) || !check_feature_counts(position, wire, error)) {
        return false;
    }
    if (wire->offsets.width != 0 && !make_lengths(position, wire, arena, group, error)) {
        return false;
    }
    return find_feature_starts(position, arena, group, error) &&
           check_feature_weights(position, group, error);
}

/* Returns entries [first, first + count) of an array, which must hold them. */
static inline struct eb_int_array slice(
    const struct eb_wire_array *array, uint64_t first, uint64_t count)
{
    const uint8_t *data = array->data;
    return (struct eb_int_array){
        .data = count > 0 ? data + first * array->width : data,
        .bytes = count * array->width,
        .width = array->width,
    };
}

/* Fills in the weights of values [first, first + count), if the group has any. */
static __attribute__((noinline)) bool fill_feature_weights(const struct eb_group_query *group,
    const struct eb_bag_query_position *position, struct eb_bag_query *query,
    struct eb_error *error)
{
    uint64_t first = group->starts[position->feature];
    uint64_t count = group->starts[position->feature + 1] - first;
    if (count == 0) {
        return true;
    }
    struct eb_bag_query_weights weights = {.type = group->wire->weights_type};
    if (group->weight_bytes > 0) {
        weights.data = (const uint8_t *)group->wire->weights + first * group->weight_bytes;
        weights.bytes = count * group->weight_bytes;
    }
    return eb_bag_query_weigh(position, &weights, query, error);
}

bool eb_group_query_fill(const struct eb_group_query *group,
    const struct eb_bag_query_position *position, const struct eb_feature *feature,
    struct eb_bag_query *query, struct eb_error *error)
{
    const struct eb_wire_group *wire = group->wire;
    uint64_t first = group->starts[position->feature];
    uint64_t count = group->starts[position->feature + 1] - first;
    if (__builtin_expect(feature->table->part != 0, 0)) {
        return eb_bag_query_refuse_part(position, feature->table, 0, error);
    }
    eb_bag_query_begin(feature, query);
    query->layout = EB_LAYOUT_LENGTHS;
    query->indices = slice(&wire->values, first, count);
    query->bounds = slice(&group->lengths, position->feature * (uint64_t)wire->bags, wire->bags);
    query->num_segments = 0;
    query->num_bags = wire->bags;
    query->indices_per_bag = 0;
    query->include_last_offset = false;
    int32_t output_type = (int32_t)position->output_type;
    if ((wire->reduction | wire->missing | output_type) != 0) {
        eb_bag_query_choose(query, wire->reduction, wire->missing, output_type);
    }
    bool says_weights = group->weight_bytes > 0 || wire->weights_type != 0;
    return !says_weights || fill_feature_weights(group, position, query, error);
}
