/* The service inference.GRPCInferenceService: the Open Inference Protocol, whose ModelInfer is a
 * lookup in other words.
 * Thread, memory: constants; its functions as unary.h and lookup_state.h say. */
#pragma once

#include "server/rpc/method.h"

extern const struct eb_method_table eb_infer_service_methods;
