/* How features and groups of a server's models are printed: for people, and as JSON.
 * Thread: pure but for the stream. Memory: none. */
#pragma once

#include "client/embag.h"

/* On stdout, of each version that answers: a line for each feature and each group. */
void eb_feature_output_text(const struct embag_model_list *list);
/* On stdout, members of a version's object: `, "features": [...], "groups": [...]`. */
void eb_feature_output_json(const struct embag_model_version *version);
