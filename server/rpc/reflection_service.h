/* The services grpc.reflection.v1.ServerReflection and v1alpha: what services there are here, and
 * how their messages look.
 * Thread: pure. Memory: as unary.h says. */
#pragma once

#include "server/rpc/method.h"

extern const struct eb_method_table eb_reflection_service_methods;
extern const struct eb_method_table eb_reflection_service_alpha_methods;
