/* What embagd --print-config prints: every setting with its value and where that came from, as a
 * YAML file that --config takes. What is not set stands there as a comment.
 * Thread: main only. Memory: none. */
#pragma once

#include "server/config_setting.h"

#include <stdio.h>

/* false: *error says that out could not be written, or which setting no YAML file can hold: a path
 * that is not UTF-8, or has control characters. */
bool eb_config_print(const struct eb_config *config, FILE *out, struct eb_config_error *error);
