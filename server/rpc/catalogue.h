/* Answers ListModels, GetModel, GetServer and ListVersions.
 * Thread, memory: as in unary.h. */
#pragma once

#include "server/rpc/unary.h"

/* Returns whether all of a version can be reached: at a router, every part of it is at some server.
 * `routes` is as in struct eb_unary_request. Accepts a NULL version: false. */
bool eb_catalogue_is_complete(
    const struct eb_route_table *routes, const struct eb_model_version *version);

struct eb_outgoing *eb_catalogue_list_models(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_catalogue_get_model(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_catalogue_list_versions(
    const struct eb_unary_request *unary, struct eb_error *error);
struct eb_outgoing *eb_catalogue_get_server(
    const struct eb_unary_request *unary, struct eb_error *error);
