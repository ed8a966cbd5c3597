/* Writes MODEL/model.yaml for versions in parts.
 * Thread: pure. Memory: the text is on the heap. */
#pragma once

#include "server/contents/model_config.h"

/* Returns the text of a model.yaml that says what *config says, without the keys that describe how
 * tables lie in their files and how they are stored, because a split has applied these. The caller
 * frees it. Returns an empty text if nothing is left to say, and NULL with *failure set if out of
 * memory. */
char *eb_split_model_write(const struct eb_model_config *config, struct eb_failure *failure);
