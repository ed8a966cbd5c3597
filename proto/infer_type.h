/* The Open Inference Protocol's names of element types and inputs.
 * Thread: pure functions. Memory: none. */
#pragma once

#include "proto/infer_message.h"

#include <stdint.h>

/* Returns the name of embag.v1.DataType `type`, which must be a specified one. */
const char *eb_infer_type_name(int32_t type);
/* Returns the number that inference.DataType has for the same type. */
int32_t eb_infer_type_number(int32_t type);
/* Returns the size of one element in bytes. */
uint32_t eb_infer_type_bytes(int32_t type);
/* Returns the DataType that the protocol calls `name`, or 0 if embag.v1 has no such type (as for
 * BOOL and BYTES). */
int32_t eb_infer_type_find(const char *name);

/* The end of an input's name, after its table's name and a dot, by role. */
extern const char *const eb_infer_role_suffixes[EB_INFER_ROLE_COUNT];
