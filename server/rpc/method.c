#include "server/rpc/method.h"

#include <string.h>

#define PREFIX "/embag.v1.EmbeddingBag/"

static const struct eb_method methods[] = {
    {PREFIX "Lookup", EB_METHOD_LOOKUP, NULL},
    {PREFIX "LookupStream", EB_METHOD_LOOKUP_STREAM, NULL},
    {PREFIX "ListModels", EB_METHOD_CATALOGUE, eb_catalogue_list_models},
    {PREFIX "GetModel", EB_METHOD_CATALOGUE, eb_catalogue_get_model},
    {PREFIX "GetServer", EB_METHOD_CATALOGUE, eb_catalogue_get_server},
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
    if (method->kind == EB_METHOD_LOOKUP_STREAM) {
        return asked_us;
    }
    return asked_us == 0 || asked_us > unary_longest_us ? unary_longest_us : asked_us;
}
