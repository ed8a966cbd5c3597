/* model.yaml as libcyaml reads it: every value a text, NULL where the file does not say; what they
 * mean is model_config's. Thread: any one. Memory: on the heap, by malloc; whoever takes a text out
 * leaves a NULL. */
#pragma once

#include "server/base/failure.h"

#include <stddef.h>
#include <stdint.h>

struct eb_model_table_texts {
    char *name;
    char *source;
    char *format;
    char *dim;
    char *storage;
    char *missing;
    char *default_index;
    char *unknown_row;
};

struct eb_model_feature_texts {
    char *name;
    char *table;
    char *reduction;
    char *missing;
    char *default_index;
    char *id_map;
    char *seed;
    char *max_ids;
};

struct eb_model_group_texts {
    char *name;
    char **features;
    uint32_t features_count;
};

struct eb_model_label_texts {
    char *name;
    char *version;
};

struct eb_model_version_texts {
    char *keep;
    char *keep_s;
    char *serve;
    struct eb_model_label_texts *labels;
    uint32_t labels_count;
};

struct eb_model_texts {
    struct eb_model_table_texts *tables;
    uint32_t tables_count;
    struct eb_model_feature_texts *features;
    uint32_t features_count;
    struct eb_model_group_texts *groups;
    uint32_t groups_count;
    struct eb_model_version_texts versions;
    char **only;
    uint32_t only_count;
    char **exclude;
    uint32_t exclude_count;
};

/* Sets *texts; NULL: the document is empty. false: *error has what is wrong and where. */
bool eb_model_texts_load(const uint8_t *yaml, size_t yaml_bytes, struct eb_model_texts **texts,
    struct eb_failure *failure);
/* Accepts NULL. */
void eb_model_texts_free(struct eb_model_texts *texts);
