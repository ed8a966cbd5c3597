/* The methods of embag.v1.ModelAdmin that list and reload settings: they send requests to the
 * thread that keeps the settings, and the outcomes back to the callers. A reload continues if its
 * caller goes away.
 * Thread: the call's loop. Memory: each request is on the heap until it is done; until then it
 * holds the loop and counts as a command. */
#pragma once

#include "server/rpc/conn_state.h"

void eb_settings_service_list(struct eb_rpc_call *call, const struct eb_grpc_message *message);
void eb_settings_service_reload(struct eb_rpc_call *call, const struct eb_grpc_message *message);
/* Detaches the call's request, if there is one, from the call. */
void eb_settings_service_forget(struct eb_rpc_call *call);
