/* The services grpc.reflection.v1.ServerReflection and v1alpha: list the services of this server
 * and describe their messages.
 * Thread: pure. Memory: as in unary.h. */
#pragma once

#include "server/rpc/method.h"

extern const struct eb_method_table eb_reflection_service_methods;
extern const struct eb_method_table eb_reflection_service_alpha_methods;
