#include "proto/status.h"

#include <assert.h>
#include <stdio.h>

const char *eb_status_name(int number)
{
    switch (number) {
#define X(name, code)                                                                              \
    case code: return #name;
        EB_STATUS_LIST(X)
#undef X
    }
    return "UNKNOWN";
}

enum eb_status eb_status_of_number(uint32_t number)
{
    return number <= EB_STATUS_UNAUTHENTICATED ? (enum eb_status)number : EB_STATUS_UNKNOWN;
}

/* Removes the last character if the text was cut in the middle of it. The text goes into a protobuf
 * string, which must be UTF-8. */
static void drop_cut_character(char text[EB_ERROR_TEXT_BYTES])
{
    size_t end = EB_ERROR_TEXT_BYTES - 1;
    while (end > 0 && ((unsigned char)text[end - 1] & 0xC0) == 0x80) {
        end--;
    }
    if (end > 0 && ((unsigned char)text[end - 1] & 0x80) != 0) {
        end--;
    }
    text[end] = 0;
}

enum eb_status eb_error_set(struct eb_error *error, enum eb_status status, const char *format, ...)
{
    assert(status != EB_STATUS_OK);
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    assert(length >= 0);
    if ((size_t)length >= sizeof error->text) {
        drop_cut_character(error->text);
    }
    return status;
}
