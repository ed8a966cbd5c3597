#include "server/formats/safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define METADATA_KEY "__metadata__"
#define TENSOR_FIELDS 3

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

/* A tensor that is being read. */
struct reading {
    struct eb_tensor *tensor;
    struct dtype dtype;
    uint64_t elements;
    bool is_unfit;
    struct eb_failure unfit; /* reason why it cannot be a table */
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
        reading->unfit = *why;
    }
    reading->is_unfit = true;
}

static bool read_dtype(struct reading *reading, const json_t *dtype)
{
    const char *name = json_string_value(dtype);
    if (!name) {
        return eb_failure_set(reading->failure, "field 'dtype' is missing or not a string");
    }
    reading->dtype = (struct dtype){.name = name};
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            reading->dtype = dtypes[i];
        }
    }
    reading->tensor->storage = reading->dtype.storage;
    if (reading->dtype.storage == EB_STORAGE_UNSPECIFIED) {
        struct eb_failure why;
        eb_failure_set(&why,
            "field 'dtype': '%.32s' is not an element type of a table; convert it to F64, F32, "
            "F16, "
            "BF16, F8_E4M3, F8_E5M2, I8 to I64 or U8 to U64",
            name);
        note_unfit(reading, &why);
    }
    return true;
}

/* Reads an integer of at least 0. Returns false if the value is not one. */
static bool read_safetensors_count(const json_t *number, uint64_t *value)
{
    if (!json_is_integer(number) || json_integer_value(number) < 0) {
        return false;
    }
    *value = (uint64_t)json_integer_value(number);
    return true;
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
static bool read_dims(struct reading *reading, const json_t *shape)
{
    bool is_empty = false;
    bool is_huge = false;
    reading->elements = 1;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        struct eb_failure why;
        uint64_t dim;
        if (!read_safetensors_count(json_array_get(shape, i), &dim)) {
            return eb_failure_set(
                reading->failure, "field 'shape': entry %zu is not an integer of at least 0", i);
        }
        if (!eb_tensor_add_dim(reading->tensor, dim, &why)) {
            note_unfit(reading, &why);
        }
        is_empty = is_empty || dim == 0;
        is_huge = is_huge || __builtin_mul_overflow(reading->elements, dim, &reading->elements);
    }
    reading->elements = is_empty ? 0 : reading->elements;
    return !is_huge || is_empty || refuse_size(reading);
}

static bool read_safetensors_shape(struct reading *reading, const json_t *shape)
{
    struct eb_tensor *tensor = reading->tensor;
    struct eb_failure why;
    uint64_t bytes;
    if (!json_is_array(shape)) {
        return eb_failure_set(reading->failure, "field 'shape' is missing or not an array");
    }
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

static bool read_offsets(
    struct reading *reading, const json_t *offsets, const struct layout *layout)
{
    struct eb_tensor *tensor = reading->tensor;
    struct eb_failure *failure = reading->failure;
    uint64_t begin;
    uint64_t end;
    if (json_array_size(offsets) != 2 ||
        !read_safetensors_count(json_array_get(offsets, 0), &begin) ||
        !read_safetensors_count(json_array_get(offsets, 1), &end)) {
        return eb_failure_set(failure,
            "field 'data_offsets' is missing or not an array of two integers of at least 0");
    }
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

static bool read_tensor(struct reading *reading, const json_t *value, const struct layout *layout)
{
    if (!json_is_object(value)) {
        return eb_failure_set(reading->failure, "its description is not an object");
    }
    return read_dtype(reading, json_object_get(value, "dtype")) &&
           read_safetensors_shape(reading, json_object_get(value, "shape")) &&
           read_offsets(reading, json_object_get(value, "data_offsets"), layout) &&
           (json_object_size(value) == TENSOR_FIELDS ||
               eb_failure_set(reading->failure,
                   "it has unknown fields; expected only 'dtype', 'shape' and 'data_offsets'"));
}

/* Puts the tensor's name in front of the text. Always returns false. */
static bool locate_safetensors(struct eb_failure *failure, const char *name)
{
    struct eb_failure inner = *failure;
    return eb_failure_set(failure, "tensor '%.128s': %s", name, inner.text);
}

/* Checks that the field __metadata__ is an object of strings, as the format requires. Its content
 * is not used. The check notices a tensor of that name. */
static bool check_metadata(json_t *metadata, struct eb_failure *failure)
{
    const char *key;
    json_t *value;
    bool is_valid = !metadata || json_is_object(metadata);
    json_object_foreach(metadata, key, value)
    {
        is_valid = is_valid && json_is_string(value);
    }
    return is_valid ||
           eb_failure_set(failure, "field '" METADATA_KEY "' is not an object of strings");
}

static bool read_tensors(json_t *root, const struct layout *layout, struct eb_safetensors *out,
    struct eb_failure *failure)
{
    out->entries = calloc(json_object_size(root) + 1, sizeof *out->entries);
    if (!out->entries) {
        return eb_failure_set(failure, "out of memory");
    }
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, METADATA_KEY) == 0) {
            continue;
        }
        struct eb_safetensors_entry *entry = &out->entries[out->count++];
        struct reading reading = {.tensor = &entry->tensor, .failure = failure};
        if (!read_tensor(&reading, value, layout)) {
            return locate_safetensors(failure, name);
        }
        entry->name = strdup(name);
        entry->unfit = reading.is_unfit ? strdup(reading.unfit.text) : NULL;
        if (!entry->name || (reading.is_unfit && !entry->unfit)) {
            return eb_failure_set(failure, "out of memory");
        }
    }
    return out->count > 0 || eb_failure_set(failure, "there is no table in it; remove the file");
}

/* Compares by position in the file. A tensor without data comes before the one that starts
 * there. */
static int compare_safetensors_entries(const void *left, const void *right)
{
    const struct eb_safetensors_entry *a = left;
    const struct eb_safetensors_entry *b = right;
    if (a->tensor.data_offset != b->tensor.data_offset) {
        return a->tensor.data_offset < b->tensor.data_offset ? -1 : 1;
    }
    if (a->tensor.data_bytes != b->tensor.data_bytes) {
        return a->tensor.data_bytes < b->tensor.data_bytes ? -1 : 1;
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
        uint64_t begin = entry->tensor.data_offset;
        if (begin != covered) {
            eb_failure_set(failure,
                "field 'data_offsets': it begins at %" PRIu64 ", but the tensors before it end at "
                "%" PRIu64 ": %s; write the file again",
                begin - layout->data_start, covered - layout->data_start,
                begin < covered ? "they overlap" : "the bytes in between belong to no tensor");
            return locate_safetensors(failure, entry->name);
        }
        covered += entry->tensor.data_bytes;
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

static json_t *load_header(const uint8_t *head, uint64_t head_bytes, struct eb_failure *failure)
{
    if (head_bytes == LENGTH_BYTES || head[LENGTH_BYTES] != '{') {
        eb_failure_set(failure, "byte 8: the header does not start with '{'");
        return NULL;
    }
    json_error_t error;
    json_t *root = json_loadb((const char *)head + LENGTH_BYTES, head_bytes - LENGTH_BYTES,
        JSON_REJECT_DUPLICATES, &error);
    if (!root && error.text[0] == '\0') {
        /* Errors in the JSON itself always have a text. Without one, memory was lacking. */
        eb_failure_set(failure, "out of memory");
    } else if (!root) {
        eb_failure_set(failure, "byte %d: the header is not valid JSON: %s; write the file again",
            error.position + LENGTH_BYTES, error.text);
    }
    return root;
}

bool eb_safetensors_parse(const uint8_t *head, uint64_t head_bytes, uint64_t file_bytes,
    struct eb_safetensors *out, struct eb_failure *failure)
{
    assert(head_bytes >= LENGTH_BYTES && head_bytes <= file_bytes);
    *out = (struct eb_safetensors){0};
    json_t *root = load_header(head, head_bytes, failure);
    if (!root) {
        return false;
    }
    struct layout layout = {.data_start = head_bytes, .file_bytes = file_bytes};
    bool is_good = check_metadata(json_object_get(root, METADATA_KEY), failure) &&
                   read_tensors(root, &layout, out, failure);
    json_decref(root);
    if (is_good) {
        qsort(out->entries, out->count, sizeof *out->entries, compare_safetensors_entries);
        is_good = check_ranges(&layout, out, failure);
    }
    if (!is_good) {
        eb_safetensors_deinit(out);
    }
    return is_good;
}

void eb_safetensors_deinit(struct eb_safetensors *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->entries[i].name);
        free(list->entries[i].unfit);
    }
    free(list->entries);
    *list = (struct eb_safetensors){0};
}

/* ---- tensor index ---- */

#define MAP_KEY "weight_map"

static bool read_location(const char *tensor, const json_t *file,
    struct eb_tensor_location *location, struct eb_failure *failure)
{
    const char *name = json_string_value(file);
    if (!name || name[0] == '\0' || strchr(name, '/')) {
        return eb_failure_set(failure,
            "field '" MAP_KEY
            "': the file of tensor '%.128s' is not the name of a file in this directory",
            tensor);
    }
    location->tensor = strdup(tensor);
    location->file = strdup(name);
    return (location->tensor && location->file) || eb_failure_set(failure, "out of memory");
}

static bool read_map(json_t *map, struct eb_tensor_index *index, struct eb_failure *failure)
{
    if (!json_is_object(map)) {
        return eb_failure_set(
            failure, "field '" MAP_KEY "' is missing or not an object that maps tensors to files");
    }
    index->locations = calloc(json_object_size(map) + 1, sizeof *index->locations);
    if (!index->locations) {
        return eb_failure_set(failure, "out of memory");
    }
    const char *tensor;
    json_t *file;
    json_object_foreach(map, tensor, file)
    {
        if (!read_location(tensor, file, &index->locations[index->count++], failure)) {
            return false;
        }
    }
    return true;
}

bool eb_tensor_index_parse(const uint8_t *json, size_t json_bytes, struct eb_tensor_index *index,
    struct eb_failure *failure)
{
    *index = (struct eb_tensor_index){0};
    json_error_t error;
    json_t *root = json_loadb((const char *)json, json_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        return eb_failure_set(failure, "byte %d: not valid JSON: %s; write the file again",
            error.position, error.text[0] ? error.text : "out of memory");
    }
    bool is_good = read_map(json_object_get(root, MAP_KEY), index, failure);
    json_decref(root);
    if (!is_good) {
        eb_tensor_index_deinit(index);
    }
    return is_good;
}

void eb_tensor_index_deinit(struct eb_tensor_index *index)
{
    for (size_t i = 0; i < index->count; i++) {
        free(index->locations[i].tensor);
        free(index->locations[i].file);
    }
    free(index->locations);
    *index = (struct eb_tensor_index){0};
}
