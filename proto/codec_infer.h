/* Translates between serialised messages of the Open Inference Protocol and the plain structs of
 * infer_message.h.
 * Thread, memory: as codec.h. */
#pragma once

#include "proto/codec.h"
#include "proto/codec_common.h"
#include "proto/infer_message.h"

/* Decodes a request as eb_lookup_request_decode does, in an arena with the same cap. Raw contents
 * stay in the message's bytes. Returns NULL with the first error in failure->error. Does not check
 * that the model has what the request names. */
struct eb_infer_request *eb_infer_request_decode(struct eb_arena *arena, const uint8_t *bytes,
    size_t size, const struct eb_codec_limits *limits, struct eb_decode_failure *failure);

/* Returns the size of the encoded answer, including all values: results[i] of the response is
 * output i of the request. Stores sizes in the results, for eb_infer_response_encode. */
size_t eb_infer_response_bytes(
    const struct eb_infer_request *request, const struct eb_wire_response *response);
/* Writes the answer, whose size eb_infer_response_bytes has returned. Leaves room for the values of
 * result i at values_at[i]. */
void eb_infer_response_encode(const struct eb_infer_request *request,
    const struct eb_wire_response *response, uint8_t *out, uint8_t **values_at);

/* Decodes a message of the type input->descriptor, which has only a name and a version. On failure
 * returns NULL with *error set: INVALID_ARGUMENT if the version is not a number. */
struct eb_wire_model_query *eb_infer_model_query_decode(
    struct eb_arena *arena, const struct eb_codec_input *input, struct eb_error *error);

/* Sets *version to the number in `text`, or to 0 if it is empty. Returns false if the text is not a
 * number; *error then says what a version may be. */
bool eb_infer_version_read(const char *text, uint64_t *version, struct eb_error *error);

/* The remaining encoders: the first function of each pair returns the size, the second writes. The
 * flag functions encode ServerLiveResponse, ServerReadyResponse and ModelReadyResponse. */
size_t eb_infer_flag_bytes(bool flag);
void eb_infer_flag_encode(bool flag, uint8_t *out);
size_t eb_infer_server_bytes(const struct eb_infer_server *server);
void eb_infer_server_encode(const struct eb_infer_server *server, uint8_t *out);
size_t eb_infer_metadata_bytes(const struct eb_infer_model *model);
void eb_infer_metadata_encode(const struct eb_infer_model *model, uint8_t *out);
size_t eb_infer_config_bytes(const struct eb_infer_model *model);
void eb_infer_config_encode(const struct eb_infer_model *model, uint8_t *out);
