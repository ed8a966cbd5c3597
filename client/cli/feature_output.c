#include "client/cli/feature_output.h"

#include "client/cli/output.h"
#include "kernels/bag.h"

#include <inttypes.h>

#define X(name, number, text) [number] = (text),
static const char *const reductions[] = {"unspecified", EB_REDUCTION_LIST(X)};
static const char *const policies[] = {"unspecified", EB_MISSING_LIST(X)};
#undef X

static const char *name_reduction(enum embag_reduction reduction)
{
    return (unsigned)reduction < EB_REDUCTION_COUNT ? reductions[reduction] : "unknown";
}

static const char *name_missing(enum embag_missing missing)
{
    return (unsigned)missing < EB_MISSING_COUNT ? policies[missing] : "unknown";
}

/* ---- for people ---- */

static void print_name(const char *before, const char *name)
{
    printf("%s%s", before, eb_output_printable(name).bytes);
}

static void print_feature(const struct embag_feature *feature)
{
    print_name("  feature ", feature->name);
    print_name(": table ", feature->table);
    printf(", reduction %s, missing %s", name_reduction(feature->reduction),
        name_missing(feature->missing));
    if (feature->has_default) {
        printf(", default_index %" PRId64, feature->default_index);
    }
    print_name(", id_map ", feature->id_map);
    if (feature->seed != 0) {
        printf(" (seed %" PRIu64 ")", feature->seed);
    }
    if (feature->max_ids != 0) {
        printf(", max_ids %" PRIu64, feature->max_ids);
    }
    putchar('\n');
}

static void print_group(const struct embag_feature_list *group)
{
    print_name("  group ", group->name);
    for (size_t i = 0; i < group->feature_count; i++) {
        print_name(i == 0 ? ": " : ", ", group->features[i]);
    }
    putchar('\n');
}

static void print_feature_version(
    const struct embag_model *model, const struct embag_model_version *version)
{
    print_name("", model->name);
    printf(" version %" PRIu64 " (%s)\n", version->version, eb_output_state(version->state));
    for (size_t i = 0; i < version->feature_count; i++) {
        print_feature(&version->features[i]);
    }
    for (size_t i = 0; i < version->group_count; i++) {
        print_group(&version->groups[i]);
    }
    if (version->feature_count == 0) {
        printf("  no features: its tables are asked by their names\n");
    }
}

void eb_feature_output_text(const struct embag_model_list *list)
{
    for (size_t m = 0; m < list->count; m++) {
        const struct embag_model *model = &list->models[m];
        for (size_t v = 0; v < model->version_count; v++) {
            if (model->versions[v].table_count > 0) {
                print_feature_version(model, &model->versions[v]);
            }
        }
    }
}

/* ---- JSON ---- */

static void print_text_json(const char *before, const char *text)
{
    fputs(before, stdout);
    eb_output_json_text(stdout, text);
}

static void print_feature_json(const struct embag_feature *feature)
{
    print_text_json("{\"name\": ", feature->name);
    print_text_json(", \"table\": ", feature->table);
    printf(", \"reduction\": \"%s\", \"missing\": \"%s\"", name_reduction(feature->reduction),
        name_missing(feature->missing));
    if (feature->has_default) {
        printf(", \"default_index\": %" PRId64, feature->default_index);
    }
    print_text_json(", \"id_map\": ", feature->id_map);
    printf(", \"seed\": %" PRIu64 ", \"max_ids\": %" PRIu64 "}", feature->seed, feature->max_ids);
}

void eb_feature_output_json(const struct embag_model_version *version)
{
    printf(", \"features\": [");
    for (size_t i = 0; i < version->feature_count; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        print_feature_json(&version->features[i]);
    }
    printf("], \"groups\": [");
    for (size_t i = 0; i < version->group_count; i++) {
        const struct embag_feature_list *group = &version->groups[i];
        print_text_json(i > 0 ? ", {\"name\": " : "{\"name\": ", group->name);
        for (size_t k = 0; k < group->feature_count; k++) {
            print_text_json(k > 0 ? ", " : ", \"features\": [", group->features[k]);
        }
        fputs(group->feature_count > 0 ? "]}" : ", \"features\": []}", stdout);
    }
    putchar(']');
}
