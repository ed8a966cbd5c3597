/* The messages of the Open Inference Protocol as plain structs: a model's tables and features as
 * tensors. The rules of message.h hold here too.
 * Thread, memory: none of its own. */
#pragma once

#include "proto/message.h"

/* The roles of a table's inputs: X(NAME, end of the input's name). */
#define EB_INFER_ROLE_LIST(X)                                                                      \
    X(INDICES, "indices")                                                                          \
    X(OFFSETS, "offsets")                                                                          \
    X(WEIGHTS, "per_sample_weights")

enum eb_infer_role {
#define X(name, text) EB_INFER_##name,
    EB_INFER_ROLE_LIST(X)
#undef X
        EB_INFER_ROLE_COUNT
};

/* The end of an output's name. */
#define EB_INFER_OUTPUT "pooled"

/* Longest suffix that a tensor's name adds to its table's name. */
#define EB_INFER_SUFFIX_BYTES_MAX sizeof ".per_sample_weights"

/* Largest number of dimensions of a request's tensor. */
#define EB_INFER_RANK_MAX 2

/* The values of parameters. Enums have the numbers of embag.v1; 0 means not given. */
struct eb_infer_options {
    int32_t reduction;
    int32_t missing;
    int32_t output_type;  /* DataType */
    bool has_last_offset; /* include_last_offset was given */
    bool include_last_offset;
    bool has_default;
    bool has_raw_bytes;
    uint32_t priority; /* as in a LookupRequest */
    int64_t default_index;
    uint64_t timeout_us;
    uint64_t raw_bytes; /* size of the input's raw contents, from binary_data_size */
};

/* InferInputTensor, with its contents. */
struct eb_infer_input {
    const char *table; /* table or feature; empty for the model's only table */
    enum eb_infer_role role;
    uint32_t rank; /* 1 or 2; offsets have 1 */
    uint64_t dims[EB_INFER_RANK_MAX];
    int32_t type; /* DataType */
    /* As many elements as `dims` gives. For weights only data and bytes are set. */
    struct eb_wire_array array;
    struct eb_infer_options options;
};

/* InferRequestedOutputTensor. */
struct eb_infer_output {
    const char *table; /* table or feature, as in eb_infer_input */
    int32_t output_type;
};

/* ModelInferRequest. */
struct eb_infer_request {
    struct eb_wire_request request; /* as a LookupRequest; after decoding, without queries */
    const char *id;
    struct eb_infer_options options; /* options of the tables whose inputs and outputs set none */
    size_t input_count;
    struct eb_infer_input *inputs;
    size_t output_count; /* after decoding, 0 if all outputs are meant */
    struct eb_infer_output *outputs;
};

/* ServerMetadataResponse. */
struct eb_infer_server {
    const char *name;
    const char *version;
    size_t extension_count;
    const char *const *extensions;
};

/* A table or feature of a model, as three inputs and one output. */
struct eb_infer_feature {
    const char *name;
    int32_t type;         /* DataType of the pooled values */
    int32_t weights_type; /* DataType of per-sample weights */
    uint32_t dim_count;   /* trailing dimensions */
    const uint64_t *dims;
};

/* ModelMetadataResponse and ModelConfig. */
struct eb_infer_model {
    const char *name;
    const char *platform;
    size_t version_count;
    const uint64_t *versions;
    size_t feature_count;
    const struct eb_infer_feature *features;
};
