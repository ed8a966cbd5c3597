/* Answers ListModels, GetModel, GetServer and ListVersions.
 * Thread, memory: as in unary.h. */
#pragma once

#include "server/rpc/unary.h"

struct eb_outgoing *eb_catalogue_list_models(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_catalogue_get_model(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_catalogue_list_versions(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_catalogue_get_server(
    const struct eb_unary_request *unary, struct eb_error *error);
