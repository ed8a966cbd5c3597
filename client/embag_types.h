/* embag: the constants that its calls use. Part of embag.h, which includes it.
 * Thread: pure. Memory: none. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The gRPC status codes that embag sends. */
enum embag_status {
    EMBAG_OK = 0,
    EMBAG_CANCELLED = 1,
    EMBAG_UNKNOWN = 2,
    EMBAG_INVALID_ARGUMENT = 3,
    EMBAG_DEADLINE_EXCEEDED = 4,
    EMBAG_NOT_FOUND = 5,
    EMBAG_PERMISSION_DENIED = 7,
    EMBAG_RESOURCE_EXHAUSTED = 8,
    EMBAG_FAILED_PRECONDITION = 9,
    EMBAG_OUT_OF_RANGE = 11,
    EMBAG_UNIMPLEMENTED = 12,
    EMBAG_INTERNAL = 13,
    EMBAG_UNAVAILABLE = 14,
    EMBAG_UNAUTHENTICATED = 16
};

struct embag_error {
    enum embag_status status;
    char text[1024]; /* what is wrong and where; UTF-8 */
};

/* Element types; numbers are those of embag.v1.DataType. */
enum embag_type {
    EMBAG_TYPE_UNSPECIFIED = 0,
    EMBAG_F32 = 1,
    EMBAG_F64 = 2,
    EMBAG_F16 = 3,
    EMBAG_BF16 = 4,
    EMBAG_I8 = 5,
    EMBAG_U8 = 6,
    EMBAG_I16 = 7,
    EMBAG_U16 = 8,
    EMBAG_I32 = 9,
    EMBAG_U32 = 10,
    EMBAG_I64 = 11,
    EMBAG_U64 = 12
};

enum embag_reduction {
    EMBAG_REDUCTION_UNSPECIFIED = 0, /* the feature's default; for a table SUM */
    EMBAG_SUM = 1,
    EMBAG_MEAN = 2,
    EMBAG_WEIGHTED_MEAN = 3,
    EMBAG_SQRTN = 4,
    EMBAG_MAX = 5,
    EMBAG_MIN = 6,
    EMBAG_NONE = 7
};

enum embag_missing {
    EMBAG_MISSING_UNSPECIFIED = 0, /* the feature's or table's default, ERROR if it has none */
    EMBAG_MISSING_ERROR = 1,
    EMBAG_MISSING_SKIP = 2,
    EMBAG_MISSING_ZERO = 3,
    EMBAG_MISSING_UNKNOWN_ROW = 4
};

/* The priority of a request against others. */
enum embag_priority {
    EMBAG_INTERACTIVE = 0,
    EMBAG_BATCH = 1 /* runs when no interactive request waits; is refused first */
};

/* State of a version of a model; numbers are those of embag.v1.ModelVersion.State. */
enum embag_version_state {
    EMBAG_STATE_UNSPECIFIED = 0,
    EMBAG_STATE_LOADING = 1,
    EMBAG_STATE_READY = 2,   /* answers requests that name it */
    EMBAG_STATE_SERVING = 3, /* also answers requests that name no version */
    EMBAG_STATE_RETIRED = 4, /* no longer answers */
    EMBAG_STATE_FAILED = 5   /* cannot be loaded */
};

/* Most dims of a shape. */
#define EMBAG_RANK_MAX 9

/* Returns the name of a status, such as "OUT_OF_RANGE"; "UNKNOWN" for any other number. */
const char *embag_status_name(enum embag_status status);
/* Returns the bytes of one element; 0 if the number is not a type. */
size_t embag_type_bytes(enum embag_type type);

#ifdef __cplusplus
}
#endif
