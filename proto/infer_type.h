/* The Open Inference Protocol's names of element types and inputs.
 * Thread: pure functions. Memory: none. */
#pragma once

#include "proto/infer_message.h"

#include <stdint.h>

/* What embag.v1.DataType `type` is called; it must be one, and specified. */
const char *eb_infer_type_name(int32_t type);
/* Its number in inference.DataType. */
int32_t eb_infer_type_number(int32_t type);
/* Bytes of an element. */
uint32_t eb_infer_type_bytes(int32_t type);
/* The DataType of that name; 0: there is none, as of BOOL and BYTES. */
int32_t eb_infer_type_find(const char *name);

/* What an input is called behind its table's name and a dot, by its role. */
extern const char *const eb_infer_role_suffixes[EB_INFER_ROLE_COUNT];
