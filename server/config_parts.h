/* Derives what each part of the server needs from the settings, at start and when they change.
 * Thread: main's. Memory: none; texts are borrowed from the settings. */
#pragma once

#include "server/config.h"
#include "server/net/loop_options.h"
#include "server/rpc/conn_state.h"
#include "server/stats/stats.h"

struct eb_loop_limits eb_config_loop_limits(const struct eb_config *config);
struct eb_service_settings eb_config_service_settings(const struct eb_config *config);
struct eb_metrics_limits eb_config_metrics_limits(const struct eb_config *config);
/* Sets the members that eb_manager_set takes over, and no others. */
void eb_config_set_manager_options(
    const struct eb_config *config, struct eb_manager_options *options);
/* Raises the limit on open files, as far as the hard limit allows, so that it is high enough for
 * all connections. Logs a warning if it is not. */
void eb_config_raise_file_limit(const struct eb_config *config);
