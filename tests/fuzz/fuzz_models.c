/* Decodes bytes as a server's list of models, as the client does. The guard passes only valid
 * messages, and everything that the public structs point to outlives the message. */
#include "client/models_call.h"

#include "tests/fuzz/input.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sum_of_all; /* of a list's parts, so that reads are not optimised out */

static uint64_t add_up_table(const struct embag_table *table)
{
    uint64_t sum = strlen(table->name) + strlen(table->storage);
    require(table->rank <= EMBAG_RANK_MAX);
    for (uint32_t i = 0; i < table->rank; i++) {
        sum += table->shape[i];
    }
    for (size_t i = 0; i < table->default_vector_bytes; i++) {
        sum += ((const uint8_t *)table->default_vector)[i];
    }
    return sum;
}

static uint64_t add_up_version(const struct embag_model_version *version)
{
    uint64_t sum = strlen(version->error);
    for (size_t i = 0; i < version->table_count; i++) {
        sum += add_up_table(&version->tables[i]);
    }
    for (size_t i = 0; i < version->label_count; i++) {
        sum += strlen(version->labels[i]);
    }
    for (size_t i = 0; i < version->feature_count; i++) {
        const struct embag_feature *feature = &version->features[i];
        sum += strlen(feature->name) + strlen(feature->table) + strlen(feature->id_map);
    }
    for (size_t i = 0; i < version->group_count; i++) {
        const struct embag_feature_list *group = &version->groups[i];
        sum += strlen(group->name);
        for (size_t f = 0; f < group->feature_count; f++) {
            sum += strlen(group->features[f]);
        }
    }
    return sum;
}

static uint64_t add_up_list(const struct embag_model_list *list)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct embag_model *model = &list->models[i];
        sum += strlen(model->name) + strlen(model->config_error);
        for (size_t v = 0; v < model->version_count; v++) {
            sum += add_up_version(&model->versions[v]);
        }
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    uint8_t *bytes = malloc(size > 0 ? size : 1);
    require(bytes);
    memcpy(bytes, data, size);
    struct eb_models_list *list = eb_models_call_decode(bytes, size, &error);
    free(bytes);
    if (list) {
        sum_of_all = add_up_list(&list->list);
    } else {
        require(error.status != EB_STATUS_OK && error.text[0] != '\0');
    }
    eb_models_call_free(list);
    return 0;
}
