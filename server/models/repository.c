#include "server/models/repository.h"

#include "server/models/directory.h"
#include "server/models/name.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DESCRIPTION_FILE "model.yaml"
/* What mkfs leaves in the root of a volume. */
#define FILESYSTEM_DIRECTORY "lost+found"

/* A repository being opened. */
struct opening {
    const struct eb_table_options *options;
    struct eb_repository_events events;
    struct eb_file_fault *fault;
};

/* A directory entry that names a version. */
struct version_entry {
    uint64_t version;
    bool is_shared;   /* with another entry */
    const char *name; /* the listing's */
};

static uint64_t read_clock_ms(void)
{
    struct timespec now;
    int result = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(result == 0);
    (void)result;
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool is_version_name(const char *name)
{
    return name[strspn(name, "0123456789")] == '\0';
}

/* 0: the digits are no version's number. */
static uint64_t parse_version(const char *digits)
{
    errno = 0;
    unsigned long long number = strtoull(digits, NULL, 10);
    return errno == 0 ? number : 0;
}

/* Sets *is_directory for the entry `name` of `directory`. */
static bool test_entry(
    const char *directory, const char *name, bool *is_directory, struct eb_file_fault *fault)
{
    char *path = eb_directory_join(directory, name, fault);
    bool is_good = path && eb_directory_test(path, is_directory, fault);
    free(path);
    return is_good;
}

static int compare_versions(const void *left, const void *right)
{
    const struct version_entry *a = left;
    const struct version_entry *b = right;
    if (a->version != b->version) {
        return a->version < b->version ? 1 : -1;
    }
    return strcmp(a->name, b->name);
}

/* Picks the versions out of a listing, which has room for as many in `out`: highest first. */
static bool find_versions(const char *model_path, const struct eb_directory *listing,
    struct version_entry *out, size_t *count, struct eb_file_fault *fault)
{
    *count = 0;
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->entries[i]->d_name;
        if (strcmp(name, DESCRIPTION_FILE) == 0) {
            return eb_file_fault_set(fault,
                "%s/%s: descriptions of models are not supported yet; remove the file", model_path,
                name);
        }
        bool is_directory = false;
        if (is_version_name(name) && !test_entry(model_path, name, &is_directory, fault)) {
            return false;
        }
        if (!is_directory) {
            continue;
        }
        out[(*count)++] = (struct version_entry){.version = parse_version(name), .name = name};
    }
    qsort(out, *count, sizeof *out, compare_versions);
    for (size_t i = 1; i < *count; i++) {
        if (out[i - 1].version == out[i].version) {
            out[i - 1].is_shared = true;
            out[i].is_shared = true;
        }
    }
    return *count > 0 ||
           eb_file_fault_set(fault,
               "%s: there is no version in it; put its tables into a directory called 1",
               model_path);
}

/* Whether the entry's name is that of one version and of no other directory's. */
static bool check_version(
    const char *model_path, const struct version_entry *entry, struct eb_file_fault *fault)
{
    if (entry->version == 0) {
        return eb_file_fault_set(fault,
            "%s/%s: versions are numbers from 1 to %" PRIu64 "; rename the directory", model_path,
            entry->name, UINT64_MAX);
    }
    return !entry->is_shared ||
           eb_file_fault_set(fault,
               "%s/%s: another directory is version %" PRIu64 " too; remove one of them",
               model_path, entry->name, entry->version);
}

static struct eb_model_version *load_version(
    const struct opening *opening, const char *path, const struct eb_model *model, uint64_t number)
{
    struct eb_model_version *version = calloc(1, sizeof *version);
    if (!version) {
        eb_file_fault_set(opening->fault, "%s: out of memory", path);
        return NULL;
    }
    const struct eb_repository_events *events = &opening->events;
    const struct eb_load_progress progress = {events->on_progress, events->context};
    uint64_t start_ms = read_clock_ms();
    if (!eb_table_set_load(path, opening->options, events->on_progress ? &progress : NULL,
            &version->tables, opening->fault)) {
        free(version);
        return NULL;
    }
    version->model = model->name;
    version->version = number;
    atomic_init(&version->references, 1);
    if (events->on_loaded) {
        events->on_loaded(events->context, version, read_clock_ms() - start_ms);
    }
    return version;
}

/* Reports and records why a version did not load: opening->fault. */
static bool record_failure(
    const struct opening *opening, const struct eb_model *model, struct eb_version_record *record)
{
    const char *why = opening->fault->text;
    if (opening->events.on_failed) {
        opening->events.on_failed(opening->events.context, model->name, record->version, why);
    }
    record->error = strdup(why);
    return record->error || eb_file_fault_set(opening->fault, "out of memory");
}

/* Makes the records of the model, which has room for `count`. An entry that names no version is one
 * that does not load. */
static bool record_versions(const struct opening *opening, const char *model_path,
    const struct version_entry *versions, size_t count, struct eb_model *model)
{
    for (size_t i = 0; i < count; i++) {
        struct eb_version_record *record = &model->records[model->record_count++];
        record->version = versions[i].version;
        if (!check_version(model_path, &versions[i], opening->fault) &&
            !record_failure(opening, model, record)) {
            return false;
        }
    }
    return true;
}

/* Loads the highest version that loads. */
static bool serve_highest(const struct opening *opening, const char *model_path,
    const struct version_entry *versions, struct eb_model *model)
{
    for (size_t i = 0; i < model->record_count; i++) {
        struct eb_version_record *record = &model->records[i];
        if (record->error) {
            continue;
        }
        char *path = eb_directory_join(model_path, versions[i].name, opening->fault);
        if (!path) {
            return false;
        }
        model->served = load_version(opening, path, model, record->version);
        free(path);
        if (model->served) {
            record->serving = true;
            return true;
        }
        if (!record_failure(opening, model, record)) {
            return false;
        }
    }
    return eb_file_fault_set(opening->fault, "model '%.64s': no version loads: %s", model->name,
        model->records[0].error);
}

static bool open_versions(const struct opening *opening, const char *model_path,
    const struct eb_directory *listing, struct eb_model *model)
{
    struct version_entry *versions = calloc(listing->count + 1, sizeof *versions);
    model->records = calloc(listing->count + 1, sizeof *model->records);
    if (!versions || !model->records) {
        free(versions);
        return eb_file_fault_set(opening->fault, "%s: out of memory", model_path);
    }
    size_t count = 0;
    bool is_good = find_versions(model_path, listing, versions, &count, opening->fault) &&
                   record_versions(opening, model_path, versions, count, model) &&
                   serve_highest(opening, model_path, versions, model);
    free(versions);
    return is_good;
}

static bool open_model(
    const struct opening *opening, const char *model_path, struct eb_model *model)
{
    struct eb_directory listing;
    if (!eb_directory_read(model_path, &listing, opening->fault)) {
        return false;
    }
    bool is_good = open_versions(opening, model_path, &listing, model);
    eb_directory_deinit(&listing);
    return is_good;
}

/* Adds the model in directory/name, where that is one. */
static bool add_model(const struct opening *opening, const char *directory, const char *name,
    struct eb_repository *repository)
{
    char *path = eb_directory_join(directory, name, opening->fault);
    bool is_directory = false;
    bool is_good = path && eb_directory_test(path, &is_directory, opening->fault);
    if (is_good && is_directory && strcmp(name, FILESYSTEM_DIRECTORY) != 0) {
        const char *name_fault = eb_name_fault(name, opening->options->name_bytes_max);
        struct eb_model *model = &repository->models[repository->count++];
        model->name = strdup(name);
        if (!model->name) {
            is_good = eb_file_fault_set(opening->fault, "%s: out of memory", path);
        } else if (name_fault) {
            is_good = eb_file_fault_set(
                opening->fault, "%s: the model name %s; rename the directory", path, name_fault);
        } else {
            is_good = open_model(opening, path, model);
        }
    }
    free(path);
    return is_good;
}

static bool add_models(const struct opening *opening, const char *directory,
    const struct eb_directory *listing, struct eb_repository *repository)
{
    repository->models = calloc(listing->count + 1, sizeof *repository->models);
    if (!repository->models) {
        return eb_file_fault_set(opening->fault, "%s: out of memory", directory);
    }
    for (size_t i = 0; i < listing->count; i++) {
        if (!add_model(opening, directory, listing->entries[i]->d_name, repository)) {
            return false;
        }
    }
    return repository->count > 0 ||
           eb_file_fault_set(opening->fault,
               "%s: there is no model in it; tables go to MODEL/VERSION/ below it", directory);
}

bool eb_repository_open(const char *directory, const struct eb_table_options *options,
    const struct eb_repository_events *events, struct eb_repository *out,
    struct eb_file_fault *fault)
{
    *out = (struct eb_repository){0};
    struct eb_directory listing;
    if (!eb_directory_read(directory, &listing, fault)) {
        return false;
    }
    struct opening opening = {.options = options, .fault = fault};
    if (events) {
        opening.events = *events;
    }
    bool is_good = add_models(&opening, directory, &listing, out);
    eb_directory_deinit(&listing);
    if (!is_good) {
        eb_repository_close(out);
    }
    return is_good;
}

static void free_model(struct eb_model *model)
{
    if (model->served) {
        eb_model_version_give(model->served);
    }
    for (size_t i = 0; i < model->record_count; i++) {
        free(model->records[i].error);
    }
    free(model->records);
    free(model->name);
}

void eb_repository_close(struct eb_repository *repository)
{
    for (size_t i = 0; i < repository->count; i++) {
        free_model(&repository->models[i]);
    }
    free(repository->models);
    *repository = (struct eb_repository){0};
}

static int compare_model_name(const void *name, const void *model)
{
    return strcmp(name, ((const struct eb_model *)model)->name);
}

const struct eb_model *eb_repository_find(const struct eb_repository *repository, const char *name)
{
    if (name[0] == '\0') {
        return repository->count == 1 ? repository->models : NULL;
    }
    if (repository->count == 0) {
        return NULL;
    }
    return bsearch(name, repository->models, repository->count, sizeof *repository->models,
        compare_model_name);
}

struct eb_model_version *eb_model_take_version(const struct eb_model *model, uint64_t version)
{
    struct eb_model_version *served = model->served;
    if (version != 0 && version != served->version) {
        return NULL;
    }
    /* The repository's own reference keeps the version alive meanwhile. */
    atomic_fetch_add_explicit(&served->references, 1, memory_order_relaxed);
    return served;
}

void eb_model_version_give(struct eb_model_version *version)
{
    uint_fast64_t before = atomic_fetch_sub_explicit(&version->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1) {
        eb_table_set_deinit(&version->tables);
        free(version);
    }
}
