/* Defines who may call, and which methods and models. A principal is recognised by a bearer token,
 * by the name in a client's certificate, or by both.
 * Thread: any; an open eb_auth does not change. Memory: on the heap until its last hold is gone. */
#pragma once

#include "server/net/secret.h"

#include <stdatomic.h>

#define EB_AUTH_TOKEN_BYTES_MIN 16 /* shorter tokens could be guessed */

struct eb_principal {
    char *name;        /* its name in the auth_file; for logs and error texts */
    char *client_name; /* see eb_tls_stream_has_name; NULL if it is recognised only by its token */
    struct eb_secret_digest token;
    bool has_token;
    bool has_all_models;
    bool is_admin;
    bool is_router; /* may claim versions, and ask for rows of one part */
    char **models;  /* [model_count] models that it may look up, unless has_all_models */
    size_t model_count;
};

/* The principals of an auth_file. The functions of auth_file.h make this struct. */
struct eb_auth {
    uint64_t generation; /* above 0; unique in the process */
    atomic_uint holds;
    bool has_end; /* whether the file ends with `end: true`, which shows that it is complete */
    size_t count;
    struct eb_principal *principals; /* [count] */
};

/* The principal of callers that need no authentication, because there is no auth_file or the
 * connection is local: may do everything. */
extern const struct eb_principal eb_auth_anybody;
/* The principal of an unknown caller: may do nothing. */
extern const struct eb_principal eb_auth_nobody;

/* Adds a hold and returns `auth`, which may be NULL. */
struct eb_auth *eb_auth_hold(struct eb_auth *auth);
/* Drops a hold. The last one frees `auth`. Accepts NULL. */
void eb_auth_drop(struct eb_auth *auth);

/* Returns the principal with that token; NULL if there is none. Takes the same time for every
 * token. */
const struct eb_principal *eb_auth_find_token(
    const struct eb_auth *auth, const struct eb_secret_digest *token);

/* Returns whether a peer has shown that it has the name. */
typedef bool (*eb_auth_has_name_fn)(const void *peer, const char *name);

/* Returns the first principal whose client_name the peer has shown; NULL if there is none. */
const struct eb_principal *eb_auth_find_named(
    const struct eb_auth *auth, eb_auth_has_name_fn has_name, const void *peer);

bool eb_principal_may_look_up(const struct eb_principal *principal, const char *model);
/* Returns whether the principal may learn that the model exists: it may look it up, or is an
 * admin. */
bool eb_principal_may_see(const struct eb_principal *principal, const char *model);
