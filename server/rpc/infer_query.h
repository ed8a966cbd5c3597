/* Translates the tensors of a ModelInferRequest into the queries of a lookup.
 * Thread: pure. Memory: queries are taken from the given arena; everything else is borrowed from
 * the request and the version. */
#pragma once

#include "proto/arena.h"
#include "proto/infer_message.h"
#include "server/rpc/bag_query.h"

/* Most bytes that one input, with the output that it may add, takes from the arena. */
#define EB_INFER_QUERY_BYTES 96

/* Fills in the request's queries, one for each output, in order. If the request names no outputs,
 * fills those in too: one for each table, in the order in which the inputs first name the tables.
 * Inputs of tables whose output is not requested are not checked further. Returns false with *error
 * set. */
bool eb_infer_query_make(struct eb_infer_request *infer, const struct eb_model_version *version,
    struct eb_arena *arena, uint64_t queries_max, struct eb_error *error);
