/* The service inference.GRPCInferenceService: the Open Inference Protocol, whose ModelInfer is a
 * lookup in other words.
 * Thread, memory: constants; its functions as unary.h and lookup_state.h say. */
#pragma once

#include "server/rpc/method.h"

extern const struct eb_method_table eb_infer_service_methods;

/* What the protocol says of the server and its models, whose tables and features are tensors
 * there. */
struct eb_outgoing *eb_infer_service_server_live(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_infer_service_server_ready(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_infer_service_server_metadata(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_infer_service_model_ready(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_infer_service_model_metadata(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_infer_service_model_config(
    const struct eb_unary_request *unary, struct eb_error *error);
