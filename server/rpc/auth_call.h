/* Finds out who makes a call and whether the call is allowed. This is checked when the call begins,
 * and again for each of its requests if the rules have changed since.
 * Thread: the loop's. Memory: only the structs. */
#pragma once

#include "server/rpc/conn_state.h"

/* Returns whether a call of a method with this access may begin. call->conn and call->call must be
 * set. Returns false with *error set: UNAUTHENTICATED or PERMISSION_DENIED. */
bool eb_auth_call_begin(
    struct eb_rpc_call *call, enum eb_method_access access, struct eb_error *error);
/* Returns who makes the call according to the current rules, borrowed until the rules are replaced.
 * Returns NULL if these rules do not know the caller or do not allow the call; *error is as for
 * eb_auth_call_begin. */
const struct eb_principal *eb_auth_call_renew(struct eb_rpc_call *call, struct eb_error *error);

/* Returns the name by which the current rules know the caller. Returns NULL if they do not know it,
 * or if the caller is not authenticated. */
const char *eb_auth_call_name(struct eb_rpc_call *call);

/* Replaces the rules of a loop: holds `auth` and drops the former rules. Cannot change from no
 * rules to rules, or from rules to none. */
void eb_auth_call_set_rules(struct eb_loop *loop, struct eb_auth *auth);
