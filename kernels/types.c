#include "kernels/types.h"

#include <assert.h>

const char *eb_type_name(enum eb_type type)
{
    static const char *const names[EB_TYPE_COUNT] = {
#define X(name, number, size, text) [number] = (text),
        EB_TYPE_LIST(X)
#undef X
    };
    return eb_type_is_valid((int)type) ? names[type] : "unspecified";
}

bool eb_type_is_valid(int number)
{
    return number > EB_TYPE_UNSPECIFIED && number < EB_TYPE_COUNT;
}

bool eb_type_is_signed(enum eb_type type)
{
    return type == EB_I8 || type == EB_I16 || type == EB_I32 || type == EB_I64;
}

size_t eb_storage_bytes(enum eb_storage storage)
{
    assert(eb_storage_bits(storage) >= 8);
    return eb_storage_bits(storage) / 8;
}

const char *eb_storage_name(enum eb_storage storage)
{
    static const char *const names[EB_STORAGE_COUNT] = {
#define X(name, number, size, text) [number] = (text),
        EB_TYPE_LIST(X) EB_STORAGE_FP8_LIST(X) EB_STORAGE_CODE_LIST(X)
#undef X
    };
    bool is_storage = storage > EB_STORAGE_UNSPECIFIED && storage < EB_STORAGE_COUNT;
    return is_storage ? names[storage] : "unspecified";
}

bool eb_storage_holds(enum eb_storage storage, enum eb_type type)
{
    bool is_half = storage == EB_STORAGE_F16 || storage == EB_STORAGE_BF16;
    bool is_below = (int)storage >= EB_TYPE_COUNT;
    return type == eb_storage_type(storage) || (is_half && type == EB_F32) ||
           (is_below && (type == EB_F16 || type == EB_BF16));
}
