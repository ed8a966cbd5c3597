#include "server/formats/safetensors.h"

#include "server/formats/json_reader.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define METADATA_KEY "__metadata__"
/* Room for the name of an element type. No known element type has a longer name. */
#define DTYPE_BYTES 33
/* Bytes of the shortest valid member: "":{"dtype":"","shape":[],"data_offsets":[0,0]} */
#define MEMBER_BYTES_MIN 47
/* Most bytes of an escape for one ASCII character. */
#define ESCAPE_BYTES 6

struct dtype {
    const char *name;
    enum eb_storage storage; /* UNSPECIFIED if a table cannot have the type */
    unsigned bits;           /* bits of an element; 0 if unknown */
};

static const struct dtype dtypes[] = {
    {"F32", EB_STORAGE_F32, 32},
    {"F16", EB_STORAGE_F16, 16},
    {"BF16", EB_STORAGE_BF16, 16},
    {"F64", EB_STORAGE_F64, 64},
    {"F8_E4M3", EB_STORAGE_F8_E4M3, 8},
    {"F8_E5M2", EB_STORAGE_F8_E5M2, 8},
    {"I8", EB_STORAGE_I8, 8},
    {"U8", EB_STORAGE_U8, 8},
    {"I16", EB_STORAGE_I16, 16},
    {"U16", EB_STORAGE_U16, 16},
    {"I32", EB_STORAGE_I32, 32},
    {"U32", EB_STORAGE_U32, 32},
    {"I64", EB_STORAGE_I64, 64},
    {"U64", EB_STORAGE_U64, 64},
    {"BOOL", EB_STORAGE_UNSPECIFIED, 8},
    {"F8_E8M0", EB_STORAGE_UNSPECIFIED, 8},
    {"F6_E2M3", EB_STORAGE_UNSPECIFIED, 6},
    {"F6_E3M2", EB_STORAGE_UNSPECIFIED, 6},
    {"F4", EB_STORAGE_UNSPECIFIED, 4},
    {"C64", EB_STORAGE_UNSPECIFIED, 64},
};
#define DTYPE_COUNT (sizeof dtypes / sizeof dtypes[0])

/* The description of a tensor, as it is written in the head. */
struct description {
    char dtype[DTYPE_BYTES];
    bool has_dtype;
    size_t shape_at; /* position of its array; 0: none */
    uint64_t begin;  /* data_offsets */
    uint64_t end;
};

/* A tensor that is being read. */
struct reading {
    struct eb_tensor *tensor;
    struct dtype dtype;
    uint64_t elements;
    bool is_unfit;
    struct eb_failure *unfit; /* reason why it cannot be a table */
    struct eb_failure *failure;
};

/* The range of the data; data_offsets count from data_start. */
struct layout {
    uint64_t data_start;
    uint64_t file_bytes;
};

bool eb_safetensors_head_bytes(
    const uint8_t first[8], uint64_t file_bytes, uint64_t *head_bytes, struct eb_failure *failure)
{
    if (file_bytes < LENGTH_BYTES) {
        return eb_failure_set(failure,
            "byte %" PRIu64 ": the file ends inside the header's length; write it again",
            file_bytes);
    }
    uint64_t length = 0;
    for (int i = LENGTH_BYTES; i-- > 0;) {
        length = length << 8 | first[i];
    }
    if (length > EB_SAFETENSORS_HEADER_BYTES_MAX) {
        return eb_failure_set(failure,
            "byte 0: a header of %" PRIu64
            " bytes is longer than %d, so this is not a safetensors file",
            length, EB_SAFETENSORS_HEADER_BYTES_MAX);
    }
    if (length > file_bytes - LENGTH_BYTES) {
        return eb_failure_set(failure,
            "byte 0: a header of %" PRIu64 " bytes reaches past the end of the file, which has "
            "%" PRIu64 " bytes; write it again",
            length, file_bytes);
    }
    *head_bytes = LENGTH_BYTES + length;
    return true;
}

/* Notes why the tensor cannot be a table. Keeps the first reason. */
static void note_unfit(struct reading *reading, const struct eb_failure *why)
{
    if (!reading->is_unfit) {
        *reading->unfit = *why;
    }
    reading->is_unfit = true;
}

/* Formats of quantisation that tables are asked for and cannot have. */
static const char *find_unsupported_format(const char *dtype)
{
    if (strcmp(dtype, "F8_E8M0") == 0) {
        return "scales of blocks (MX formats) are not supported; dequantise the table to F32 or "
               "BF16";
    }
    if (strncmp(dtype, "F4", 2) == 0 || strncmp(dtype, "F6", 2) == 0) {
        return "fp4 and fp6 values are not supported; dequantise the table to F32 or BF16";
    }
    return "convert it to F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I8 to I64 or U8 to U64";
}

static void find_dtype(struct reading *reading, const char *name)
{
    reading->dtype = (struct dtype){.name = name};
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            reading->dtype = dtypes[i];
        }
    }
    reading->tensor->storage = reading->dtype.storage;
    if (reading->dtype.storage == EB_STORAGE_UNSPECIFIED) {
        struct eb_failure why;
        eb_failure_set(&why, "field 'dtype': '%.32s' is not an element type of a table; %s", name,
            find_unsupported_format(name));
        note_unfit(reading, &why);
    }
}

/* Reads a value. Returns whether it is an integer of at least 0. */
static bool read_safetensors_count(struct eb_json_reader *reader, uint64_t *value)
{
    uint8_t first = eb_json_peek(reader);
    bool is_count = false;
    *value = 0;
    if (first != '-' && (first < '0' || first > '9')) {
        return eb_json_skip(reader) && false;
    }
    return eb_json_count(reader, value, &is_count) && is_count;
}

/* Refuses a tensor that is too large. Always returns false. */
static bool refuse_size(const struct reading *reading)
{
    char shape[EB_TENSOR_SHAPE_BYTES];
    eb_tensor_shape_text(reading->tensor, shape);
    return eb_failure_set(reading->failure,
        "field 'shape': %s is larger than 2^64 bytes; write the file again", shape);
}

/* Reads the dims, up to the number that a table may have, and counts the elements. */
static bool read_dims(struct reading *reading, struct eb_json_reader *shape)
{
    bool is_empty = false;
    bool is_huge = false;
    bool is_first = true;
    reading->elements = 1;
    (void)eb_json_enter(shape, '[');
    for (size_t i = 0; eb_json_next(shape, ']', &is_first); i++) {
        struct eb_failure why;
        uint64_t dim;
        if (!read_safetensors_count(shape, &dim)) {
            return eb_failure_set(reading->failure,
                "field 'shape': entry %zu is not an integer from 0 to 2^63 - 1", i);
        }
        /* One dim too many gives the reason; more would only repeat it. */
        if (i <= EB_TENSOR_RANK_MAX && !eb_tensor_add_dim(reading->tensor, dim, &why)) {
            note_unfit(reading, &why);
        }
        is_empty = is_empty || dim == 0;
        is_huge = is_huge || __builtin_mul_overflow(reading->elements, dim, &reading->elements);
    }
    reading->elements = is_empty ? 0 : reading->elements;
    return !is_huge || is_empty || refuse_size(reading);
}

static bool read_safetensors_shape(struct reading *reading, struct eb_json_reader *shape)
{
    struct eb_tensor *tensor = reading->tensor;
    struct eb_failure why;
    uint64_t bytes;
    if (!read_dims(reading, shape)) {
        return false;
    }
    if (__builtin_mul_overflow(reading->elements / 8, reading->dtype.bits, &bytes) ||
        __builtin_add_overflow(
            bytes, (reading->elements % 8 * reading->dtype.bits + 7) / 8, &bytes)) {
        return refuse_size(reading);
    }
    if (!reading->is_unfit && !eb_tensor_measure(tensor, &why)) {
        note_unfit(reading, &why);
    }
    tensor->data_bytes = bytes;
    return true;
}

static bool check_offsets(const struct reading *reading, const struct description *description,
    const struct layout *layout)
{
    struct eb_tensor *tensor = reading->tensor;
    struct eb_failure *failure = reading->failure;
    uint64_t begin = description->begin;
    uint64_t end = description->end;
    if (end < begin) {
        return eb_failure_set(failure,
            "field 'data_offsets': the end %" PRIu64 " is before the beginning %" PRIu64, end,
            begin);
    }
    if (end > layout->file_bytes - layout->data_start) {
        return eb_failure_set(failure,
            "field 'data_offsets': the end %" PRIu64 " is past the last of the %" PRIu64
            " bytes of data; the file is cut short, write it again",
            end, layout->file_bytes - layout->data_start);
    }
    if (reading->dtype.bits > 0 && end - begin != tensor->data_bytes) {
        char shape[EB_TENSOR_SHAPE_BYTES];
        eb_tensor_shape_text(tensor, shape);
        return eb_failure_set(failure,
            "field 'data_offsets': %" PRIu64 " to %" PRIu64 " is %" PRIu64
            " bytes, but shape %s of %s needs %" PRIu64,
            begin, end, end - begin, shape, reading->dtype.name, tensor->data_bytes);
    }
    tensor->data_offset = layout->data_start + begin;
    tensor->data_bytes = end - begin;
    return true;
}

/* ---- descriptions ---- */

/* Reads the value of 'dtype'. Leaves the description without one if it is not a string. */
static void read_dtype(struct eb_json_reader *reader, struct description *out)
{
    struct eb_json_text text;
    if (eb_json_peek(reader) != '"') {
        (void)eb_json_skip(reader);
    } else if (eb_json_string(reader, &text)) {
        char name[DTYPE_BYTES] = "?";
        if (text.bytes < sizeof name) {
            eb_json_decode(reader->bytes, &text, name);
        } else {
            memcpy(name, reader->bytes + text.at, sizeof name - 1);
        }
        memcpy(out->dtype, name, sizeof name);
        out->has_dtype = true;
    }
}

/* Reads 'data_offsets'. Returns whether the value is an array of two counts. */
static bool read_offsets(struct eb_json_reader *reader, struct description *out)
{
    uint64_t *const counts[] = {&out->begin, &out->end};
    bool is_first = true;
    size_t found = 0;
    if (eb_json_peek(reader) != '[' || !eb_json_enter(reader, '[')) {
        return eb_json_skip(reader) && false;
    }
    bool is_good = true;
    for (; eb_json_next(reader, ']', &is_first); found++) {
        uint64_t count;
        is_good = read_safetensors_count(reader, &count) && is_good;
        if (found < 2) {
            *counts[found] = count;
        }
    }
    return is_good && found == 2;
}

/* Keeps the first field that is passed over, and counts all of them. */
static void pass_over(
    struct eb_safetensors *list, const uint8_t *bytes, const struct eb_json_text *name)
{
    if (list->passed_over_count++ == 0) {
        snprintf(list->passed_over, sizeof list->passed_over, "%.*s",
            name->bytes < INT_MAX ? (int)name->bytes : INT_MAX, (const char *)bytes + name->at);
    }
}

/* Returns whether a text is `name`, which is ASCII of at most 12 bytes, with or without escapes. */
static bool is_named(const uint8_t *bytes, const struct eb_json_text *text, const char *name)
{
    char decoded[12 * ESCAPE_BYTES + 1];
    if (text->bytes >= sizeof decoded) {
        return false;
    }
    eb_json_decode(bytes, text, decoded);
    return strcmp(decoded, name) == 0;
}

/* Reads a description, which is valid JSON. Unknown fields are passed over. */
static bool read_description(struct eb_json_reader *reader, struct description *out,
    struct eb_safetensors *list, struct eb_failure *failure)
{
    static const char *const names[] = {"dtype", "shape", "data_offsets"};
    bool is_given[3] = {false};
    bool has_offsets = false;
    bool is_first = true;
    *out = (struct description){.shape_at = 0};
    if (eb_json_peek(reader) != '{' || !eb_json_enter(reader, '{')) {
        return eb_failure_set(failure, "its description is not an object");
    }
    while (eb_json_next(reader, '}', &is_first)) {
        struct eb_json_text name;
        (void)eb_json_name(reader, &name);
        size_t field = 0;
        while (field < 3 && !is_named(reader->bytes, &name, names[field])) {
            field++;
        }
        if (field < 3 && is_given[field]) {
            return eb_failure_set(failure, "field '%s' occurs twice", names[field]);
        }
        if (field < 3) {
            is_given[field] = true;
        }
        switch (field) {
        case 0: read_dtype(reader, out); break;
        case 1:
            out->shape_at = eb_json_peek(reader) == '[' ? reader->at : 0;
            (void)eb_json_skip(reader);
            break;
        case 2: has_offsets = read_offsets(reader, out); break;
        default:
            if (list) {
                pass_over(list, reader->bytes, &name);
            }
            (void)eb_json_skip(reader);
        }
    }
    if (!out->has_dtype) {
        return eb_failure_set(failure, "field 'dtype' is missing or not a string");
    }
    if (out->shape_at == 0) {
        return eb_failure_set(failure, "field 'shape' is missing or not an array");
    }
    return has_offsets || eb_failure_set(failure, "field 'data_offsets' is missing or not an array "
                                                  "of two integers from 0 to 2^63 - 1");
}

/* Reads a tensor, whose description begins at the reader's position. Returns false with *failure
 * set if it is not valid. If it cannot be a table, sets *is_unfit and *unfit. */
static bool read_tensor(struct eb_json_reader *reader, const struct layout *layout,
    struct eb_safetensors *list, struct reading *reading)
{
    struct description description;
    if (!read_description(reader, &description, list, reading->failure)) {
        return false;
    }
    struct eb_json_reader shape = {
        .bytes = reader->bytes, .size = reader->size, .at = description.shape_at};
    find_dtype(reading, description.dtype);
    return read_safetensors_shape(reading, &shape) && check_offsets(reading, &description, layout);
}

/* Puts the tensor's name in front of the text. Always returns false. */
static bool locate_safetensors(struct eb_failure *failure, const char *name)
{
    struct eb_failure inner = *failure;
    return eb_failure_set(failure, "tensor '%.128s': %s", name, inner.text);
}

/* Begins to read the head, past its length. */
static struct eb_json_reader begin_head(const uint8_t *head, uint64_t head_bytes)
{
    return (struct eb_json_reader){.bytes = head, .size = head_bytes, .at = LENGTH_BYTES};
}

/* Counts the members of the head's object, and checks that the head is valid JSON. */
static bool count_members(
    const uint8_t *head, uint64_t head_bytes, size_t *count, struct eb_failure *failure)
{
    struct eb_json_reader reader = begin_head(head, head_bytes);
    struct eb_json_text name;
    bool is_first = true;
    *count = 0;
    if (head_bytes == LENGTH_BYTES || head[LENGTH_BYTES] != '{') {
        return eb_failure_set(failure, "byte 8: the header does not start with '{'");
    }
    (void)eb_json_enter(&reader, '{');
    while (eb_json_next(&reader, '}', &is_first) && eb_json_name(&reader, &name) &&
           eb_json_skip(&reader)) {
        *count += 1;
    }
    return eb_json_end(&reader) ||
           eb_failure_set(failure,
               "byte %zu: the header is not valid JSON: %s; write the file again", reader.at,
               reader.error);
}

/* Turns a name in the head into a C string in the same place, followed by spaces up to the colon.
 * Returns it. */
static const char *close_name(uint8_t *head, const struct eb_json_text *text)
{
    char *name = (char *)head + text->at;
    eb_json_decode(head, text, name);
    size_t length = strlen(name);
    memset(name + length + 1, ' ', text->bytes - length);
    return name;
}

/* Returns how many tensors a head of that size can describe. */
static size_t head_entries_max(uint64_t head_bytes)
{
    return head_bytes / MEMBER_BYTES_MIN + 1;
}

static bool read_tensors(uint8_t *head, const struct layout *layout, struct eb_safetensors *out,
    struct eb_failure *failure)
{
    struct eb_json_reader reader = begin_head(head, layout->data_start);
    struct eb_json_text text;
    bool is_first = true;
    bool has_metadata = false;
    (void)eb_json_enter(&reader, '{');
    while (eb_json_next(&reader, '}', &is_first)) {
        (void)eb_json_name(&reader, &text);
        const char *name = close_name(head, &text);
        bool is_metadata = strcmp(name, METADATA_KEY) == 0;
        if (is_metadata && has_metadata) {
            return eb_failure_set(failure, "field '" METADATA_KEY "' is a duplicate");
        }
        if (is_metadata) {
            has_metadata = true;
            (void)eb_json_skip(&reader);
            continue;
        }
        struct eb_tensor tensor = {.storage = EB_STORAGE_UNSPECIFIED};
        struct eb_failure unfit;
        struct reading reading = {.tensor = &tensor, .unfit = &unfit, .failure = failure};
        if (!read_tensor(&reader, layout, out, &reading)) {
            return locate_safetensors(failure, name);
        }
        assert(out->count < head_entries_max(layout->data_start));
        out->entries[out->count++] = (struct eb_safetensors_entry){
            .name = name, .data_offset = tensor.data_offset, .data_bytes = tensor.data_bytes};
    }
    return out->count > 0 || eb_failure_set(failure, "there is no table in it; remove the file");
}

static int compare_names(const void *left, const void *right)
{
    const struct eb_safetensors_entry *a = left;
    const struct eb_safetensors_entry *b = right;
    return strcmp(a->name, b->name);
}

/* Checks that no two tensors have the same name. Sorts the entries by name. */
static bool check_names(struct eb_safetensors *list, struct eb_failure *failure)
{
    qsort(list->entries, list->count, sizeof *list->entries, compare_names);
    for (size_t i = 1; i < list->count; i++) {
        if (strcmp(list->entries[i - 1].name, list->entries[i].name) == 0) {
            eb_failure_set(failure, "its name is a duplicate; write the file again");
            return locate_safetensors(failure, list->entries[i].name);
        }
    }
    return true;
}

/* Compares by position in the file. A tensor without data comes before the one that starts
 * there. */
static int compare_safetensors_entries(const void *left, const void *right)
{
    const struct eb_safetensors_entry *a = left;
    const struct eb_safetensors_entry *b = right;
    if (a->data_offset != b->data_offset) {
        return a->data_offset < b->data_offset ? -1 : 1;
    }
    if (a->data_bytes != b->data_bytes) {
        return a->data_bytes < b->data_bytes ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* Checks that every byte of data belongs to exactly one tensor. */
static bool check_ranges(
    const struct layout *layout, const struct eb_safetensors *list, struct eb_failure *failure)
{
    uint64_t covered = layout->data_start;
    for (size_t i = 0; i < list->count; i++) {
        const struct eb_safetensors_entry *entry = &list->entries[i];
        uint64_t begin = entry->data_offset;
        if (begin != covered) {
            eb_failure_set(failure,
                "field 'data_offsets': it begins at %" PRIu64 ", but the tensors before it end at "
                "%" PRIu64 ": %s; write the file again",
                begin - layout->data_start, covered - layout->data_start,
                begin < covered ? "they overlap" : "the bytes in between belong to no tensor");
            return locate_safetensors(failure, entry->name);
        }
        covered += entry->data_bytes;
    }
    if (covered != layout->file_bytes) {
        return eb_failure_set(failure,
            "byte %" PRIu64 ": %" PRIu64
            " bytes after the last tensor belong to no tensor; write the "
            "file again",
            covered, layout->file_bytes - covered);
    }
    return true;
}

bool eb_safetensors_parse(uint8_t *head, uint64_t head_bytes, uint64_t file_bytes,
    struct eb_safetensors *out, struct eb_failure *failure)
{
    assert(head_bytes >= LENGTH_BYTES && head_bytes <= file_bytes);
    *out = (struct eb_safetensors){.head = head, .head_bytes = head_bytes};
    struct layout layout = {.data_start = head_bytes, .file_bytes = file_bytes};
    size_t count;
    if (!count_members(head, head_bytes, &count, failure)) {
        return false;
    }
    size_t room = head_entries_max(head_bytes);
    out->entries = calloc(count < room ? count + 1 : room, sizeof *out->entries);
    bool is_good = out->entries ? read_tensors(head, &layout, out, failure)
                                : eb_failure_set(failure, "out of memory");
    if (is_good && check_names(out, failure)) {
        qsort(out->entries, out->count, sizeof *out->entries, compare_safetensors_entries);
        is_good = check_ranges(&layout, out, failure);
    } else {
        is_good = false;
    }
    if (!is_good) {
        eb_safetensors_deinit(out);
    }
    return is_good;
}

bool eb_safetensors_tensor(
    const struct eb_safetensors *list, size_t n, struct eb_tensor *tensor, struct eb_failure *unfit)
{
    assert(n < list->count);
    const struct eb_safetensors_entry *entry = &list->entries[n];
    struct eb_failure failure;
    struct reading reading = {.tensor = tensor, .unfit = unfit, .failure = &failure};
    struct layout layout = {.data_start = list->head_bytes, .file_bytes = UINT64_MAX};
    struct eb_json_reader reader = begin_head(list->head, list->head_bytes);
    reader.at = (size_t)((const uint8_t *)entry->name - list->head) + strlen(entry->name) + 1;
    assert(eb_json_peek(&reader) == ':');
    (void)eb_json_peek(&reader);
    reader.at++;
    *tensor = (struct eb_tensor){.storage = EB_STORAGE_UNSPECIFIED};
    bool is_good = read_tensor(&reader, &layout, NULL, &reading);
    assert(is_good);
    (void)is_good;
    return !reading.is_unfit;
}

void eb_safetensors_deinit(struct eb_safetensors *list)
{
    free(list->entries);
    *list = (struct eb_safetensors){0};
}

/* ---- tensor index ---- */

#define MAP_KEY "weight_map"

static bool read_location(uint8_t *json, struct eb_json_reader *reader,
    struct eb_tensor_location *location, struct eb_failure *failure)
{
    struct eb_json_text tensor;
    struct eb_json_text file = {0};
    (void)eb_json_name(reader, &tensor);
    bool is_text = eb_json_peek(reader) == '"' && eb_json_string(reader, &file);
    location->tensor = close_name(json, &tensor);
    location->file = is_text ? close_name(json, &file) : "";
    if (location->file[0] == '\0' || strchr(location->file, '/')) {
        return eb_failure_set(failure,
            "field '" MAP_KEY
            "': the file of tensor '%.128s' is not the name of a file in this directory",
            location->tensor);
    }
    return true;
}

/* Finds the map in a valid text. Sets *count to the number of its members, and *reader to its
 * beginning. */
static bool find_map(struct eb_json_reader *reader, size_t *count, struct eb_failure *failure)
{
    struct eb_json_text name;
    bool is_first = true;
    bool is_found = false;
    size_t map_at = 0;
    (void)eb_json_enter(reader, '{');
    while (eb_json_next(reader, '}', &is_first) && eb_json_name(reader, &name)) {
        bool is_map = is_named(reader->bytes, &name, MAP_KEY);
        if (is_map && is_found) {
            return eb_failure_set(failure, "field '" MAP_KEY "' is a duplicate");
        }
        is_found = is_found || is_map;
        map_at = is_map && eb_json_peek(reader) == '{' ? reader->at : map_at;
        (void)eb_json_skip(reader);
    }
    reader->at = map_at;
    struct eb_json_reader members = *reader;
    *count = 0;
    is_first = true;
    if (map_at == 0) {
        return eb_failure_set(
            failure, "field '" MAP_KEY "' is missing or not an object that maps tensors to files");
    }
    (void)eb_json_enter(&members, '{');
    while (eb_json_next(&members, '}', &is_first) && eb_json_name(&members, &name) &&
           eb_json_skip(&members)) {
        *count += 1;
    }
    return true;
}

static bool read_map(
    uint8_t *json, size_t json_bytes, struct eb_tensor_index *index, struct eb_failure *failure)
{
    struct eb_json_reader reader = {.bytes = json, .size = json_bytes};
    bool is_first = true;
    size_t count;
    if (!find_map(&reader, &count, failure)) {
        return false;
    }
    index->locations = calloc(count + 1, sizeof *index->locations);
    if (!index->locations) {
        return eb_failure_set(failure, "out of memory");
    }
    (void)eb_json_enter(&reader, '{');
    while (eb_json_next(&reader, '}', &is_first)) {
        if (!read_location(json, &reader, &index->locations[index->count++], failure)) {
            return false;
        }
    }
    return true;
}

static int compare_locations(const void *left, const void *right)
{
    const struct eb_tensor_location *a = left;
    const struct eb_tensor_location *b = right;
    return strcmp(a->tensor, b->tensor);
}

static bool check_unique_locations(struct eb_tensor_index *index, struct eb_failure *failure)
{
    qsort(index->locations, index->count, sizeof *index->locations, compare_locations);
    for (size_t i = 1; i < index->count; i++) {
        const char *name = index->locations[i].tensor;
        if (strcmp(index->locations[i - 1].tensor, name) == 0) {
            return eb_failure_set(
                failure, "field '" MAP_KEY "': tensor '%.128s' is a duplicate", name);
        }
    }
    return true;
}

bool eb_tensor_index_parse(
    uint8_t *json, size_t json_bytes, struct eb_tensor_index *index, struct eb_failure *failure)
{
    *index = (struct eb_tensor_index){0};
    struct eb_json_reader reader = {.bytes = json, .size = json_bytes};
    if (!eb_json_skip(&reader) || !eb_json_end(&reader)) {
        return eb_failure_set(
            failure, "byte %zu: not valid JSON: %s; write the file again", reader.at, reader.error);
    }
    bool is_good =
        read_map(json, json_bytes, index, failure) && check_unique_locations(index, failure);
    if (!is_good) {
        eb_tensor_index_deinit(index);
    }
    return is_good;
}

void eb_tensor_index_deinit(struct eb_tensor_index *index)
{
    free(index->locations);
    *index = (struct eb_tensor_index){0};
}
