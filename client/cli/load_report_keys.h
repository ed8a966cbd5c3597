/* Describes the keys of the report that embag-load prints as JSON. LOAD.md lists the same keys; a
 * test compares both with a report.
 * Thread: any. Memory: the JSON object belongs to the caller. */
#pragma once

#include <jansson.h>

/* Returns one object with a member for each key of a report, in order. A member's value is an
 * object of strings: "kind" is setting, figure (of a run or of one step of a sweep) or sweep (only
 * after a sweep), "type" is the type of the value in JSON, "unit" may be null, and "description" is
 * plain text. Returns NULL if out of memory. */
json_t *eb_load_report_keys_json(void);
