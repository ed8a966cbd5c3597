/* What the Open Inference Protocol says of the server and its models, whose tables and features are
 * tensors there.
 * Thread, memory: as unary.h says. */
#pragma once

#include "server/rpc/unary.h"

struct eb_outgoing *eb_infer_catalogue_server_live(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_infer_catalogue_server_ready(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_infer_catalogue_server_metadata(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_infer_catalogue_model_ready(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_infer_catalogue_model_metadata(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_infer_catalogue_model_config(
    const struct eb_unary_request *unary, struct eb_error *error);
