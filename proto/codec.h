/* Between serialised embag.v1 messages and the plain structs of message.h.
 * Thread: pure. Memory: decoding takes from the arena given, and what it gives lives as long as
 * both the bytes and the arena's content; encoding writes into the caller's buffer. */
#pragma once

#include "proto/arena.h"
#include "proto/message.h"
#include "proto/status.h"

/* Caps on what one message may hold, over its size, which is capped before it is buffered. */
struct eb_codec_limits {
    uint32_t queries_max;    /* queries and features of one LookupRequest, together */
    uint32_t name_bytes_max; /* longest name */
    /* Lists of features that keep these caps: a group whose features' fields are the very bytes of
     * one is given its names, which then are not read. */
    const struct eb_known_features *known; /* [known_count] */
    size_t known_count;
};

/* Why a request was not decoded. */
struct eb_decode_failure {
    struct eb_error error;
    uint64_t request_id; /* of the request; 0 where it could not be told */
    bool cancel;         /* the request's, likewise */
    bool undecodable;    /* the bytes are no message: a stream that carries them ends */
};

/* The cap that an arena needs so that every LookupRequest of `size` bytes within the limits can be
 * decoded, if its arrays come as bytes: 4 times its size, 64 KiB, and 2 KiB for each query or
 * feature that it can hold, since a query or group of a few bytes becomes a struct of hundreds and,
 * with errors_per_query, the text of its error. */
size_t eb_lookup_request_arena_bytes(size_t size, const struct eb_codec_limits *limits);

/* All decoders: NULL with *error set where the bytes are no such message (INTERNAL), break a limit
 * (RESOURCE_EXHAUSTED, also when the arena's cap is reached), hold a name that is no name or a
 * priority that is none (INVALID_ARGUMENT), or use a field that is not built (UNIMPLEMENTED, naming
 * it). What is wrong with one query or group alone (two forms of one array, two layouts, an unknown
 * enum value) is left in it: see eb_wire_query.error. Unless errors_per_query is set, nothing
 * behind the first error is decoded, and no group where a query has one. */
struct eb_wire_request *eb_lookup_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_decode_failure *failure);

struct eb_wire_model_query *eb_model_query_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_error *error);
/* For messages without fields: true where the bytes are some message. */
bool eb_empty_decode(const uint8_t *bytes, size_t size, struct eb_error *error);

/* Bytes of the encoded response, `values` of every result included. Notes in the results what
 * encoding them needs to know. */
size_t eb_lookup_response_bytes(const struct eb_wire_response *response);
/* Writes those bytes, which have been counted. Where a result's `values` is NULL its values_bytes
 * are left unwritten; in either case values_at[i] (response->result_count entries) is where result
 * i's values lie, or would where values_bytes is 0. */
void eb_lookup_response_encode(
    const struct eb_wire_response *response, uint8_t *out, uint8_t **values_at);
/* Writes both times into `message`, which eb_lookup_response_encode has written with is_timed. Its
 * size stays as it is; may be called again. */
void eb_lookup_response_set_times(uint8_t *message, uint32_t queue_us, uint32_t compute_us);
/* Of a message that was written with is_timed and `more`: makes it the last one. */
void eb_lookup_response_set_last(uint8_t *message);

/* The remaining encoders: bytes needed, then the bytes. */
size_t eb_model_list_bytes(const struct eb_wire_model_list *list);
void eb_model_list_encode(const struct eb_wire_model_list *list, uint8_t *out);
size_t eb_model_bytes(const struct eb_wire_model *model);
void eb_model_encode(const struct eb_wire_model *model, uint8_t *out);
size_t eb_server_bytes(const struct eb_wire_server *server);
void eb_server_encode(const struct eb_wire_server *server, uint8_t *out);

/* The client's side. Decoders are for answers of a server that is trusted to be one, but whose
 * bytes are guarded all the same. Values and positions of a lookup's answer stay where they are in
 * the bytes. */
size_t eb_lookup_request_bytes(const struct eb_wire_request *request);
void eb_lookup_request_encode(const struct eb_wire_request *request, uint8_t *out);
/* Writes another timeout into `message`, of `size` bytes, which eb_lookup_request_encode has
 * written with is_timed. Its size stays as it is; may be called again. */
void eb_lookup_request_set_timeout(uint8_t *message, size_t size, uint64_t timeout_us);
struct eb_wire_response *eb_lookup_response_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);
struct eb_wire_model_list *eb_model_list_decode(
    struct eb_arena *arena, const uint8_t *bytes, size_t size, struct eb_error *error);
