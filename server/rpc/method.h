/* The methods of embag.v1.EmbeddingBag and embag.v1.ModelAdmin, by the path of a call.
 * Thread, memory: constants. */
#pragma once

#include "server/publish/command_queue.h"
#include "server/rpc/catalogue.h"

enum eb_method_kind {
    EB_METHOD_LOOKUP,        /* one request, one answer */
    EB_METHOD_LOOKUP_STREAM, /* many of both */
    EB_METHOD_CATALOGUE,     /* one request, answered at once from what does not change */
    EB_METHOD_COMMAND        /* one request, answered now and then until it is done */
};

struct eb_method {
    const char *path;
    enum eb_method_kind kind;
    eb_catalogue_fn answer;  /* EB_METHOD_CATALOGUE */
    enum eb_model_verb verb; /* EB_METHOD_COMMAND */
    bool is_admin;           /* of ModelAdmin */
};

/* For errors. */
#define EB_METHOD_NAMES                                                                            \
    "/embag.v1.EmbeddingBag/Lookup, LookupStream, ListModels, GetModel, GetServer, "               \
    "/embag.v1.ModelAdmin/LoadVersion, UnloadVersion, ServeVersion, ListVersions"

/* How long a call may take that asks for `asked_us` (0: it does not say); 0: for ever. A unary call
 * has a deadline even where it names none: it must not wait for its peer for ever. A stream of
 * lookups and a command have none then: both take as long as they take. */
uint64_t eb_method_timeout_us(
    const struct eb_method *method, uint64_t asked_us, uint64_t unary_longest_us);

/* NULL: there is no such method. */
const struct eb_method *eb_method_find(const char *path);
