/* The outcome of a call: gRPC's status codes, and an error with its text.
 * Thread: pure functions. Memory: none. */
#pragma once

#include <stdarg.h>
#include <stdint.h>

/* X(NAME, number). The numbers are gRPC's. */
#define EB_STATUS_LIST(X)                                                                          \
    X(OK, 0)                                                                                       \
    X(CANCELLED, 1)                                                                                \
    X(UNKNOWN, 2)                                                                                  \
    X(INVALID_ARGUMENT, 3)                                                                         \
    X(DEADLINE_EXCEEDED, 4)                                                                        \
    X(NOT_FOUND, 5)                                                                                \
    X(ALREADY_EXISTS, 6)                                                                           \
    X(PERMISSION_DENIED, 7)                                                                        \
    X(RESOURCE_EXHAUSTED, 8)                                                                       \
    X(FAILED_PRECONDITION, 9)                                                                      \
    X(ABORTED, 10)                                                                                 \
    X(OUT_OF_RANGE, 11)                                                                            \
    X(UNIMPLEMENTED, 12)                                                                           \
    X(INTERNAL, 13)                                                                                \
    X(UNAVAILABLE, 14)                                                                             \
    X(DATA_LOSS, 15)                                                                               \
    X(UNAUTHENTICATED, 16)

enum eb_status {
#define X(name, number) EB_STATUS_##name = number,
    EB_STATUS_LIST(X)
#undef X
};

/* Size of an error's text on the wire, including its NUL. Longer texts are cut. */
#define EB_ERROR_TEXT_BYTES 1024

struct eb_error {
    enum eb_status status;
    char text[EB_ERROR_TEXT_BYTES];
};

/* Returns the name, such as "OUT_OF_RANGE", or "UNKNOWN" if the number is not a status. */
const char *eb_status_name(int number);

/* Returns the status for a number from the wire: UNKNOWN if gRPC does not define it. Statuses index
 * counters, so no number that a peer sent may become one without this. */
enum eb_status eb_status_of_number(uint32_t number);

/* Sets both members, cutting the text at EB_ERROR_TEXT_BYTES. Returns `status`, so that a caller
 * can set an error and return in one line. */
enum eb_status eb_error_set(struct eb_error *error, enum eb_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
