#include "server/rpc/auth_call.h"

#include "proto/grpc_headers.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

static const char scheme[] = EB_GRPC_BEARER;

static bool has_name(const void *peer, const char *name)
{
    return eb_conn_has_client_name(peer, name);
}

/* Finds the caller by its certificate. Does so once per connection and generation of the rules,
 * because reading a certificate takes long. */
static const struct eb_principal *find_caller_named(
    struct eb_rpc_conn *conn, const struct eb_auth *auth)
{
    if (conn->auth.generation != auth->generation) {
        conn->auth.principal = eb_auth_find_named(auth, has_name, conn->conn);
        conn->auth.generation = auth->generation;
    }
    return conn->auth.principal;
}

/* Finds the caller. If it sends a token, only the token decides, even if the server does not know
 * it. */
static void find_principal(struct eb_rpc_call *call)
{
    const struct eb_auth *auth = call->conn->loop->auth;
    struct eb_auth_call *self = &call->auth;
    self->generation = auth->generation;
    if (self->is_junk) {
        self->principal = NULL;
    } else if (self->has_token) {
        self->principal = eb_auth_find_token(auth, &self->token);
    } else {
        self->principal = find_caller_named(call->conn, auth);
    }
    if (!self->principal && self->access == EB_METHOD_FOR_ALL) {
        self->principal = &eb_auth_nobody;
    }
}

/* Returns whether the principal may make the call. If not, sets *error. */
static bool decide_access(const struct eb_auth_call *self, struct eb_error *error)
{
    if (!self->principal) {
        eb_error_set(error, EB_STATUS_UNAUTHENTICATED, "%s",
            self->has_token ? "the server does not know this bearer token"
                            : "authentication is required: send \"authorization: Bearer TOKEN\", "
                              "or connect with a client certificate that the server knows");
        return false;
    }
    if (self->access == EB_METHOD_FOR_ADMINS && !self->principal->is_admin) {
        eb_error_set(error, EB_STATUS_PERMISSION_DENIED,
            "\"%s\" may not call ModelAdmin: the auth_file of the server does not mark it as an "
            "admin",
            self->principal->name);
        return false;
    }
    return true;
}

/* Reads the token from the authorization header, if there is one. */
static void read_caller_token(struct eb_auth_call *self, const char *authorization)
{
    size_t scheme_bytes = sizeof scheme - 1;
    if (!authorization) {
        return;
    }
    self->has_token = true;
    self->is_junk = strncasecmp(authorization, scheme, scheme_bytes) != 0 ||
                    strlen(authorization + scheme_bytes) < EB_AUTH_TOKEN_BYTES_MIN;
    if (!self->is_junk) {
        const char *token = authorization + scheme_bytes;
        eb_secret_digest(token, strlen(token), &self->token);
    }
}

bool eb_auth_call_begin(
    struct eb_rpc_call *call, enum eb_method_access access, struct eb_error *error)
{
    struct eb_auth_call *self = &call->auth;
    self->access = access;
    if (!call->conn->loop->auth || eb_conn_is_local(call->conn->conn)) {
        self->principal = &eb_auth_anybody;
        eb_conn_set_known(call->conn->conn);
        return true;
    }
    read_caller_token(self, call->call->authorization);
    find_principal(call);
    if (self->principal && self->principal != &eb_auth_nobody) {
        eb_conn_set_known(call->conn->conn);
    }
    return decide_access(self, error);
}

const struct eb_principal *eb_auth_call_renew(struct eb_rpc_call *call, struct eb_error *error)
{
    struct eb_auth_call *self = &call->auth;
    if (self->principal == &eb_auth_anybody) {
        return self->principal;
    }
    if (self->generation != call->conn->loop->auth->generation) {
        find_principal(call);
    }
    return decide_access(self, error) ? self->principal : NULL;
}

const char *eb_auth_call_name(struct eb_rpc_call *call)
{
    const struct eb_auth *auth = call->conn->loop->auth;
    struct eb_auth_call *self = &call->auth;
    if (!auth || self->generation == 0) {
        return NULL;
    }
    if (self->generation != auth->generation) {
        find_principal(call);
    }
    return self->principal && self->principal != &eb_auth_nobody ? self->principal->name : NULL;
}

void eb_auth_call_set_rules(struct eb_loop *loop, struct eb_auth *auth)
{
    struct eb_service_loop *state = eb_loop_user(loop);
    struct eb_auth *former = state->auth;
    assert(!former == !auth);
    state->auth = eb_auth_hold(auth);
    eb_auth_drop(former);
}
