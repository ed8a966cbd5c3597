/* Between serialised messages of the Open Inference Protocol and the plain structs of
 * infer_message.h.
 * Thread, memory: as codec.h. */
#pragma once

#include "proto/codec.h"
#include "proto/codec_common.h"
#include "proto/infer_message.h"

/* As eb_lookup_request_decode, in an arena with the same cap; raw contents stay where they are in
 * the bytes. NULL: the first error in failure->error. What names mean in a model is not looked at.
 */
struct eb_infer_request *eb_infer_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_decode_failure *failure);

/* Bytes of the encoded answer: results[i] of the response is output i of the request, its values
 * included. Notes in the results what encoding them needs to know. */
size_t eb_infer_response_bytes(
    const struct eb_infer_request *request, const struct eb_wire_response *response);
/* Writes those bytes, which have been counted; where values belong it leaves room, at values_at[i]
 * of result i. */
void eb_infer_response_encode(const struct eb_infer_request *request,
    const struct eb_wire_response *response, uint8_t *out, uint8_t **values_at);

/* A model and a version, from a message that has a name and a version only, which input->descriptor
 * says. NULL: *error, INVALID_ARGUMENT where the version is no number. */
struct eb_wire_model_query *eb_infer_model_query_decode(
    struct eb_arena *arena, const struct eb_codec_input *input, struct eb_error *error);

/* The number of a version, 0 where it is empty. false: *error says what it may be. */
bool eb_infer_version_read(const char *text, uint64_t *version, struct eb_error *error);

/* The remaining encoders: bytes needed, then the bytes. A flag is ServerLiveResponse,
 * ServerReadyResponse or ModelReadyResponse. */
size_t eb_infer_flag_bytes(bool flag);
void eb_infer_flag_encode(bool flag, uint8_t *out);
size_t eb_infer_server_bytes(const struct eb_infer_server *server);
void eb_infer_server_encode(const struct eb_infer_server *server, uint8_t *out);
size_t eb_infer_metadata_bytes(const struct eb_infer_model *model);
void eb_infer_metadata_encode(const struct eb_infer_model *model, uint8_t *out);
size_t eb_infer_config_bytes(const struct eb_infer_model *model);
void eb_infer_config_encode(const struct eb_infer_model *model, uint8_t *out);
