/* Element types of tables, weights and results, and the formats that rows are stored in.
 * Thread: pure functions. Memory: none. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(NAME, number, bytes, text). Numbers are those of embag.v1.DataType. */
#define EB_TYPE_LIST(X)                                                                            \
    X(F32, 1, 4, "f32")                                                                            \
    X(F64, 2, 8, "f64")                                                                            \
    X(F16, 3, 2, "f16")                                                                            \
    X(BF16, 4, 2, "bf16")                                                                          \
    X(I8, 5, 1, "i8")                                                                              \
    X(U8, 6, 1, "u8")                                                                              \
    X(I16, 7, 2, "i16")                                                                            \
    X(U16, 8, 2, "u16")                                                                            \
    X(I32, 9, 4, "i32")                                                                            \
    X(U32, 10, 4, "u32")                                                                           \
    X(I64, 11, 8, "i64")                                                                           \
    X(U64, 12, 8, "u64")

/* T: the type of a table's values for its users. */
enum eb_type {
    EB_TYPE_UNSPECIFIED = 0,
#define X(name, number, bytes, text) EB_##name = number,
    EB_TYPE_LIST(X)
#undef X
        EB_TYPE_COUNT
};

/* X(NAME, number, bits, text): formats narrower than T in which a row may be stored. The dense
 * formats share T's number and text. F8_E4M3 is OCP E4M3FN, F8_E5M2 is OCP E5M2. */
#define EB_STORAGE_FP8_LIST(X)                                                                     \
    X(F8_E4M3, 13, 8, "f8_e4m3")                                                                   \
    X(F8_E5M2, 14, 8, "f8_e5m2")

/* Unsigned codes q; each row has its own scale s and bias b. The value is s * q + b. Codes narrower
 * than a byte fill each byte from its low bits on. */
#define EB_STORAGE_CODE_LIST(X)                                                                    \
    X(INT8, 15, 8, "int8")                                                                         \
    X(INT4, 16, 4, "int4")                                                                         \
    X(INT2, 17, 2, "int2")

/* The format of a row in memory. Formats other than the dense ones have T = f32 unless a file
 * specifies another T. */
enum eb_storage {
    EB_STORAGE_UNSPECIFIED = 0,
#define X(name, number, size, text) EB_STORAGE_##name = number,
    EB_TYPE_LIST(X) EB_STORAGE_FP8_LIST(X) EB_STORAGE_CODE_LIST(X)
#undef X
        EB_STORAGE_COUNT
};

/* Returns the bytes of one element; `type` must be one of EB_TYPE_LIST. */
static inline size_t eb_type_bytes(enum eb_type type)
{
    switch (type) {
#define X(name, number, size, text)                                                                \
    case EB_##name: return (size);
        EB_TYPE_LIST(X)
#undef X
    default: assert(!"a type"); return 0;
    }
}

/* Returns the name of a type, such as "f32", or "unspecified" for anything that is not a type. */
const char *eb_type_name(enum eb_type type);
bool eb_type_is_valid(int number);
static inline bool eb_type_is_float(enum eb_type type)
{
    return type == EB_F32 || type == EB_F64 || type == EB_F16 || type == EB_BF16;
}
/* Returns whether `type` is a signed integer type. */
bool eb_type_is_signed(enum eb_type type);

/* Returns the bits of one element. */
static inline unsigned eb_storage_bits(enum eb_storage storage)
{
    switch (storage) {
#define X(name, number, size, text)                                                                \
    case EB_STORAGE_##name: return 8 * (size);
        EB_TYPE_LIST(X)
#undef X
#define X(name, number, size, text)                                                                \
    case EB_STORAGE_##name: return (size);
        EB_STORAGE_FP8_LIST(X)
        EB_STORAGE_CODE_LIST(X)
#undef X
    default: assert(!"a storage"); return 0;
    }
}

/* Returns the bytes of one element. The storage must not be INT4 or INT2. */
size_t eb_storage_bytes(enum eb_storage storage);
/* Returns the bytes of a row of `elements` elements, without scale and bias. */
static inline uint64_t eb_storage_row_bytes(enum eb_storage storage, uint64_t elements)
{
    return (elements * eb_storage_bits(storage) + 7) / 8;
}

/* Returns whether values are converted before they are summed. */
static inline bool eb_storage_is_converted(enum eb_storage storage)
{
    return storage == EB_STORAGE_F16 || storage == EB_STORAGE_BF16 || (int)storage >= EB_TYPE_COUNT;
}

/* Returns whether rows are codes with a scale and a bias. */
static inline bool eb_storage_is_code(enum eb_storage storage)
{
    return storage == EB_STORAGE_INT8 || storage == EB_STORAGE_INT4 || storage == EB_STORAGE_INT2;
}

const char *eb_storage_name(enum eb_storage storage);

/* Returns the T that a table with this storage has unless a file specifies another. */
static inline enum eb_type eb_storage_type(enum eb_storage storage)
{
    assert(storage > EB_STORAGE_UNSPECIFIED && storage < EB_STORAGE_COUNT);
    /* A dense format has the same number as its type. */
    return (int)storage < EB_TYPE_COUNT ? (enum eb_type)storage : EB_F32;
}
/* Returns whether a table whose T is `type` may be stored in this format: any T in its own dense
 * format; F32 in the other two dense formats of 16 bits; F32, F16 and BF16 in fp8 and codes. */
bool eb_storage_holds(enum eb_storage storage, enum eb_type type);
