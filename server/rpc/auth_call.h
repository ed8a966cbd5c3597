/* Who makes a call, and whether it may: asked once where the call begins, and again for each of its
 * requests where the rules have changed since.
 * Thread: the loop's. Memory: none beyond the structs. */
#pragma once

#include "server/rpc/conn_state.h"

/* Whether a call of a method of this access may begin. Its connection and its gRPC call must be
 * set. false: *error, UNAUTHENTICATED or PERMISSION_DENIED. */
bool eb_auth_call_begin(
    struct eb_rpc_call *call, enum eb_method_access access, struct eb_error *error);
/* Who makes the call by the rules of now, borrowed until others are set. NULL: by these it is not
 * known, or may not make it; *error is as of begin. */
const struct eb_principal *eb_auth_call_renew(struct eb_rpc_call *call, struct eb_error *error);

/* By what name the rules of now know who makes the call; NULL: by none, or they do not ask. */
const char *eb_auth_call_name(struct eb_rpc_call *call);

/* The rules of a loop from now on, in place of what they were: takes a hold. Not from none to some
 * or back. */
void eb_auth_call_set_rules(struct eb_loop *loop, struct eb_auth *auth);
