#include "server/rpc/method.h"

#include <string.h>

#define LOOKUPS "/embag.v1.EmbeddingBag/"
#define ADMIN "/embag.v1.ModelAdmin/"

static const struct eb_method methods[] = {
    {.path = LOOKUPS "Lookup", .kind = EB_METHOD_LOOKUP},
    {.path = LOOKUPS "LookupStream", .kind = EB_METHOD_LOOKUP_STREAM},
    {.path = LOOKUPS "ListModels", .kind = EB_METHOD_CATALOGUE, .answer = eb_catalogue_list_models},
    {.path = LOOKUPS "GetModel", .kind = EB_METHOD_CATALOGUE, .answer = eb_catalogue_get_model},
    {.path = LOOKUPS "GetServer", .kind = EB_METHOD_CATALOGUE, .answer = eb_catalogue_get_server},
    {.path = ADMIN "LoadVersion",
        .kind = EB_METHOD_COMMAND,
        .verb = EB_MODEL_LOAD,
        .is_admin = true},
    {.path = ADMIN "UnloadVersion",
        .kind = EB_METHOD_COMMAND,
        .verb = EB_MODEL_UNLOAD,
        .is_admin = true},
    {.path = ADMIN "ServeVersion",
        .kind = EB_METHOD_COMMAND,
        .verb = EB_MODEL_SERVE,
        .is_admin = true},
    {.path = ADMIN "ListVersions",
        .kind = EB_METHOD_CATALOGUE,
        .answer = eb_catalogue_list_versions,
        .is_admin = true},
};

const struct eb_method *eb_method_find(const char *path)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(path, methods[i].path) == 0) {
            return &methods[i];
        }
    }
    return NULL;
}

uint64_t eb_method_timeout_us(
    const struct eb_method *method, uint64_t asked_us, uint64_t unary_longest_us)
{
    if (method->kind == EB_METHOD_LOOKUP_STREAM || method->kind == EB_METHOD_COMMAND) {
        return asked_us;
    }
    return asked_us == 0 || asked_us > unary_longest_us ? unary_longest_us : asked_us;
}
