/* Whether a changed model.yaml says something else of what versions in memory are made of.
 * Thread: any one. Memory: none. */
#pragma once

#include "server/contents/model_config.h"

/* Returns whether tables, the patterns that choose them, features and groups are the same in both.
 * Versions and labels may differ. */
bool eb_config_change_is_none(const struct eb_model_config *a, const struct eb_model_config *b);
