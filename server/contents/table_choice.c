#include "server/contents/table_choice.h"

#include <stdlib.h>

bool eb_table_choice_init(struct eb_table_choice *choice, const struct eb_model_config *config,
    struct eb_failure *failure)
{
    const size_t count = config ? config->only.count + config->exclude.count : 0;
    *choice = (struct eb_table_choice){
        .config = config, .is_matched = calloc(count + 1, sizeof *choice->is_matched)};
    return choice->is_matched || eb_failure_set(failure, "out of memory");
}

/* Marks the patterns that match. Returns whether there are any. */
static bool mark_matches(const struct eb_model_config *config,
    const struct eb_model_config_patterns *patterns, const char *source, bool *is_matched)
{
    bool is_any = false;
    for (size_t i = 0; i < patterns->count; i++) {
        const bool is_match = eb_model_config_matches(config, patterns->texts[i], source);
        is_matched[i] = is_matched[i] || is_match;
        is_any = is_any || is_match;
    }
    return is_any;
}

bool eb_table_choice_take(struct eb_table_choice *choice, const char *source)
{
    const struct eb_model_config *config = choice->config;
    if (!config) {
        return true;
    }
    bool *is_matched = choice->is_matched;
    const bool is_in = mark_matches(config, &config->only, source, is_matched);
    const bool is_out =
        mark_matches(config, &config->exclude, source, is_matched + config->only.count);
    return (is_in || config->only.count == 0) && !is_out;
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
