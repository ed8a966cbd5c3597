/* The service inference.GRPCInferenceService: the Open Inference Protocol. Its method ModelInfer is
 * a lookup in another format.
 * Thread, memory: constants; its functions as in unary.h and lookup_state.h. */
#pragma once

#include "server/rpc/method.h"

extern const struct eb_method_table eb_infer_service_methods;

/* Answer the protocol's requests about the server and its models. Tables and features are tensors
 * in this protocol. */
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
