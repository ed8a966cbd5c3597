#include "server/rpc/auth.h"

#include <stdlib.h>
#include <string.h>

const struct eb_principal eb_auth_anybody = {
    .name = "anybody", .has_all_models = true, .is_admin = true, .is_router = true};
const struct eb_principal eb_auth_nobody = {.name = "nobody"};

struct eb_auth *eb_auth_hold(struct eb_auth *auth)
{
    if (auth) {
        atomic_fetch_add_explicit(&auth->holds, 1, memory_order_relaxed);
    }
    return auth;
}

static void free_principal(struct eb_principal *principal)
{
    for (size_t i = 0; i < principal->model_count; i++) {
        free(principal->models[i]);
    }
    free(principal->models);
    free(principal->name);
    free(principal->client_name);
}

void eb_auth_drop(struct eb_auth *auth)
{
    if (!auth || atomic_fetch_sub_explicit(&auth->holds, 1, memory_order_acq_rel) > 1) {
        return;
    }
    for (size_t i = 0; i < auth->count; i++) {
        free_principal(&auth->principals[i]);
    }
    free(auth->principals);
    free(auth);
}

const struct eb_principal *eb_auth_find_token(
    const struct eb_auth *auth, const struct eb_secret_digest *token)
{
    const struct eb_principal *found = NULL;
    for (size_t i = 0; i < auth->count; i++) {
        const struct eb_principal *principal = &auth->principals[i];
        if (eb_secret_is_same(&principal->token, token) && principal->has_token) {
            found = principal;
        }
    }
    return found;
}

const struct eb_principal *eb_auth_find_named(
    const struct eb_auth *auth, eb_auth_has_name_fn has_name, const void *peer)
{
    for (size_t i = 0; i < auth->count; i++) {
        const struct eb_principal *principal = &auth->principals[i];
        if (principal->client_name && has_name(peer, principal->client_name)) {
            return principal;
        }
    }
    return NULL;
}

bool eb_principal_may_look_up(const struct eb_principal *principal, const char *model)
{
    bool may = principal->has_all_models;
    for (size_t i = 0; i < principal->model_count && !may; i++) {
        may = strcmp(principal->models[i], model) == 0;
    }
    return may;
}

bool eb_principal_may_see(const struct eb_principal *principal, const char *model)
{
    return principal->is_admin || eb_principal_may_look_up(principal, model);
}
