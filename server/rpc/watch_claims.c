#include "server/rpc/watch_claims.h"

#include "server/models/claims.h"
#include "server/rpc/auth.h"

#include <stdlib.h>
#include <string.h>

struct eb_watch_claims {
    struct eb_mail begin_mail; /* carries the claims to the admin endpoint */
    struct eb_mail end_mail;   /* takes them back from there, and then to the loop */
    struct eb_service_loop *loop;
    struct eb_claim_set set;
    char *texts; /* the names in the set */
    struct eb_claim claims[];
};

/* ---- mails ---- */

static void on_claims_begin(struct eb_mail *mail)
{
    struct eb_watch_claims *claims = EB_CONTAINER_OF(mail, struct eb_watch_claims, begin_mail);
    const struct eb_admin_endpoint *endpoint = &claims->loop->service->admin;
    endpoint->claim(endpoint->context, &claims->set);
}

static void on_claims_back(struct eb_mail *mail)
{
    struct eb_watch_claims *claims = EB_CONTAINER_OF(mail, struct eb_watch_claims, end_mail);
    struct eb_loop *loop = claims->loop->lookups.loop;
    claims->loop->claim_count -= claims->set.count;
    free(claims->texts);
    free(claims);
    eb_loop_release(loop);
}

static void on_claims_end(struct eb_mail *mail)
{
    struct eb_watch_claims *claims = EB_CONTAINER_OF(mail, struct eb_watch_claims, end_mail);
    const struct eb_admin_endpoint *endpoint = &claims->loop->service->admin;
    endpoint->unclaim(endpoint->context, &claims->set);
    claims->end_mail.deliver = on_claims_back;
    eb_mailbox_post(eb_loop_mailbox(claims->loop->lookups.loop), &claims->end_mail);
}

/* ---- beginning and end ---- */

/* Copies a name to *room and moves *room behind it. */
static const char *copy_name(char **room, const char *name)
{
    size_t bytes = strlen(name) + 1;
    const char *copy = memcpy(*room, name, bytes);
    *room += bytes;
    return copy;
}

/* Copies the claims that the caller may make. Returns NULL if out of memory. */
static struct eb_watch_claims *copy_claims(
    const struct eb_principal *caller, const struct eb_wire_watch_request *request)
{
    size_t text_bytes = strlen(request->router) + 1;
    for (size_t i = 0; i < request->claim_count; i++) {
        text_bytes += strlen(request->claims[i].model) + 1;
    }
    struct eb_watch_claims *claims =
        calloc(1, sizeof *claims + request->claim_count * sizeof claims->claims[0]);
    char *texts = malloc(text_bytes);
    if (!claims || !texts) {
        free(claims);
        free(texts);
        return NULL;
    }
    claims->texts = texts;
    claims->set.router = copy_name(&texts, request->router);
    claims->set.claims = claims->claims;
    for (size_t i = 0; i < request->claim_count; i++) {
        const struct eb_wire_claim *claim = &request->claims[i];
        if (eb_principal_may_see(caller, claim->model)) {
            claims->claims[claims->set.count++] = (struct eb_claim){
                copy_name(&texts, claim->model), claim->version, claim->digest, claim->served};
        }
    }
    return claims;
}

bool eb_watch_claims_begin(struct eb_service_loop *loop, const struct eb_principal *caller,
    const struct eb_wire_watch_request *request, struct eb_watch_claims **out,
    struct eb_error *error)
{
    *out = NULL;
    if (request->claim_count == 0) {
        return true;
    }
    if (!caller->is_router) {
        eb_error_set(error, EB_STATUS_PERMISSION_DENIED,
            "claims: \"%s\" is not a router; set router: true for it in auth_file", caller->name);
        return false;
    }
    if (request->claim_count > EB_WATCH_LOOP_CLAIMS_MAX - loop->claim_count) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "calls claim %zu versions already; the limit is %d; end some of them first",
            loop->claim_count, EB_WATCH_LOOP_CLAIMS_MAX);
        return false;
    }
    struct eb_watch_claims *claims = copy_claims(caller, request);
    if (!claims) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left; retry later");
        return false;
    }
    claims->loop = loop;
    claims->begin_mail.deliver = on_claims_begin;
    claims->end_mail.deliver = on_claims_end;
    loop->claim_count += claims->set.count;
    eb_loop_hold(loop->lookups.loop);
    eb_mailbox_post(loop->service->admin.mailbox, &claims->begin_mail);
    *out = claims;
    return true;
}

void eb_watch_claims_end(struct eb_watch_claims *claims)
{
    if (claims) {
        eb_mailbox_post(claims->loop->service->admin.mailbox, &claims->end_mail);
    }
}
