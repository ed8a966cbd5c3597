/* The service embag.v1.ModelAdmin: sends commands to the thread that keeps the models, and their
 * outcomes back to the callers. A command continues if its caller goes away. Requests about
 * settings are in settings_service.h. Thread: the call's loop. Memory: each command is on the heap,
 * and holds the loop, until it is done. */
#pragma once

#include "server/publish/command_queue.h"
#include "server/rpc/conn_state.h"

extern const struct eb_method_table eb_admin_service_methods;
