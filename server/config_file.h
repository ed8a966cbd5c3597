/* The YAML file of settings: `loops: 4`, `listen: ["127.0.0.1:8600", "unix:/run/embag.sock"]`.
 * Thread: main only. Memory: gives back all that it takes. */
#pragma once

#include "server/config_setting.h"

/* A configuration has some 30 lines; what is larger is another file. */
#define EB_CONFIG_FILE_BYTES_MAX 65536

/* Applies the file config->config_file, which is not NULL, as EB_CONFIG_FILE. A file without any
 * setting is legal; unknown keys, keys that stand twice, aliases and a second document are not.
 * false: *error names the file and, where the YAML itself is at fault, the line. */
bool eb_config_file_apply(struct eb_config *config, struct eb_config_error *error);
