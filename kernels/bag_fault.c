#include "kernels/bag_fault.h"

#include <stdarg.h>
#include <stdio.h>

void eb_bag_fault_put(
    struct eb_bag_fault *fault, enum eb_fault_class class, const char *format, ...)
{
    fault->class = class;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
}
