#include "server/formats/tensor_index.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAP_KEY "weight_map"

static bool read_place(const char *tensor, const json_t *file, struct eb_tensor_place *place,
    struct eb_failure *failure)
{
    const char *name = json_string_value(file);
    if (!name || name[0] == '\0' || strchr(name, '/')) {
        return eb_failure_set(failure,
            "field '" MAP_KEY "': the file of tensor '%.128s' is no name of a file beside this one",
            tensor);
    }
    place->tensor = strdup(tensor);
    place->file = strdup(name);
    return (place->tensor && place->file) || eb_failure_set(failure, "out of memory");
}

static bool read_map(json_t *map, struct eb_tensor_index *index, struct eb_failure *failure)
{
    if (!json_is_object(map)) {
        return eb_failure_set(
            failure, "field '" MAP_KEY "' is missing or no object of tensors and files");
    }
    index->places = calloc(json_object_size(map) + 1, sizeof *index->places);
    if (!index->places) {
        return eb_failure_set(failure, "out of memory");
    }
    const char *tensor;
    json_t *file;
    json_object_foreach(map, tensor, file)
    {
        if (!read_place(tensor, file, &index->places[index->count++], failure)) {
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
        return eb_failure_set(failure, "byte %d: it is no JSON: %s; write the file again",
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
        free(index->places[i].tensor);
        free(index->places[i].file);
    }
    free(index->places);
    *index = (struct eb_tensor_index){0};
}
