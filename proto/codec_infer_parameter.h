/* Parameters of a ModelInferRequest, its inputs and its outputs.
 * Thread: pure. Memory: what is read is borrowed from the message's bytes, and numbers. */
#pragma once

#include "proto/codec_common.h"
#include "proto/infer_message.h"

/* X(name, NAME): those that there are. */
#define EB_CODEC_PARAMETER_LIST(X)                                                                 \
    X(reduction, REDUCTION)                                                                        \
    X(missing, MISSING)                                                                            \
    X(output_type, OUTPUT_TYPE)                                                                    \
    X(default_index, DEFAULT_INDEX)                                                                \
    X(include_last_offset, INCLUDE_LAST_OFFSET)                                                    \
    X(timeout, TIMEOUT)                                                                            \
    X(priority, PRIORITY)                                                                          \
    X(sequence_id, SEQUENCE_ID)                                                                    \
    X(sequence_start, SEQUENCE_START)                                                              \
    X(sequence_end, SEQUENCE_END)                                                                  \
    X(binary_data_size, BINARY_DATA_SIZE)                                                          \
    X(binary_data, BINARY_DATA)                                                                    \
    X(binary_data_output, BINARY_DATA_OUTPUT)

enum eb_codec_parameter {
#define X(name, constant) EB_CODEC_PARAMETER_##constant,
    EB_CODEC_PARAMETER_LIST(X)
#undef X
        EB_CODEC_PARAMETER_COUNT
};

/* Reads the entries of the map in field `number` of a message whose fields have been read, of which
 * those are allowed whose bits 1 << EB_CODEC_PARAMETER_... are in `allowed`. The place's list is
 * NULL for the request's own. false: the place's error says what is wrong, as for a query. */
bool eb_codec_infer_parameter_read_all(const struct eb_codec_place *place,
    struct eb_field_reader message, uint32_t number, unsigned allowed,
    struct eb_infer_options *options);
