#include "client/channel.h"
#include "client/embag.h"
#include "client/lookup_call.h"
#include "client/models_call.h"
#include "client/sigpipe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_US_DEFAULT 5000000
#define TIMEOUT_US_DEFAULT 1000000
#define TIMEOUT_US_MAX UINT64_C(31536000000000) /* a year: keeps times far from overflow */
#define ANSWER_BYTES_MAX_DEFAULT (64 * 1024 * 1024)
#define NS_PER_US 1000

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays go to the wire as they are");
static_assert(sizeof(((struct embag_error *)0)->text) == EB_ERROR_TEXT_BYTES, "texts are copied");

struct embag_client {
    uv_mutex_t lock; /* of busy */
    uv_cond_t turn;  /* busy has become false */
    bool busy;       /* a thread's call is under way */
    uint64_t timeout_us;
    struct eb_channel channel;
    char address[]; /* as it was given: also the authority of calls */
};

static enum embag_status report(const struct eb_error *from, struct embag_error *to)
{
    if (to != NULL) {
        to->status = (enum embag_status)from->status;
        memcpy(to->text, from->text, sizeof to->text);
    }
    return (enum embag_status)from->status;
}

static uint64_t pick(uint64_t value_us, uint64_t default_us)
{
    uint64_t picked_us = value_us != 0 ? value_us : default_us;
    return picked_us < TIMEOUT_US_MAX ? picked_us : TIMEOUT_US_MAX;
}

static struct embag_client *create(const char *address, const struct embag_options *options)
{
    size_t address_bytes = strlen(address) + 1;
    struct embag_client *client = calloc(1, sizeof *client + address_bytes);
    if (client == NULL) {
        return NULL;
    }
    memcpy(client->address, address, address_bytes);
    client->timeout_us = pick(options->timeout_us, TIMEOUT_US_DEFAULT);
    client->channel.connect_timeout_ns =
        pick(options->connect_timeout_us, CONNECT_TIMEOUT_US_DEFAULT) * NS_PER_US;
    client->channel.limits.response_bytes_max =
        options->answer_bytes_max != 0 ? options->answer_bytes_max : ANSWER_BYTES_MAX_DEFAULT;
    int rc = uv_mutex_init(&client->lock);
    assert(rc == 0);
    rc = uv_cond_init(&client->turn);
    assert(rc == 0);
    return client;
}

static void destroy(struct embag_client *client)
{
    uv_cond_destroy(&client->turn);
    uv_mutex_destroy(&client->lock);
    free(client);
}

static bool connect_client(struct embag_client *client, struct eb_error *error)
{
    struct eb_channel *channel = &client->channel;
    if (!eb_endpoint_parse(client->address, &channel->endpoint)) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "\"%s\" is no address: HOST:PORT, [V6]:PORT or unix:PATH", client->address);
        return false;
    }
    channel->authority = channel->endpoint.is_unix ? "localhost" : client->address;
    struct eb_sigpipe sigpipe;
    eb_sigpipe_block(&sigpipe);
    bool opened = eb_channel_open(channel, error);
    eb_sigpipe_restore(&sigpipe);
    return opened;
}

enum embag_status embag_open(const char *address, const struct embag_options *options,
    struct embag_client **client, struct embag_error *error)
{
    static const struct embag_options defaults = {0};
    struct eb_error failure = {.status = EB_STATUS_OK};
    *client = create(address, options != NULL ? options : &defaults);
    if (*client == NULL) {
        eb_error_set(&failure, EB_STATUS_RESOURCE_EXHAUSTED, "no memory for a client");
    } else if (!connect_client(*client, &failure)) {
        destroy(*client);
        *client = NULL;
    }
    return report(&failure, error);
}

void embag_close(struct embag_client *client)
{
    if (client == NULL) {
        return;
    }
    struct eb_sigpipe sigpipe;
    eb_sigpipe_block(&sigpipe);
    eb_channel_close(&client->channel);
    eb_sigpipe_restore(&sigpipe);
    destroy(client);
}

/* Waits until no other thread's call is under way. false: the deadline has passed before. */
static bool take_turn(struct embag_client *client, uint64_t deadline_ns)
{
    uv_mutex_lock(&client->lock);
    for (uint64_t now_ns = uv_hrtime(); client->busy && now_ns < deadline_ns;
         now_ns = uv_hrtime()) {
        (void)uv_cond_timedwait(&client->turn, &client->lock, deadline_ns - now_ns);
    }
    bool taken = !client->busy;
    client->busy = true;
    uv_mutex_unlock(&client->lock);
    return taken;
}

static void give_turn(struct embag_client *client)
{
    uv_mutex_lock(&client->lock);
    client->busy = false;
    uv_cond_signal(&client->turn);
    uv_mutex_unlock(&client->lock);
}

/* Makes a call when the client's turn comes. */
static enum eb_status call(
    struct embag_client *client, const struct eb_channel_call *call, struct eb_error *error)
{
    if (!take_turn(client, call->deadline_ns)) {
        eb_outgoing_drop(call->request);
        return eb_error_set(error, EB_STATUS_DEADLINE_EXCEEDED,
            "other threads' calls have used the client up to the deadline");
    }
    struct eb_sigpipe sigpipe;
    eb_sigpipe_block(&sigpipe);
    enum eb_status status = eb_channel_call(&client->channel, call, error);
    eb_sigpipe_restore(&sigpipe);
    give_turn(client);
    return status;
}

struct lookup {
    const struct embag_request *request;
    struct eb_lookup_answer *answer;
};

static bool on_lookup_answer(
    void *context, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct lookup *lookup = context;
    lookup->answer = eb_lookup_call_decode(lookup->request, bytes, size, error);
    return lookup->answer != NULL;
}

enum embag_status embag_lookup(struct embag_client *client, const struct embag_request *request,
    struct embag_answer **answer, struct embag_error *error)
{
    struct eb_error failure = {.status = EB_STATUS_OK};
    struct lookup lookup = {.request = request};
    struct eb_channel_call lookup_call = {
        .path = "/embag.v1.EmbeddingBag/Lookup",
        .deadline_ns = uv_hrtime() + pick(request->timeout_us, client->timeout_us) * NS_PER_US,
        .on_answer = on_lookup_answer,
        .context = &lookup,
    };
    *answer = NULL;
    lookup_call.request = eb_lookup_call_encode(request, &failure);
    if (lookup_call.request == NULL) {
        return report(&failure, error);
    }
    if (call(client, &lookup_call, &failure) == EB_STATUS_OK) {
        *answer = &lookup.answer->answer;
    } else {
        /* An answer may have come before what ended the call. */
        eb_lookup_call_free(lookup.answer);
    }
    return report(&failure, error);
}

void embag_answer_free(struct embag_answer *answer)
{
    eb_lookup_call_free((struct eb_lookup_answer *)answer);
}

static bool on_models_answer(
    void *context, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_models_list **list = context;
    *list = eb_models_call_decode(bytes, size, error);
    return *list != NULL;
}

enum embag_status embag_list_models(
    struct embag_client *client, struct embag_model_list **list, struct embag_error *error)
{
    struct eb_error failure = {.status = EB_STATUS_OK};
    struct eb_models_list *models = NULL;
    const struct eb_channel_call list_call = {
        .path = "/embag.v1.EmbeddingBag/ListModels",
        .request = eb_channel_request_create(0),
        .deadline_ns = uv_hrtime() + client->timeout_us * NS_PER_US,
        .on_answer = on_models_answer,
        .context = &models,
    };
    *list = NULL;
    if (list_call.request == NULL) {
        eb_error_set(&failure, EB_STATUS_RESOURCE_EXHAUSTED, "no memory for the request");
    } else if (call(client, &list_call, &failure) == EB_STATUS_OK) {
        *list = &models->list;
    } else {
        eb_models_call_free(models);
    }
    return report(&failure, error);
}

void embag_model_list_free(struct embag_model_list *list)
{
    eb_models_call_free((struct eb_models_list *)list);
}

const char *embag_status_name(enum embag_status status)
{
    return eb_status_name((int)status);
}

size_t embag_type_bytes(enum embag_type type)
{
    switch (type) {
    case EMBAG_I8:
    case EMBAG_U8: return 1;
    case EMBAG_F16:
    case EMBAG_BF16:
    case EMBAG_I16:
    case EMBAG_U16: return 2;
    case EMBAG_F32:
    case EMBAG_I32:
    case EMBAG_U32: return 4;
    case EMBAG_F64:
    case EMBAG_I64:
    case EMBAG_U64: return 8;
    case EMBAG_TYPE_UNSPECIFIED: break;
    }
    return 0;
}
