#include "client/cli/split_model.h"

#include "server/formats/manifest_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define X(name, number, text) [number] = (text),
static const char *const missing_names[] = {"", EB_MISSING_LIST(X)};
#undef X

/* Prints `, KEY: "TEXT"`. */
static void print_model_text(FILE *out, const char *key, const char *text)
{
    fprintf(out, ", %s: ", key);
    eb_manifest_text_quote(out, text);
}

static void print_model_name(FILE *out, const char *name)
{
    fputs("  - {name: ", out);
    eb_manifest_text_quote(out, name);
}

static void print_model_missing(FILE *out, enum eb_missing missing)
{
    if (missing != EB_MISSING_UNSPECIFIED) {
        fprintf(out, ", missing: %s", missing_names[missing]);
    }
}

static void print_model_default(FILE *out, bool has_default, int64_t default_index)
{
    if (has_default) {
        fprintf(out, ", default_index: %" PRId64, default_index);
    }
}

/* Returns whether anything is left to say of a table. A row number for unknown ids is in its packed
 * files. */
static bool has_table_settings(const struct eb_model_config_table *table)
{
    return table->missing != EB_MISSING_UNSPECIFIED || table->has_default ||
           table->vector_count > 0;
}

static void print_model_table(FILE *out, const struct eb_model_config_table *table)
{
    print_model_name(out, table->name);
    print_model_missing(out, table->missing);
    print_model_default(out, table->has_default, table->default_index);
    for (size_t i = 0; i < table->vector_count; i++) {
        fprintf(out, "%s%s", i == 0 ? ", default_vector: [" : ", ", table->vector[i]);
    }
    if (table->vector_count > 0) {
        fputc(']', out);
    }
    if (table->unknown_is_vector) {
        fputs(", unknown_row: default_vector", out);
    }
    fputs("}\n", out);
}

static void print_model_tables(FILE *out, const struct eb_model_config *config)
{
    bool is_any = false;
    for (size_t i = 0; i < config->table_count; i++) {
        if (has_table_settings(&config->tables[i])) {
            fputs(is_any ? "" : "tables:\n", out);
            is_any = true;
            print_model_table(out, &config->tables[i]);
        }
    }
}

static void print_model_feature(FILE *out, const struct eb_model_config_feature *feature)
{
    print_model_name(out, feature->name);
    print_model_text(out, "table", feature->table);
    if (feature->reduction != EB_REDUCTION_UNSPECIFIED) {
        fprintf(out, ", reduction: %s", eb_reduction_name(feature->reduction));
    }
    print_model_missing(out, feature->missing);
    print_model_default(out, feature->has_default, feature->default_index);
    if (feature->id_map.kind != EB_ID_MAP_NONE) {
        fprintf(out, ", id_map: %s", eb_id_map_name(feature->id_map.kind));
    }
    if (feature->id_map.kind == EB_ID_MAP_HASH_MODULO) {
        fprintf(out, ", seed: %" PRIu64, feature->id_map.seed);
    }
    if (feature->max_ids > 0) {
        fprintf(out, ", max_ids: %" PRIu64, feature->max_ids);
    }
    fputs("}\n", out);
}

static void print_model_group(
    FILE *out, const struct eb_model_config *config, const struct eb_model_config_group *group)
{
    print_model_name(out, group->name);
    fputs(", features: [", out);
    for (size_t i = 0; i < group->feature_count; i++) {
        fputs(i == 0 ? "" : ", ", out);
        eb_manifest_text_quote(out, config->features[group->features[i]].name);
    }
    fputs("]}\n", out);
}

static void print_model_versions(FILE *out, const struct eb_model_config *config)
{
    struct eb_model_config usual;
    eb_model_config_init(&usual);
    if (config->keep == usual.keep && config->keep_s == usual.keep_s &&
        config->serve == usual.serve && config->label_count == 0) {
        return;
    }
    fprintf(out, "versions: {keep: %" PRIu32 ", keep_s: %" PRIu32, config->keep, config->keep_s);
    if (config->serve > 0) {
        fprintf(out, ", serve: %" PRIu64, config->serve);
    }
    for (size_t i = 0; i < config->label_count; i++) {
        fputs(i == 0 ? ", labels: [{name: " : ", {name: ", out);
        eb_manifest_text_quote(out, config->labels[i].name);
        fprintf(out, ", version: %" PRIu64 "}", config->labels[i].version);
    }
    fputs(config->label_count > 0 ? "]}\n" : "}\n", out);
}

char *eb_split_model_write(const struct eb_model_config *config, struct eb_failure *failure)
{
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *out = open_memstream(&text, &text_bytes);
    if (!out) {
        eb_failure_set(failure, "out of memory");
        return NULL;
    }
    print_model_tables(out, config);
    for (size_t i = 0; i < config->feature_count; i++) {
        fputs(i == 0 ? "features:\n" : "", out);
        print_model_feature(out, &config->features[i]);
    }
    for (size_t i = 0; i < config->group_count; i++) {
        fputs(i == 0 ? "groups:\n" : "", out);
        print_model_group(out, config, &config->groups[i]);
    }
    print_model_versions(out, config);
    bool is_good = !ferror(out);
    if (fclose(out) != 0 || !is_good) {
        eb_failure_set(failure, "out of memory");
        free(text);
        return NULL;
    }
    return text;
}
