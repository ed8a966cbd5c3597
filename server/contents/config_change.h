/* Compares two configurations of a model, to find out whether loaded versions are still what
 * model.yaml describes.
 * Thread: pure function. Memory: none. */
#pragma once

#include "server/contents/model_config.h"

/* Returns whether tables, patterns, features and groups are the same in both. Loaded versions
 * depend on these. Versions and labels may differ. */
bool eb_config_change_is_alike(const struct eb_model_config *a, const struct eb_model_config *b);
