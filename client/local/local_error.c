#include "client/local/local_error.h"

#include <stdarg.h>
#include <stdio.h>

bool eb_local_error_set(
    struct embag_error *error, enum embag_status status, const char *format, ...)
{
    if (error) {
        error->status = status;
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return false;
}
