/* Translates between serialised embag.v1 messages and the plain structs of message.h.
 * Thread: pure. Memory: decoding takes from the given arena; its results live as long as both the
 * bytes and the arena's content. Encoding writes into the caller's buffer. */
#pragma once

#include "proto/arena.h"
#include "proto/message.h"
#include "proto/status.h"

/* Caps on the content of one message, besides its size, which is capped before it is buffered. */
struct eb_codec_limits {
    uint32_t queries_max;    /* queries and features of one LookupRequest, together */
    uint32_t name_bytes_max; /* longest name */
    /* Lists of features within these caps. If a group's feature fields have the same bytes as a
     * known list, the group gets that list's names, and its fields are not read one by one. */
    const struct eb_known_features *known; /* [known_count] */
    size_t known_count;
};

/* The reason why a request was not decoded. */
struct eb_decode_failure {
    struct eb_error error;
    uint64_t request_id; /* id of the request; 0 if it could not be read */
    bool cancel;         /* `cancel` of the request; false if it could not be read */
    /* [traceparent_bytes] of the request, as in eb_wire_request; 0 bytes if it could not be read */
    const char *traceparent;
    size_t traceparent_bytes;
    bool undecodable; /* the bytes are not a message; a stream that carries them ends */
};

/* Returns the arena cap that suffices to decode every LookupRequest of `size` bytes within the
 * limits, if its arrays come as bytes. It is 4 times the size, plus 64 KiB, plus 2 KiB for each
 * query or feature that the message can hold: a query or group of a few bytes becomes a struct of
 * hundreds of bytes and, with errors_per_query, the text of its error. */
size_t eb_lookup_request_arena_bytes(size_t size, const struct eb_codec_limits *limits);

/* Decodes a request. The other decoders in this header work in the same way. Returns NULL with the
 * error set to one of these:
 *
 * INTERNAL: the bytes are not a LookupRequest.
 * RESOURCE_EXHAUSTED: a limit is exceeded, or the arena's cap is reached.
 * INVALID_ARGUMENT: a name or a priority is invalid.
 * UNIMPLEMENTED: the request sets a field that is not built yet; the text names the field.
 *
 * An error that concerns only one query or group (two forms of one array, two layouts, an unknown
 * enum value) is stored in that query or group: see eb_wire_query.error. Unless errors_per_query is
 * set, nothing after the first error is decoded, and no group if a query has an error. */
struct eb_wire_request *eb_lookup_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_decode_failure *failure);

struct eb_wire_model_query *eb_model_query_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_error *error);
/* Checks a message that has no declared fields. Returns true if the bytes are any valid message. */
bool eb_empty_decode(const uint8_t *bytes, size_t size, struct eb_error *error);

/* Returns the size of the encoded response, including the `values` of every result. Stores sizes
 * and tails in the results, for eb_lookup_response_encode. */
size_t eb_lookup_response_bytes(const struct eb_wire_response *response);
/* Writes the response, whose size eb_lookup_response_bytes has returned. If a result's `values` is
 * NULL, leaves values_bytes bytes for them unwritten. Whether `values` is NULL or not, sets
 * values_at[i] (response->result_count entries) to the place where result i's values start, or
 * would start if values_bytes is 0. */
void eb_lookup_response_encode(
    const struct eb_wire_response *response, uint8_t *out, uint8_t **values_at);
/* Writes both times into `message`, which eb_lookup_response_encode wrote with is_timed. The size
 * does not change. May be called again. */
void eb_lookup_response_set_times(uint8_t *message, uint32_t queue_us, uint32_t compute_us);
/* Clears `more` in a message that was written with is_timed and `more`. The message is then the
 * last one of its answer. */
void eb_lookup_response_set_last(uint8_t *message);

/* The remaining encoders: the first function of each pair returns the size, the second writes. */
size_t eb_model_list_bytes(const struct eb_wire_model_list *list);
void eb_model_list_encode(const struct eb_wire_model_list *list, uint8_t *out);
size_t eb_model_bytes(const struct eb_wire_model *model);
void eb_model_encode(const struct eb_wire_model *model, uint8_t *out);
size_t eb_server_bytes(const struct eb_wire_server *server);
void eb_server_encode(const struct eb_wire_server *server, uint8_t *out);

/* Functions for clients. The decoders check the bytes, although a server's answers are trusted. The
 * values and positions of a lookup's answer stay in the message's bytes. */
size_t eb_lookup_request_bytes(const struct eb_wire_request *request);
void eb_lookup_request_encode(const struct eb_wire_request *request, uint8_t *out);
/* Overwrites the timeout in `message`, of `size` bytes, which eb_lookup_request_encode wrote with
 * is_timed. The size does not change. May be called again. */
void eb_lookup_request_set_timeout(uint8_t *message, size_t size, uint64_t timeout_us);
/* Overwrites `attempt` in the same way. More than 127 is written as 127. */
void eb_lookup_request_set_attempt(uint8_t *message, size_t size, uint32_t attempt);
struct eb_wire_response *eb_lookup_response_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);
/* Fields that the server does not tell are 0, or empty. */
struct eb_wire_server *eb_server_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);
struct eb_wire_model_list *eb_model_list_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);
