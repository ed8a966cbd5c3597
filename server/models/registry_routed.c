/* What a router's registry and its flip tell each other (routed.h). */
#include "server/models/registry.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- choices ---- */

bool eb_registry_route(struct eb_registry *registry, const struct eb_routed_choice *choice)
{
    assert(registry->is_routed && choice->wanted_count <= EB_ROUTED_WANTED_MAX);
    struct eb_registry_model *model = eb_registry_find(registry, choice->model);
    size_t wanted_bytes = choice->wanted_count * sizeof *choice->wanted;
    if (!model || (model->chosen == choice->served && model->wanted_count == choice->wanted_count &&
                      memcmp(model->wanted, choice->wanted, wanted_bytes) == 0)) {
        return false;
    }
    model->chosen = choice->served;
    model->wanted_count = choice->wanted_count;
    memcpy(model->wanted, choice->wanted, wanted_bytes);
    return true;
}

uint32_t eb_registry_wanted_rank(const struct eb_registry_model *model, uint64_t number)
{
    for (size_t i = 0; i < model->wanted_count; i++) {
        if (model->wanted[i] == number) {
            return (uint32_t)i + 1;
        }
    }
    return 0;
}

void eb_registry_unwant(struct eb_registry_model *model, uint64_t number)
{
    size_t count = 0;
    for (size_t i = 0; i < model->wanted_count; i++) {
        if (model->wanted[i] != number) {
            model->wanted[count++] = model->wanted[i];
        }
    }
    model->wanted_count = count;
}

/* ---- the list ---- */

/* Returns the digest of the manifest that a version in memory was loaded with. */
static uint64_t find_loaded_digest(const struct eb_registry_version *version)
{
    uint64_t digest = version->loaded->tables.manifest;
    return digest != 0 ? digest : version->manifest.digest;
}

static struct eb_routed_version describe_version(const struct eb_registry_model *model,
    const struct eb_registry_version *version, const struct eb_registry_manifest *manifest)
{
    return (struct eb_routed_version){
        .number = version->number,
        .digest = manifest->digest,
        .parts = manifest->parts,
        .lineage = manifest->lineage ? manifest->lineage : "",
        .is_on_disk = version->is_on_disk,
        .is_held = version->is_held,
        .is_labelled = eb_registry_has_label(model, version->number),
    };
}

/* Writes the entries of a version, at most two, and returns how many there are. A version in memory
 * is left out if what its manifest said is not known, because its directory was replaced while it
 * was loaded. */
static size_t list_version(const struct eb_registry_model *model,
    const struct eb_registry_version *version, struct eb_routed_version *out)
{
    size_t count = 0;
    uint64_t digest = version->loaded ? find_loaded_digest(version) : 0;
    bool is_own = version->loaded && digest == version->manifest.digest;
    bool is_former = version->loaded && !is_own && digest == version->former.digest;
    bool is_replaced = version->loaded && !is_own && version->manifest.digest != 0;
    if (is_own || is_former) {
        out[count] =
            describe_version(model, version, is_own ? &version->manifest : &version->former);
        out[count].is_loaded = true;
        out[count].is_on_disk = version->is_on_disk && !is_replaced;
        count++;
    }
    if (version->is_on_disk && (!version->loaded || is_replaced)) {
        out[count] = describe_version(model, version, &version->manifest);
        out[count].is_failed = version->failure || version->is_set_aside;
        count++;
    }
    return count;
}

/* Returns how many entries the models have at most. */
static size_t count_entries(const struct eb_registry *registry)
{
    size_t count = 0;
    for (size_t i = 0; i < registry->count; i++) {
        count += 2 * registry->models[i].count;
    }
    return count;
}

/* Fills in the model, and its versions from `out` on. Returns the end of these. */
static struct eb_routed_version *list_model(const struct eb_registry_model *from,
    struct eb_routed_version *out, struct eb_routed_model *model)
{
    struct eb_routed_version *first = out;
    *model = (struct eb_routed_model){
        .name = from->name,
        .serve = from->commanded ? from->commanded : from->settings->config.serve,
        .versions = first,
    };
    for (size_t i = from->count; i > 0; i--) {
        const struct eb_registry_version *version = &from->versions[i - 1];
        out += list_version(from, version, out);
        if (from->served && version->loaded == from->served) {
            model->served = version->number;
            model->served_digest = find_loaded_digest(version);
        }
    }
    model->version_count = (size_t)(out - first);
    return out;
}

struct eb_routed_model *eb_registry_list_routed(const struct eb_registry *registry, size_t *count)
{
    size_t versions_bytes = count_entries(registry) * sizeof(struct eb_routed_version);
    struct eb_routed_model *models =
        malloc((registry->count + 1) * sizeof *models + versions_bytes);
    *count = 0;
    if (!models) {
        return NULL;
    }
    struct eb_routed_version *next = (struct eb_routed_version *)(models + registry->count + 1);
    for (size_t i = 0; i < registry->count; i++) {
        next = list_model(&registry->models[i], next, &models[i]);
    }
    *count = registry->count;
    return models;
}
