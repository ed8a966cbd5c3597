#include "proto/grpc_guard.h"

#include "proto/grpc_text.h"

#include <assert.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>

/* ---- limits ---- */

#define WINDOW_BYTES_MIN 65535u /* HTTP/2's initial window */
#define REQUEST_BYTES_LIMIT (512u * 1024 * 1024)
/* DATA frames are passed on as they arrive, so large ones cost no memory. */
#define FRAME_BYTES_MAX (256u * 1024)
/* HTTP/2 adds this to the size of each field's name and value. */
#define HEADER_FIELD_OVERHEAD 32u
/* A limit for nghttp2's own limiter of resets, so high that it does not act before ours. */
#define RESETS_UNLIMITED 1000000000u
#define EXTENSION_TYPE_FIRST 10u
#define EXTENSION_TYPE_LAST 255u

nghttp2_option *eb_grpc_settings_option(void)
{
    nghttp2_option *option = NULL;
    if (nghttp2_option_new(&option) != 0) {
        return NULL;
    }
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_stream_reset_rate_limit(option, RESETS_UNLIMITED, RESETS_UNLIMITED);
    for (unsigned type = EXTENSION_TYPE_FIRST; type <= EXTENSION_TYPE_LAST; type++) {
        nghttp2_option_set_user_recv_extension_type(option, (uint8_t)type);
    }
    return option;
}

/* Makes the windows twice as large as the largest message. nghttp2 sends a window update when half
 * a window has been processed. Until then the other half must suffice for a whole message. */
bool eb_grpc_settings_submit(nghttp2_session *session, const struct eb_grpc_server_limits *limits)
{
    assert(limits->request_bytes_max <= REQUEST_BYTES_LIMIT);
    uint32_t window = 2 * (limits->request_bytes_max + EB_GRPC_PREFIX_BYTES);
    if (window < WINDOW_BYTES_MIN) {
        window = WINDOW_BYTES_MIN;
    }
    const nghttp2_settings_entry entries[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits->streams_max},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_BYTES_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
            limits->header_bytes_max + limits->header_fields_max * HEADER_FIELD_OVERHEAD},
    };
    return nghttp2_submit_settings(
               session, NGHTTP2_FLAG_NONE, entries, sizeof entries / sizeof entries[0]) == 0 &&
           nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, (int32_t)window) ==
               0;
}

/* ---- preface ---- */

static const char magic[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static_assert(sizeof magic - 1 == EB_GRPC_PREFACE_BYTES, "the preface as RFC 9113 has it");

bool eb_grpc_preface_check(struct eb_grpc_preface *preface, const uint8_t *bytes, size_t count)
{
    size_t left = EB_GRPC_PREFACE_BYTES - preface->count;
    size_t step = left < count ? left : count;
    if (step > 0 && memcmp(magic + preface->count, bytes, step) != 0) {
        return false;
    }
    preface->count += step;
    return true;
}

bool eb_grpc_preface_is_whole(const struct eb_grpc_preface *preface)
{
    return preface->count == EB_GRPC_PREFACE_BYTES;
}

const char *eb_grpc_preface_answer(uint8_t first)
{
    /* The first letters of HTTP/1's methods: CONNECT, DELETE, GET, HEAD, OPTIONS, PATCH, TRACE. */
    return memchr("CDGHOPT", first, strlen("CDGHOPT")) ? "HTTP/1.1 400 Bad Request\r\n"
                                                         "content-type: text/plain\r\n"
                                                         "content-length: 34\r\n"
                                                         "connection: close\r\n\r\n"
                                                         "this port speaks gRPC over HTTP/2\n"
                                                       : "";
}

/* ---- budget ---- */

/* Honest clients ping about once per call, or every ten seconds. A burst of this many useless
 * frames is allowed, and ten a second for ever. */
#define NOISE_MAX 1000u
#define NOISE_REFILL_MS 100u
/* This many of a peer's pings may come too early: clocks and networks are not exact. */
#define STRIKES_MAX 2u
/* A client that takes a large answer sends two window updates for each of its frames. The client
 * may still do so when the whole answer has been sent, so that no more sending forgives noise. So
 * only one window update in this many costs noise. */
#define WINDOW_UPDATES_PER_NOISE 16u
/* A client that hedges cancels one call of each pair that it begins, and never stops doing so. */
#define RESETS_PER_MS 1u
/* The excess of all header blocks together may reach this many times header_bytes_max at once. */
#define EXCESS_LIMITS 3u
#define MS_PER_S 1000u

void eb_grpc_budget_init(
    struct eb_grpc_budget *budget, uint32_t resets_max, uint32_t header_bytes_max)
{
    uint32_t excess_max = EXCESS_LIMITS * header_bytes_max;
    *budget = (struct eb_grpc_budget){.resets_max = resets_max,
        .resets_left = resets_max,
        .noise_left = NOISE_MAX,
        .excess_max = excess_max,
        .excess_left = excess_max,
        .excess_per_s = header_bytes_max};
}

static void refill_resets(struct eb_grpc_budget *budget, uint64_t now_ms)
{
    uint64_t passed_ms = now_ms - budget->resets_ms;
    uint64_t room = budget->resets_max - budget->resets_left;
    budget->resets_ms = now_ms;
    budget->resets_left +=
        (uint32_t)(passed_ms < room / RESETS_PER_MS ? passed_ms * RESETS_PER_MS : room);
}

/* Refills excess_left. Skips the computation while excess_left is full, as it is for most
 * connections. */
static void refill_excess(struct eb_grpc_budget *budget, uint64_t now_ms)
{
    if (budget->excess_left == budget->excess_max) {
        budget->excess_ms = now_ms;
        return;
    }
    uint64_t full_ms = (uint64_t)(EXCESS_LIMITS + 1) * MS_PER_S;
    uint64_t passed_ms = now_ms - budget->excess_ms;
    uint64_t room = budget->excess_max - budget->excess_left;
    uint64_t earned = (passed_ms < full_ms ? passed_ms : full_ms) * budget->excess_per_s / MS_PER_S;
    if (earned > 0) {
        budget->excess_ms = now_ms;
        budget->excess_left += (uint32_t)(earned < room ? earned : room);
    }
}

void eb_grpc_budget_refill(struct eb_grpc_budget *budget, uint64_t now_ms)
{
    if (budget->noise_ms == 0) {
        budget->noise_ms = now_ms;
        budget->resets_ms = now_ms;
        budget->excess_ms = now_ms;
    }
    refill_resets(budget, now_ms);
    refill_excess(budget, now_ms);
    uint64_t steps = (now_ms - budget->noise_ms) / NOISE_REFILL_MS;
    uint64_t room = NOISE_MAX - budget->noise_left;
    budget->noise_ms += steps * NOISE_REFILL_MS;
    budget->noise_left += (uint32_t)(steps < room ? steps : room);
}

bool eb_grpc_budget_spend_noise(struct eb_grpc_budget *budget)
{
    if (budget->noise_left == 0) {
        return false;
    }
    budget->noise_left--;
    return true;
}

bool eb_grpc_budget_spend_ping(struct eb_grpc_budget *budget, uint64_t now_ms, uint64_t interval_ms)
{
    bool is_early = budget->pinged_ms != 0 && now_ms - budget->pinged_ms < interval_ms;
    budget->pinged_ms = now_ms;
    budget->strikes += is_early;
    return budget->strikes <= STRIKES_MAX;
}

static bool spend_window_update(struct eb_grpc_budget *budget)
{
    if (++budget->window_updates < WINDOW_UPDATES_PER_NOISE) {
        return true;
    }
    budget->window_updates = 0;
    return eb_grpc_budget_spend_noise(budget);
}

bool eb_grpc_budget_spend_frame(
    struct eb_grpc_budget *budget, uint8_t type, uint8_t flags, size_t length)
{
    switch (type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_CONTINUATION:
    case NGHTTP2_RST_STREAM: return true;
    case NGHTTP2_WINDOW_UPDATE: return spend_window_update(budget);
    case NGHTTP2_DATA:
        return length > 0 || (flags & NGHTTP2_FLAG_END_STREAM) ||
               eb_grpc_budget_spend_noise(budget);
    case NGHTTP2_PING:
    case NGHTTP2_SETTINGS: return (flags & NGHTTP2_FLAG_ACK) || eb_grpc_budget_spend_noise(budget);
    default: return eb_grpc_budget_spend_noise(budget);
    }
}

void eb_grpc_budget_calm(struct eb_grpc_budget *budget)
{
    budget->noise_left = NOISE_MAX;
    budget->strikes = 0;
    budget->pinged_ms = 0;
}

bool eb_grpc_budget_spend_reset(struct eb_grpc_budget *budget)
{
    if (budget->resets_left == 0) {
        return false;
    }
    budget->resets_left--;
    return true;
}

void eb_grpc_budget_earn_reset(struct eb_grpc_budget *budget)
{
    if (budget->resets_left < budget->resets_max) {
        budget->resets_left++;
    }
}

bool eb_grpc_budget_spend_excess(struct eb_grpc_budget *budget, size_t bytes)
{
    if (bytes > budget->excess_left) {
        budget->excess_left = 0;
        return false;
    }
    budget->excess_left -= (uint32_t)bytes;
    return true;
}

/* ---- refusal ---- */

#define FIELD_COUNT 2

static const char *find_text(const struct eb_grpc_refusal *refusal)
{
    return refusal->http_status == 405 ? "this port speaks gRPC: the method is POST\n"
                                       : "this port speaks gRPC: the content-type is "
                                         "application/grpc\n";
}

static ssize_t on_refusal_read(nghttp2_session *session, int32_t stream_id, uint8_t *room,
    size_t room_bytes, uint32_t *flags, nghttp2_data_source *source, void *context)
{
    (void)session;
    (void)stream_id;
    (void)context;
    struct eb_grpc_refusal *refusal = source->ptr;
    const char *text = find_text(refusal);
    size_t left = strlen(text) - refusal->sent;
    size_t count = left < room_bytes ? left : room_bytes;
    memcpy(room, text + refusal->sent, count);
    refusal->sent += count;
    if (count == left) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return (ssize_t)count;
}

int eb_grpc_refusal_submit(
    struct nghttp2_session *session, int32_t stream_id, struct eb_grpc_refusal *refusal)
{
    char digits[12];
    snprintf(digits, sizeof digits, "%d", refusal->http_status);
    const nghttp2_nv fields[FIELD_COUNT] = {
        {.name = (uint8_t *)":status",
            .namelen = strlen(":status"),
            .value = (uint8_t *)digits,
            .valuelen = strlen(digits)},
        {.name = (uint8_t *)"content-type",
            .namelen = strlen("content-type"),
            .value = (uint8_t *)"text/plain",
            .valuelen = strlen("text/plain")},
    };
    nghttp2_data_provider provider = {.source = {.ptr = refusal}, .read_callback = on_refusal_read};
    return nghttp2_submit_response(session, stream_id, fields, FIELD_COUNT, &provider);
}
