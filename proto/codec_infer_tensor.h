/* The tensors of a ModelInferRequest: InferInputTensor, and what is said of an output.
 * Thread: pure. Memory: names, and contents that are not raw, are taken from the place's arena; raw
 * contents are borrowed from the message. */
#pragma once

#include "proto/codec_infer_parameter.h"

/* What an input is called behind its table's name and a dot, by its role. */
extern const char *const eb_codec_infer_tensor_suffixes[EB_INFER_ROLE_COUNT];

/* Fills in *out from an InferInputTensor's bytes. `raw` are its raw contents, NULL where the
 * request has none. false: the place's error says what is wrong, as for a query. */
bool eb_codec_infer_tensor_read_input(struct eb_codec_place *place, struct eb_field_reader bytes,
    const struct eb_field_reader *raw, struct eb_infer_input *out);

/* The same from an InferRequestedOutputTensor's. */
bool eb_codec_infer_tensor_read_output(
    struct eb_codec_place *place, struct eb_field_reader bytes, struct eb_infer_output *out);
