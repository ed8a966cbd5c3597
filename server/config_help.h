/* What embagd --help and --version print.
 * Thread: main only. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* false: out could not be written. */
bool eb_config_help_print(FILE *out);
bool eb_config_help_print_version(FILE *out);

/* How this program was built, for people: "optimised, gcc 12.2.0". */
const char *eb_config_help_build(void);
