/* The Open Inference Protocol's names of element types and inputs.
 * Thread: pure functions. Memory: none. */
#pragma once

#include "proto/infer_message.h"

#include <stdint.h>

/* Returns the name of embag.v1.DataType `type`, which must be a specified one. */
const char *eb_infer_type_name(int32_t type);
/* Returns its number in inference.DataType. */
int32_t eb_infer_type_number(int32_t type);
/* Returns the bytes of one element. */
uint32_t eb_infer_type_bytes(int32_t type);
/* Returns the DataType of that name; 0 if there is none, as for BOOL and BYTES. */
int32_t eb_infer_type_find(const char *name);

/* The end of an input's name, after its table's name and a dot, by role. */
extern const char *const eb_infer_role_suffixes[EB_INFER_ROLE_COUNT];
