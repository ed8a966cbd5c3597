#include "server/models/file_fault.h"

#include "server/models/name.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A byte as \xNN, and the NUL that ends the text. */
#define ESCAPE_BYTES 5

/* Copies `raw` into the fault, which is made of whole characters and escapes only. */
static void copy_escaped(struct eb_file_fault *fault, const char *raw)
{
    const uint8_t *in = (const uint8_t *)raw;
    size_t left = strlen(raw);
    size_t used = 0;
    while (left > 0 && used + ESCAPE_BYTES <= sizeof fault->text) {
        size_t bytes = eb_name_char_bytes(in, left);
        if (bytes > 0) {
            memcpy(fault->text + used, in, bytes);
            used += bytes;
        } else {
            bytes = 1;
            used += (size_t)snprintf(fault->text + used, ESCAPE_BYTES, "\\x%02x", (unsigned)*in);
        }
        in += bytes;
        left -= bytes;
    }
    fault->text[used] = '\0';
}

bool eb_file_fault_set(struct eb_file_fault *fault, const char *format, ...)
{
    char raw[EB_FILE_FAULT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(raw, sizeof raw, format, arguments) < 0) {
        raw[0] = '\0';
    }
    va_end(arguments);
    copy_escaped(fault, raw);
    fault->may_pass = false;
    return false;
}

bool eb_file_fault_blame(struct eb_file_fault *fault, int error)
{
    switch (error) {
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
    case ENOENT:
    case ENOTDIR:
    case ENOTCONN:
    case ELOOP:
    case EACCES:
    case EPERM: fault->may_pass = true; break;
    default: fault->may_pass = false; break;
    }
    return false;
}

bool eb_file_fault_locate(struct eb_file_fault *fault, const char *path)
{
    const struct eb_file_fault inner = *fault;
    eb_file_fault_set(fault, "%s: %s", path, inner.text);
    fault->may_pass = inner.may_pass;
    return false;
}
