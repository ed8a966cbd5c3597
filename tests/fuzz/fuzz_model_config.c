/* Parses bytes as a model.yaml. Accepted settings must be consistent and within their limits. */
#include "server/contents/model_config.h"

#include "tests/fuzz/input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES_MAX 255

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_tables(const struct eb_model_config *config)
{
    for (size_t i = 0; i < config->table_count; i++) {
        const struct eb_model_config_table *table = &config->tables[i];
        require(eb_model_config_find_table(config, table->name) == table);
        require(table->source && table->source[0] != '\0');
        require(table->unknown_row >= -1);
        require(table->vector_count <= EB_MODEL_CONFIG_VECTOR_MAX);
        require(table->vector_count == 0 || !table->has_default);
        require(!table->unknown_is_vector || table->vector_count > 0);
        for (size_t k = 0; k < table->vector_count; k++) {
            require(isfinite(strtod(table->vector[k], NULL)));
        }
        require(eb_model_config_selects(config, table->source));
        require(eb_model_format_is_codes(table->format) == !!table->scales);
        require(!table->scales || eb_model_config_selects(config, table->scales));
        require(!table->biases || (table->scales && strcmp(table->scales, table->biases) != 0));
    }
}

static void require_features(const struct eb_model_config *config)
{
    for (size_t i = 0; i < config->feature_count; i++) {
        const struct eb_model_config_feature *feature = &config->features[i];
        require(eb_model_config_find_feature(config, feature->name) == feature);
        require(!eb_model_config_find_table(config, feature->name));
        require(strlen(feature->table) <= NAME_BYTES_MAX);
    }
    for (size_t i = 0; i < config->group_count; i++) {
        const struct eb_model_config_group *group = &config->groups[i];
        require(eb_model_config_find_group(config, group->name) == group);
        require(group->feature_count >= 1);
        for (size_t n = 0; n < group->feature_count; n++) {
            require(group->features[n] < config->feature_count);
        }
    }
}

static void require_patterns(const struct eb_model_config_patterns *patterns)
{
    require(patterns->count <= EB_MODEL_CONFIG_PATTERNS_MAX);
    for (size_t i = 0; i < patterns->count; i++) {
        size_t bytes = strlen(patterns->texts[i]);
        require(bytes > 0 && bytes <= EB_MODEL_CONFIG_PATTERN_BYTES_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_model_config config;
    struct eb_failure failure = {.text = ""};
    if (!eb_model_config_parse(data, size, NAME_BYTES_MAX, &config, &failure)) {
        require(failure.text[0] != '\0');
    }
    require_tables(&config);
    require_features(&config);
    require_patterns(&config.only);
    require_patterns(&config.exclude);
    require(config.keep >= 1 && config.keep <= EB_MODEL_CONFIG_KEEP_MAX);
    eb_model_config_deinit(&config);
    return 0;
}
