/* Who may call, and what: principals, each known by a bearer token, by the name in a client's
 * certificate, or by both.
 * Thread: any; what is open does not change. Memory: on the heap until the last hold is dropped. */
#pragma once

#include "server/net/secret.h"

#include <stdatomic.h>

#define EB_AUTH_TOKEN_BYTES_MIN 16 /* shorter ones could be guessed */

struct eb_principal {
    char *name;        /* for people */
    char *client_name; /* see eb_tls_stream_has_name; NULL: it is known by its token only */
    struct eb_secret_digest token;
    bool has_token;
    bool has_all_models;
    bool is_admin;
    char **models; /* [model_count] that it may look up, unless it has all */
    size_t model_count;
};

/* Made by auth_file.h. */
struct eb_auth {
    uint64_t generation; /* above 0; no two of a process have the same */
    atomic_uint holds;
    bool has_end; /* its file ends with `end: true`, so it is complete */
    size_t count;
    struct eb_principal *principals; /* [count] */
};

/* Everybody, where nobody is asked who he is: may do all. */
extern const struct eb_principal eb_auth_anybody;
/* Who is not known: may do nothing. */
extern const struct eb_principal eb_auth_nobody;

/* Accept NULL. hold returns its argument. */
struct eb_auth *eb_auth_hold(struct eb_auth *auth);
void eb_auth_drop(struct eb_auth *auth);

/* NULL: nobody has that token. Takes the same time for all tokens. */
const struct eb_principal *eb_auth_find_token(
    const struct eb_auth *auth, const struct eb_secret_digest *token);

/* Whether a peer has shown that it has the name. */
typedef bool (*eb_auth_has_name_fn)(const void *peer, const char *name);

/* The first principal whose client_name the peer has; NULL: none. */
const struct eb_principal *eb_auth_find_named(
    const struct eb_auth *auth, eb_auth_has_name_fn has_name, const void *peer);

bool eb_principal_may_look_up(const struct eb_principal *principal, const char *model);
/* Whether it may know of the model: it may look it up, or administers all of them. */
bool eb_principal_may_see(const struct eb_principal *principal, const char *model);
