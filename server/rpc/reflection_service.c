#include "server/rpc/reflection_service.h"

#include "proto/codec_reflection.h"
#include "server/rpc/reply.h"

/* An answer that is being made. */
struct answer {
    struct eb_wire_reflection_response response;
    struct eb_schema_files files;
    struct eb_error error; /* sent in the response */
};

static void refuse_reflection(struct answer *answer, const char *what, const char *name)
{
    eb_error_set(&answer->error, EB_STATUS_NOT_FOUND, "no %s \"%.255s\"", what, name);
    answer->response.error = &answer->error;
}

static void find_file(struct answer *answer, const struct eb_wire_reflection_request *request)
{
    bool is_symbol = request->question == EB_REFLECTION_SYMBOL;
    bool is_found = is_symbol ? eb_schema_find_symbol(request->name, &answer->files)
                              : eb_schema_find_file(request->name, &answer->files);
    if (is_found) {
        answer->response.files = &answer->files;
    } else {
        refuse_reflection(answer, is_symbol ? "symbol" : "file", request->name);
    }
}

/* Answers a request about extensions. Messages of proto3 have none. */
static void find_extensions(struct answer *answer, const struct eb_wire_reflection_request *request)
{
    if (!eb_schema_has_message(request->name)) {
        refuse_reflection(answer, "message", request->name);
    } else if (request->question == EB_REFLECTION_EXTENSION) {
        refuse_reflection(answer, "extension of", request->name);
    } else {
        answer->response.base_type = request->name;
    }
}

/* Returns false if the arena is full. */
static bool list_services(struct answer *answer, struct eb_arena *arena)
{
    size_t count = eb_method_table_count();
    const char **names = eb_arena_take(arena, count * sizeof *names);
    for (size_t i = 0; names && i < count; i++) {
        names[i] = eb_method_table_at(i)->service;
    }
    answer->response.services = names;
    answer->response.service_count = count;
    return names;
}

/* Returns false if the arena is full. */
static bool fill_reflection(
    struct answer *answer, const struct eb_wire_reflection_request *request, struct eb_arena *arena)
{
    switch (request->question) {
    case EB_REFLECTION_FILE:
    case EB_REFLECTION_SYMBOL: find_file(answer, request); return true;
    case EB_REFLECTION_EXTENSION:
    case EB_REFLECTION_EXTENSION_NUMBERS: find_extensions(answer, request); return true;
    case EB_REFLECTION_SERVICES: return list_services(answer, arena);
    case EB_REFLECTION_NONE: break;
    }
    eb_error_set(&answer->error, EB_STATUS_INVALID_ARGUMENT, "message_request: missing or unknown");
    answer->response.error = &answer->error;
    return true;
}

static struct eb_outgoing *answer_question(
    const struct eb_unary_request *unary, struct eb_error *error)
{
    const struct eb_wire_reflection_request *request =
        eb_reflection_request_decode(unary->arena, unary->bytes, unary->size, error);
    if (!request) {
        return NULL;
    }
    struct answer answer = {
        .response = {.host = request->host, .request = unary->bytes, .request_bytes = unary->size}};
    if (!fill_reflection(&answer, request, unary->arena)) {
        return eb_unary_refuse_memory(error);
    }
    struct eb_outgoing *made =
        eb_unary_reply(unary, eb_reflection_response_bytes(&answer.response), error);
    if (made) {
        eb_reflection_response_encode(&answer.response, eb_reply_body(made));
    }
    return made;
}

static const struct eb_method methods[] = {
    {"ServerReflectionInfo", EB_METHOD_BIDIRECTIONAL, .answer = answer_question},
};

const struct eb_method_table eb_reflection_service_methods = {
    .service = "grpc.reflection.v1.ServerReflection",
    .access = EB_METHOD_FOR_ALL,
    .methods = methods,
    .count = sizeof methods / sizeof methods[0],
};

const struct eb_method_table eb_reflection_service_alpha_methods = {
    .service = "grpc.reflection.v1alpha.ServerReflection",
    .access = EB_METHOD_FOR_ALL,
    .methods = methods,
    .count = sizeof methods / sizeof methods[0],
};
