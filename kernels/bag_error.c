#include "kernels/bag_error.h"

#include <stdarg.h>
#include <stdio.h>

void eb_bag_error_format(
    struct eb_bag_error *error, enum eb_bag_error_class class, const char *format, ...)
{
    error->class = class;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
}
