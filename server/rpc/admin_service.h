/* The service embag.v1.ModelAdmin: commands on their way to who keeps the models, and what becomes
 * of them on its way back to the callers. A caller that goes away does not stop its command.
 * Thread: the loop's of the call. Memory: each command is on the heap until it is done, which holds
 * the loop. */
#pragma once

#include "server/publish/command_queue.h"
#include "server/rpc/conn_state.h"

/* Commands of one loop that are not done: beyond, a call gets RESOURCE_EXHAUSTED. */
#define EB_ADMIN_COMMANDS_MAX 32

extern const struct eb_method_table eb_admin_service_methods;
