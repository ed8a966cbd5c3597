#include "server/route/model_flips.h"

#include <stdlib.h>
#include <string.h>

/* ---- what the repository has ---- */

static void close_versions(struct eb_flips_version *versions, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        eb_part_map_close(versions[i].set);
        free((char *)versions[i].routed.lineage);
    }
    free(versions);
}

static void close_flips_model(struct eb_flips_model *model)
{
    close_versions(model->versions, model->version_count);
    free(model->name);
}

void eb_model_flips_deinit(struct eb_model_flips *flips)
{
    for (size_t i = 0; i < flips->count; i++) {
        close_flips_model(&flips->models[i]);
    }
    free(flips->models);
    flips->models = NULL;
    flips->count = 0;
}

/* Copies a version, and opens the set of its replicas. Returns false if out of memory. */
static bool open_flips_version(struct eb_model_flips *flips, const char *model,
    const struct eb_routed_version *from, struct eb_flips_version *to)
{
    struct eb_part_key key = {
        .model = model, .version = from->number, .digest = from->digest, .parts = from->parts};
    *to = (struct eb_flips_version){.routed = *from};
    to->routed.lineage = strdup(from->lineage);
    bool is_known = from->parts >= 1 && from->parts <= EB_PARTS_MAX && from->digest != 0;
    to->set = to->routed.lineage && is_known ? eb_part_map_open(flips->map, &key) : NULL;
    return to->routed.lineage && (to->set || !is_known);
}

/* Returns copies of a model's versions; NULL if out of memory. */
static struct eb_flips_version *copy_versions(
    struct eb_model_flips *flips, const struct eb_routed_model *model)
{
    struct eb_flips_version *versions = calloc(model->version_count + 1, sizeof *versions);
    for (size_t i = 0; versions && i < model->version_count; i++) {
        if (!open_flips_version(flips, model->name, &model->versions[i], &versions[i])) {
            close_versions(versions, i + 1);
            return NULL;
        }
    }
    return versions;
}

static struct eb_flips_model *find_flips_model(struct eb_model_flips *flips, const char *name)
{
    for (size_t i = 0; i < flips->count; i++) {
        if (strcmp(flips->models[i].name, name) == 0) {
            return &flips->models[i];
        }
    }
    return NULL;
}

/* Returns the model of that name, which is added if it is not there. Returns NULL if out of
 * memory. */
static struct eb_flips_model *add_flips_model(struct eb_model_flips *flips, const char *name)
{
    struct eb_flips_model *model = find_flips_model(flips, name);
    if (model) {
        return model;
    }
    struct eb_flips_model *models =
        realloc(flips->models, (flips->count + 1) * sizeof *flips->models);
    if (!models) {
        return NULL;
    }
    flips->models = models;
    model = &models[flips->count];
    *model = (struct eb_flips_model){.name = strdup(name)};
    if (!model->name) {
        return NULL;
    }
    flips->count++;
    return model;
}

static bool take_flips_model(struct eb_model_flips *flips, const struct eb_routed_model *from)
{
    struct eb_flips_model *model = add_flips_model(flips, from->name);
    struct eb_flips_version *versions = model ? copy_versions(flips, from) : NULL;
    if (model) {
        model->is_listed = true;
    }
    if (!versions) {
        return false;
    }
    close_versions(model->versions, model->version_count);
    model->versions = versions;
    model->version_count = from->version_count;
    model->serve = from->serve;
    model->served = from->served;
    return true;
}

/* Forgets the models that the repository no longer has. */
static void drop_unlisted_models(struct eb_model_flips *flips)
{
    size_t kept = 0;
    for (size_t i = 0; i < flips->count; i++) {
        if (flips->models[i].is_listed) {
            flips->models[kept++] = flips->models[i];
        } else {
            close_flips_model(&flips->models[i]);
        }
    }
    flips->count = kept;
}

bool eb_model_flips_take(
    struct eb_model_flips *flips, const struct eb_routed_model *models, size_t count)
{
    bool is_good = true;
    for (size_t i = 0; i < flips->count; i++) {
        flips->models[i].is_listed = false;
    }
    for (size_t i = 0; i < count; i++) {
        is_good = take_flips_model(flips, &models[i]) && is_good;
    }
    drop_unlisted_models(flips);
    return is_good;
}

/* ---- steps ---- */

/* Returns when the pin of a version that is loaded ends; 0 if it is not pinned. */
static uint64_t find_pin_end(const struct eb_flips_model *model,
    const struct eb_flips_version *version, const struct eb_flips_terms *terms)
{
    if (!terms->find_pin_end_ns || !version->routed.is_loaded) {
        return 0;
    }
    uint64_t end_ns = terms->find_pin_end_ns(terms->context, model->name, version->routed.number);
    return end_ns > terms->now_ns ? end_ns : 0;
}

/* Describes the versions for the flip. Returns NULL if out of memory. */
static struct eb_flip_version *describe_versions(
    struct eb_model_flips *flips, struct eb_flips_model *model, const struct eb_flips_terms *terms)
{
    struct eb_flip_version *described = calloc(model->version_count + 1, sizeof *described);
    for (size_t i = 0; described && i < model->version_count; i++) {
        struct eb_flips_version *version = &model->versions[i];
        const struct eb_routed_version *routed = &version->routed;
        version->view = version->set ? eb_part_map_view(flips->map, version->set, terms->replicas)
                                     : (struct eb_part_view){.error = ""};
        version->pin_end_ns = find_pin_end(model, version, terms);
        described[i] = (struct eb_flip_version){
            .number = routed->number,
            .digest = routed->digest,
            .lineage = routed->lineage,
            .is_complete = version->view.is_complete && routed->is_loaded,
            .has_replicas = version->view.has_replicas,
            .is_failed = version->view.is_failed || routed->is_failed,
            .is_served = version->view.is_served,
            .is_claimed = version->view.is_claimed,
            .is_kept = routed->is_held || routed->is_labelled,
            .is_pinned = version->pin_end_ns != 0,
            .is_conflict = version->view.is_conflict,
        };
    }
    return described;
}

static void want_version(struct eb_routed_choice *choice, uint64_t number)
{
    for (size_t i = 0; i < choice->wanted_count; i++) {
        if (choice->wanted[i] == number) {
            return;
        }
    }
    if (number != 0 && choice->wanted_count < EB_ROUTED_WANTED_MAX) {
        choice->wanted[choice->wanted_count++] = number;
    }
}

/* Wants what the flip claims, and what it could flip to if it were loaded: the versions above the
 * served one whose parts are complete, the highest first. */
static void choose_wanted(struct eb_flips_model *model)
{
    const struct eb_flip *flip = &model->flip;
    struct eb_routed_choice *choice = &model->choice;
    *choice = (struct eb_routed_choice){.model = model->name, .served = flip->served};
    for (size_t i = 0; i < flip->claim_count; i++) {
        want_version(choice, flip->claims[i].number);
    }
    for (size_t i = model->version_count; i-- > 0;) {
        const struct eb_flips_version *version = &model->versions[i];
        if (version->view.is_complete && version->routed.number > flip->served) {
            want_version(choice, version->routed.number);
        }
    }
}

static bool is_claimed_here(const struct eb_flip *flip, const struct eb_flips_version *version)
{
    for (size_t i = 0; i < flip->claim_count; i++) {
        if (flip->claims[i].number == version->routed.number &&
            flip->claims[i].digest == version->routed.digest) {
            return true;
        }
    }
    return false;
}

/* Returns when a pin ends, or a new one must be looked for, at the earliest. Requests do not tell
 * of pins. */
static uint64_t find_pins_due_ns(
    const struct eb_flips_model *model, const struct eb_flips_terms *terms)
{
    uint64_t due_ns = EB_FLIP_NEVER;
    for (size_t i = 0; terms->find_pin_end_ns && i < model->version_count; i++) {
        const struct eb_flips_version *version = &model->versions[i];
        uint64_t pin_ns = version->pin_end_ns;
        if (version->routed.is_loaded && pin_ns == 0 && !is_claimed_here(&model->flip, version)) {
            pin_ns = terms->now_ns + EB_FLIPS_PIN_NS;
        }
        due_ns = pin_ns != 0 && pin_ns < due_ns ? pin_ns : due_ns;
    }
    return due_ns;
}

/* Returns whether a version that could be served at once is still being loaded here. A router that
 * starts waits for it as it waits for servers. */
static bool is_loading_complete(const struct eb_flips_model *model)
{
    for (size_t i = 0; i < model->version_count; i++) {
        const struct eb_flips_version *version = &model->versions[i];
        if (version->view.is_complete && !version->routed.is_loaded && !version->routed.is_failed) {
            return true;
        }
    }
    return false;
}

uint64_t eb_model_flips_step(struct eb_model_flips *flips, const struct eb_flips_terms *terms)
{
    uint64_t due_ns = EB_FLIP_NEVER;
    for (size_t i = 0; i < flips->count; i++) {
        struct eb_flips_model *model = &flips->models[i];
        struct eb_flip_version *described = describe_versions(flips, model, terms);
        if (!described) { /* The step is made up for when memory is there. */
            due_ns = terms->now_ns + EB_FLIP_STEADY_NS;
            continue;
        }
        struct eb_flip_input input = {
            .count = model->version_count,
            .versions = described,
            .serve = model->serve,
            .has_all_answers = terms->has_all_answers && !is_loading_complete(model),
            .settle_until_ns = terms->settle_until_ns,
            .now_ns = terms->now_ns,
            .next_wait_ns = terms->next_wait_ns,
        };
        model->former = model->flip.served;
        uint64_t former_digest = model->flip.served_digest;
        eb_flip_step(&model->flip, &input);
        if (model->former != 0 &&
            (model->former != model->flip.served || former_digest != model->flip.served_digest)) {
            model->previous = model->former;
            model->previous_digest = former_digest;
        }
        free(described);
        choose_wanted(model);
        due_ns = model->flip.due_ns < due_ns ? model->flip.due_ns : due_ns;
        uint64_t pins_ns = find_pins_due_ns(model, terms);
        due_ns = pins_ns < due_ns ? pins_ns : due_ns;
    }
    return due_ns;
}

/* ---- routes ---- */

static bool add_route(struct eb_route_table *table, const struct eb_flips_model *model,
    const struct eb_flips_version *version, const struct eb_part_view *view,
    uint64_t (*instance_of)(const void *context, uint32_t peer), const void *context)
{
    const struct eb_routed_version *routed = &version->routed;
    struct eb_route_entry *entry =
        eb_route_table_append(table, model->name, routed->number, routed->digest, routed->parts);
    for (uint32_t part = 0; entry && part < routed->parts; part++) {
        size_t count;
        const uint32_t *peers = eb_part_set_peers(version->set, part, &count);
        for (size_t i = 0; i < count; i++) {
            uint64_t instance = instance_of(context, peers[i]);
            if (instance != 0 && !eb_route_entry_add(entry, part, instance)) {
                return false;
            }
        }
    }
    if (entry && view->is_failed) {
        struct eb_failure text;
        eb_part_view_explain(view, &text);
        return eb_route_entry_fail(entry, text.text);
    }
    return entry;
}

struct eb_route_table *eb_model_flips_make_routes(const struct eb_model_flips *flips,
    uint64_t (*instance_of)(const void *context, uint32_t peer), const void *context)
{
    struct eb_route_table *table = eb_route_table_create();
    bool is_good = table;
    for (size_t i = 0; is_good && i < flips->count; i++) {
        const struct eb_flips_model *model = &flips->models[i];
        for (size_t k = 0; is_good && k < model->version_count; k++) {
            const struct eb_flips_version *version = &model->versions[k];
            struct eb_part_view view = {0};
            if (version->set) {
                /* The map may have changed since the last step. */
                view = eb_part_map_view(flips->map, version->set, 0);
            }
            if (version->set && (version->routed.is_loaded || view.is_failed)) {
                is_good = add_route(table, model, version, &view, instance_of, context);
            }
        }
    }
    if (!is_good) {
        eb_route_table_destroy(table);
        return NULL;
    }
    return table;
}
