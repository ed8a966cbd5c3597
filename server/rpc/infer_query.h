/* From the tensors of a ModelInferRequest to the queries of a lookup.
 * Thread: pure. Memory: queries are taken from the arena given; the rest is borrowed from the
 * request and the version. */
#pragma once

#include "proto/arena.h"
#include "proto/infer_message.h"
#include "server/rpc/bag_query.h"

/* What making one input's part of the queries takes from the arena, at most. */
#define EB_INFER_QUERY_BYTES 96

/* Fills in the request's queries, one of each output in turn, and the outputs where it says none:
 * one of each table in the order in which inputs name them. Inputs of tables whose output is not
 * asked for are looked at no further. false: *error. */
bool eb_infer_query_make(struct eb_infer_request *infer, const struct eb_model_version *version,
    struct eb_arena *arena, uint64_t queries_max, struct eb_error *error);
