#include "server/part_choice.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOST_NAME "hostname"
/* Most digits of a number, so that it fits 32 bits. */
#define DIGITS_MAX 9

/* Reads the decimal digits from `text` to `end`. Returns false if there are none or too many, or
 * other characters. */
static bool read_part_number(const char *text, const char *end, uint32_t *number)
{
    size_t digits = (size_t)(end - text);
    *number = 0;
    if (digits == 0 || digits > DIGITS_MAX || strspn(text, "0123456789") < digits) {
        return false;
    }
    for (; text < end; text++) {
        *number = *number * 10 + (uint32_t)(*text - '0');
    }
    return true;
}

/* Reads the number at the end of the host's name, without its domain. */
static bool read_ordinal(const char *host, uint32_t *number, struct eb_failure *failure)
{
    const char *end = host + strcspn(host, ".");
    const char *begin = end;
    while (begin > host && begin[-1] >= '0' && begin[-1] <= '9') {
        begin--;
    }
    return read_part_number(begin, end, number) ||
           eb_failure_set(failure,
               "the host's name is '%.64s', but expected a name with a number of at most %d digits "
               "at its "
               "end",
               host, DIGITS_MAX);
}

bool eb_part_choice_read_on(
    const char *text, const char *host, struct eb_part_choice *choice, struct eb_failure *failure)
{
    const char *slash = strchr(text, '/');
    bool is_good = slash && read_part_number(slash + 1, slash + strlen(slash), &choice->parts) &&
                   choice->parts > 0 && choice->parts <= EB_PARTS_MAX;
    size_t before = is_good ? (size_t)(slash - text) : 0;
    if (is_good && before == strlen(HOST_NAME) && strncmp(text, HOST_NAME, before) == 0) {
        uint32_t ordinal;
        if (!read_ordinal(host, &ordinal, failure)) {
            return false;
        }
        choice->part = ordinal % choice->parts;
        return true;
    }
    is_good =
        is_good && read_part_number(text, slash, &choice->part) && choice->part < choice->parts;
    return is_good || eb_failure_set(failure,
                          "expected K/P or hostname/P with P from 1 to %u and K from 0 to P - 1",
                          EB_PARTS_MAX);
}

bool eb_part_choice_read(
    const char *text, struct eb_part_choice *choice, struct eb_failure *failure)
{
    char host[HOST_NAME_MAX + 1] = "";
    (void)gethostname(host, sizeof host - 1); /* An empty name is refused if it is needed. */
    return eb_part_choice_read_on(text, host, choice, failure);
}
