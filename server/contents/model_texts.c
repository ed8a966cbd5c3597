#include "server/contents/model_texts.h"

#include "server/base/yaml_load.h"
#include "server/contents/model_config.h"

#define TEXT(type, key)                                                                            \
    CYAML_FIELD_STRING_PTR(                                                                        \
        #key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct type, key, 0, CYAML_UNLIMITED)
#define LIST(type, key, entry, max)                                                                \
    CYAML_FIELD_SEQUENCE(#key, CYAML_FLAG_POINTER_NULL_STR | CYAML_FLAG_OPTIONAL, struct type,     \
        key, &(entry), 0, max)

static const cyaml_schema_value_t text_value = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 0, CYAML_UNLIMITED)};

static const cyaml_schema_field_t table_fields[] = {
    TEXT(eb_model_table_texts, name),
    TEXT(eb_model_table_texts, source),
    TEXT(eb_model_table_texts, format),
    TEXT(eb_model_table_texts, dim),
    TEXT(eb_model_table_texts, storage),
    TEXT(eb_model_table_texts, missing),
    TEXT(eb_model_table_texts, default_index),
    TEXT(eb_model_table_texts, unknown_row),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t table_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct eb_model_table_texts, table_fields)};

static const cyaml_schema_field_t feature_fields[] = {
    TEXT(eb_model_feature_texts, name),
    TEXT(eb_model_feature_texts, table),
    TEXT(eb_model_feature_texts, reduction),
    TEXT(eb_model_feature_texts, missing),
    TEXT(eb_model_feature_texts, default_index),
    TEXT(eb_model_feature_texts, id_map),
    TEXT(eb_model_feature_texts, seed),
    TEXT(eb_model_feature_texts, max_ids),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t feature_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct eb_model_feature_texts, feature_fields)};

static const cyaml_schema_field_t group_fields[] = {
    TEXT(eb_model_group_texts, name),
    LIST(eb_model_group_texts, features, text_value, EB_MODEL_CONFIG_GROUP_FEATURES_MAX),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t group_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct eb_model_group_texts, group_fields)};

static const cyaml_schema_field_t label_fields[] = {
    TEXT(eb_model_label_texts, name),
    TEXT(eb_model_label_texts, version),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t label_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct eb_model_label_texts, label_fields)};

static const cyaml_schema_field_t version_fields[] = {
    TEXT(eb_model_version_texts, keep),
    TEXT(eb_model_version_texts, keep_s),
    TEXT(eb_model_version_texts, serve),
    LIST(eb_model_version_texts, labels, label_value, EB_MODEL_CONFIG_LABELS_MAX),
    CYAML_FIELD_END,
};

static const cyaml_schema_field_t top_fields[] = {
    LIST(eb_model_texts, tables, table_value, EB_MODEL_CONFIG_TABLES_MAX),
    LIST(eb_model_texts, features, feature_value, EB_MODEL_CONFIG_FEATURES_MAX),
    LIST(eb_model_texts, groups, group_value, EB_MODEL_CONFIG_GROUPS_MAX),
    CYAML_FIELD_MAPPING(
        "versions", CYAML_FLAG_OPTIONAL, struct eb_model_texts, versions, version_fields),
    LIST(eb_model_texts, only, text_value, EB_MODEL_CONFIG_PATTERNS_MAX),
    LIST(eb_model_texts, exclude, text_value, EB_MODEL_CONFIG_PATTERNS_MAX),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t top_value = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct eb_model_texts, top_fields)};

bool eb_model_texts_load(const uint8_t *yaml, size_t yaml_bytes, struct eb_model_texts **texts,
    struct eb_failure *failure)
{
    void *values;
    bool is_good = eb_yaml_load(yaml, yaml_bytes, &top_value, &values, failure);
    *texts = values;
    return is_good;
}

void eb_model_texts_free(struct eb_model_texts *texts)
{
    eb_yaml_free(&top_value, texts);
}
