#include "server/models/table_choice.h"

#include <stdlib.h>

bool eb_table_choice_init(struct eb_table_choice *choice, const struct eb_model_config *config,
    struct eb_file_fault *fault)
{
    const size_t count = config ? config->only.count + config->exclude.count : 0;
    *choice = (struct eb_table_choice){
        .config = config, .is_matched = calloc(count + 1, sizeof *choice->is_matched)};
    return choice->is_matched || eb_file_fault_set(fault, "out of memory");
}

static void mark_matches(
    const struct eb_model_config_patterns *patterns, const char *source, bool *is_matched)
{
    for (size_t i = 0; i < patterns->count; i++) {
        is_matched[i] = is_matched[i] || eb_model_config_matches(patterns->texts[i], source);
    }
}

bool eb_table_choice_take(struct eb_table_choice *choice, const char *source)
{
    const struct eb_model_config *config = choice->config;
    if (!config) {
        return true;
    }
    mark_matches(&config->only, source, choice->is_matched);
    mark_matches(&config->exclude, source, choice->is_matched + config->only.count);
    return eb_model_config_selects(config, source);
}

static void note_unmatched(const struct eb_model_config_patterns *patterns, const bool *is_matched,
    struct eb_load_note *note)
{
    for (size_t i = 0; i < patterns->count; i++) {
        if (!is_matched[i]) {
            eb_load_note_add(note, patterns->texts[i], NULL);
        }
    }
}

void eb_table_choice_note_unmatched(const struct eb_table_choice *choice, struct eb_load_note *note)
{
    const struct eb_model_config *config = choice->config;
    if (config) {
        note_unmatched(&config->only, choice->is_matched, note);
        note_unmatched(&config->exclude, choice->is_matched + config->only.count, note);
    }
}

void eb_table_choice_deinit(struct eb_table_choice *choice)
{
    free(choice->is_matched);
    *choice = (struct eb_table_choice){0};
}
