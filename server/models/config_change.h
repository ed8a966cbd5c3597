/* Whether a changed model.yaml says something else of what versions in memory are made of.
 * Thread: any one. Memory: none. */
#pragma once

#include "server/models/model_config.h"

/* Whether tables, their choice, features and groups are the same in both; versions and labels may
 * differ. */
bool eb_config_change_is_none(const struct eb_model_config *a, const struct eb_model_config *b);
