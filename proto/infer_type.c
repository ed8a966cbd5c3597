#include "proto/infer_type.h"

#include "embag/v1/embedding_bag.pb-c.h"
#include "inference/open_inference.pb-c.h"

#include <assert.h>
#include <string.h>

/* Indexed by embag.v1.DataType. */
static const struct {
    const char *name;
    uint32_t bytes;
    int32_t number;
} types[] = {
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_F32] = {"FP32", 4, INFERENCE__DATA_TYPE__TYPE_FP32},
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_F64] = {"FP64", 8, INFERENCE__DATA_TYPE__TYPE_FP64},
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_F16] = {"FP16", 2, INFERENCE__DATA_TYPE__TYPE_FP16},
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_BF16] = {"BF16", 2, INFERENCE__DATA_TYPE__TYPE_BF16},
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_I8] = {"INT8", 1, INFERENCE__DATA_TYPE__TYPE_INT8},
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_U8] = {"UINT8", 1, INFERENCE__DATA_TYPE__TYPE_UINT8},
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_I16] = {"INT16", 2, INFERENCE__DATA_TYPE__TYPE_INT16},
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_U16] = {"UINT16", 2, INFERENCE__DATA_TYPE__TYPE_UINT16},
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_I32] = {"INT32", 4, INFERENCE__DATA_TYPE__TYPE_INT32},
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_U32] = {"UINT32", 4, INFERENCE__DATA_TYPE__TYPE_UINT32},
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_I64] = {"INT64", 8, INFERENCE__DATA_TYPE__TYPE_INT64},
    [EMBAG__V1__DATA_TYPE__DATA_TYPE_U64] = {"UINT64", 8, INFERENCE__DATA_TYPE__TYPE_UINT64},
};

#define TYPE_COUNT ((int32_t)(sizeof types / sizeof types[0]))

const char *eb_infer_type_name(int32_t type)
{
    assert(type > 0 && type < TYPE_COUNT);
    return types[type].name;
}

int32_t eb_infer_type_number(int32_t type)
{
    assert(type > 0 && type < TYPE_COUNT);
    return types[type].number;
}

uint32_t eb_infer_type_bytes(int32_t type)
{
    assert(type > 0 && type < TYPE_COUNT);
    return types[type].bytes;
}

int32_t eb_infer_type_find(const char *name)
{
    /* The types of most tensors are near the end of the list. */
    for (int32_t type = TYPE_COUNT - 1; type > 0; type--) {
        if (strcmp(name, types[type].name) == 0) {
            return type;
        }
    }
    return 0;
}

const char *const eb_infer_role_suffixes[EB_INFER_ROLE_COUNT] = {
#define X(name, text) [EB_INFER_##name] = (text),
    EB_INFER_ROLE_LIST(X)
#undef X
};
