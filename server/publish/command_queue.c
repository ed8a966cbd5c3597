#include "server/publish/command_queue.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The answer to a command. */
struct verdict {
    bool is_over;
    enum eb_model_outcome outcome;
    char text[EB_FAILURE_BYTES];
};

__attribute__((format(printf, 3, 4))) static void decide_command(
    struct verdict *verdict, enum eb_model_outcome outcome, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->text, sizeof verdict->text, format, arguments);
    va_end(arguments);
    verdict->is_over = true;
    verdict->outcome = outcome;
}

void eb_command_queue_push(struct eb_command_queue *queue, struct eb_model_command *command)
{
    struct eb_model_command **link = &queue->first;
    while (*link) {
        link = &(*link)->next;
    }
    command->next = NULL;
    command->is_begun = false;
    command->end_ms = 0;
    command->scan = queue->scans_begun + 1;
    *link = command;
}

/* Returns whether the command concerns a version that is not in memory. */
static bool is_about_disk(
    const struct eb_model_command *command, const struct eb_registry_version *version)
{
    return command->verb != EB_MODEL_UNLOAD && !(version && version->loaded);
}

bool eb_command_queue_needs_disk(
    const struct eb_command_queue *queue, const struct eb_model_command *command)
{
    struct eb_registry_model *model = eb_registry_find(queue->registry, command->model);
    const struct eb_registry_version *version =
        model ? eb_registry_find_version(model, command->version) : NULL;
    bool is_to_end = command->verb == EB_MODEL_UNLOAD && version && version->loaded &&
                     version->loaded == model->served;
    return is_to_end || is_about_disk(command, version);
}

/* ---- beginning ---- */

static void drop(struct eb_command_queue *queue, struct eb_registry_model *model,
    struct eb_registry_version *version)
{
    version->is_held = false;
    eb_registry_unwant(model, version->number);
    eb_registry_drop(queue->registry, model, version);
}

static bool is_on_disk(const struct eb_registry_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        if (model->versions[i].is_on_disk) {
            return true;
        }
    }
    return false;
}

static void unload(struct eb_command_queue *queue, struct eb_registry_model *model,
    struct eb_registry_version *version, struct verdict *verdict)
{
    uint64_t number = version->number;
    const struct eb_claims *claims = &queue->registry->claims;
    uint64_t digest = eb_registry_manifest(queue->registry, version);
    if (eb_claims_has(claims, model->name, number, digest)) {
        char routers[EB_CLAIMS_ROUTERS_BYTES];
        eb_claims_name_routers(claims, model->name, number, digest, routers);
        decide_command(verdict, EB_MODEL_REFUSED,
            "version %" PRIu64 " is claimed by routers (%s); let them serve another one first",
            number, routers);
    } else if (!version->loaded) {
        decide_command(verdict, EB_MODEL_NOT_FOUND, "version %" PRIu64 " is not in memory", number);
    } else if (!is_on_disk(model)) {
        drop(queue, model, version);
    } else if (version->loaded == model->served) {
        decide_command(verdict, EB_MODEL_REFUSED,
            "version %" PRIu64 " is being served; serve another one first", number);
    } else if (eb_registry_has_label(model, number)) {
        decide_command(verdict, EB_MODEL_REFUSED,
            "version %" PRIu64 " has a label; remove the label from model.yaml first", number);
    } else if (eb_registry_wanted_rank(model, number) != 0 && !version->is_held) {
        decide_command(verdict, EB_MODEL_REFUSED,
            "version %" PRIu64
            " is to be served next, or requests name it; serve another one first",
            number);
    } else {
        drop(queue, model, version);
    }
}

/* Clears a version's failure, so that it is tried again. */
static void allow_retry(struct eb_registry_version *version)
{
    if (version->is_on_disk) {
        free(version->failure);
        version->failure = NULL;
    }
}

/* Returns the version to go back to if the command fails. If this command replaces an unfinished
 * one, that is the version from before the unfinished command. */
static uint64_t find_commanded_before(const struct eb_command_queue *queue,
    const struct eb_model_command *command, const struct eb_registry_model *model)
{
    const struct eb_model_command *other = queue->first;
    for (; other != command; other = other->next) {
        if (other->is_begun && other->verb == EB_MODEL_SERVE &&
            other->version == model->commanded && strcmp(other->model, model->name) == 0) {
            return other->commanded_before;
        }
    }
    return model->commanded;
}

/* Answers that there is no version with that number, and why. */
static void miss_version(const struct eb_command_queue *queue,
    const struct eb_model_command *command, const struct eb_registry_model *model,
    struct verdict *verdict)
{
    const char *why = queue->disk_failure;
    for (size_t i = 0; i < model->count && !why; i++) {
        why = model->versions[i].number == command->version ? model->versions[i].failure : NULL;
    }
    if (command->verb == EB_MODEL_UNLOAD) {
        decide_command(verdict, EB_MODEL_NOT_FOUND,
            "model \"%s\" has no version %" PRIu64 " in memory", command->model, command->version);
    } else if (why) {
        decide_command(verdict, EB_MODEL_FAILED, "%s", why);
    } else if (eb_registry_needs_manifests(model)) {
        decide_command(verdict, EB_MODEL_NOT_FOUND,
            "model \"%s\" has no version %" PRIu64 "; model.yaml requires a manifest, so it needs "
            "%s/%" PRIu64 "/manifest.yaml (embag manifest writes it)",
            command->model, command->version, model->path, command->version);
    } else {
        decide_command(verdict, EB_MODEL_NOT_FOUND,
            "model \"%s\" has no version %" PRIu64 "; rename its directory to %s/%" PRIu64 " first",
            command->model, command->version, model->path, command->version);
    }
}

static void want(struct eb_command_queue *queue, struct eb_model_command *command,
    struct eb_registry_model *model, struct verdict *verdict)
{
    struct eb_registry_version *version = eb_registry_find_version(model, command->version);
    if (command->version != 0 && !version) {
        miss_version(queue, command, model, verdict);
        return;
    }
    if (command->verb != EB_MODEL_UNLOAD) {
        eb_registry_hurry(model);
    }
    if (version && command->verb != EB_MODEL_UNLOAD) {
        allow_retry(version);
    }
    switch (command->verb) {
    case EB_MODEL_LOAD:
        if (version) {
            version->is_held = true;
        } else if (queue->disk_failure) {
            decide_command(verdict, EB_MODEL_FAILED, "%s", queue->disk_failure);
        }
        break;
    case EB_MODEL_UNLOAD:
        if (version) {
            unload(queue, model, version, verdict);
        } else {
            decide_command(
                verdict, EB_MODEL_REFUSED, "no version is named; name the version to unload");
        }
        break;
    case EB_MODEL_SERVE:
        command->commanded_before = find_commanded_before(queue, command, model);
        model->commanded = command->version;
        if (queue->registry->is_routed && version) {
            command->end_ms = queue->now_ms + queue->serve_wait_ms;
        }
        break;
    }
}

/* Returns the reason why no version of the model can be loaded, or NULL if there is none. */
static const char *find_command_failure(const struct eb_registry_model *model)
{
    return model->failure || model->is_described ? model->failure : model->config_failure;
}

static void begin_command(
    struct eb_command_queue *queue, struct eb_model_command *command, struct verdict *verdict)
{
    struct eb_registry_model *model = eb_registry_find(queue->registry, command->model);
    const struct eb_registry_version *version =
        model ? eb_registry_find_version(model, command->version) : NULL;
    const char *why = model ? find_command_failure(model) : queue->disk_failure;
    command->is_begun = true;
    queue->registry->is_dirty = true;
    if (why && is_about_disk(command, version)) {
        decide_command(verdict, EB_MODEL_FAILED, "%s", why);
    } else if (!model) {
        decide_command(verdict, EB_MODEL_NOT_FOUND, "no model \"%s\"", command->model);
    } else {
        want(queue, command, model, verdict);
    }
}

/* ---- ending ---- */

/* Removes the command from the queue and answers it. The answer does not reveal where the
 * repository is, because everyone who reaches the port may be allowed to send commands. */
static void answer_command(
    const struct eb_command_queue *queue, struct eb_model_command **link, struct verdict *verdict)
{
    struct eb_model_command *command = *link;
    *link = command->next;
    if (queue->registry->directory) {
        eb_failure_make_relative(verdict->text, queue->registry->directory);
    }
    command->on_done(command, verdict->outcome, verdict->text);
}

void eb_command_queue_begin(struct eb_command_queue *queue)
{
    for (struct eb_model_command **link = &queue->first; *link;) {
        struct eb_model_command *command = *link;
        struct verdict verdict = {0};
        bool is_ready =
            command->scan <= queue->scans_done || !eb_command_queue_needs_disk(queue, command);
        if (!command->is_begun && is_ready) {
            begin_command(queue, command, &verdict);
        }
        if (verdict.is_over) {
            answer_command(queue, link, &verdict);
        } else {
            link = &command->next;
        }
    }
}

/* Undoes a command that has failed. `version` may be NULL if it is gone. */
static void take_command_back(const struct eb_command_queue *queue,
    const struct eb_model_command *command, struct eb_registry_version *version)
{
    struct eb_registry_model *model = eb_registry_find(queue->registry, command->model);
    if (command->verb == EB_MODEL_LOAD && version) {
        version->is_held = false;
    }
    if (command->verb == EB_MODEL_SERVE && model->commanded == command->version) {
        model->commanded = command->commanded_before;
    }
    queue->registry->is_dirty = true;
}

/* Answers a command for a version that will no longer be loaded. */
static void check_lost(const struct eb_command_queue *queue, const struct eb_model_command *command,
    struct eb_registry_version *version, struct verdict *verdict)
{
    uint64_t number = command->version;
    if (version && version->is_on_disk) {
        decide_command(verdict, EB_MODEL_REFUSED,
            "version %" PRIu64 " was unloaded by another command", number);
    } else {
        decide_command(verdict, EB_MODEL_NOT_FOUND, "version %" PRIu64 " is gone", number);
    }
    take_command_back(queue, command, version);
}

/* Returns whether a later command asks to serve the same version. */
static bool is_asked_again(const struct eb_model_command *command)
{
    const struct eb_model_command *other = command->next;
    while (other &&
           !(other->is_begun && other->verb == EB_MODEL_SERVE &&
               other->version == command->version && strcmp(other->model, command->model) == 0)) {
        other = other->next;
    }
    return other;
}

/* Answers a command to serve a version if a router's flip has not served it in time. */
static void check_wait(const struct eb_command_queue *queue, const struct eb_model_command *command,
    struct eb_registry_version *version, struct verdict *verdict)
{
    if (queue->now_ms < command->end_ms) {
        return;
    }
    decide_command(verdict, EB_MODEL_FAILED,
        "version %" PRIu64 " was not complete within %" PRIu64 " s: %s", version->number,
        queue->serve_wait_ms / 1000,
        version->loaded ? "at least one of its parts has no server that is ready"
                        : "its tables placed everywhere have not been loaded yet");
    if (!is_asked_again(command)) {
        take_command_back(queue, command, version);
    }
}

/* Sets *verdict if a command for one version is over. It is done when the version is in memory and,
 * for SERVE, is served. */
static void check_version(const struct eb_command_queue *queue,
    const struct eb_model_command *command, struct eb_registry_model *model,
    struct verdict *verdict)
{
    bool is_to_serve = command->verb == EB_MODEL_SERVE;
    uint64_t number = command->version;
    struct eb_registry_version *version = eb_registry_find_version(model, number);
    if (!version) {
        check_lost(queue, command, NULL, verdict);
    } else if (is_to_serve && model->commanded != number && !version->failure) {
        decide_command(verdict, EB_MODEL_REFUSED, "a later command replaced this one");
    } else if (version->loaded && (!is_to_serve || version->loaded == model->served)) {
        decide_command(verdict, EB_MODEL_DONE, "version %" PRIu64 " is %s", number,
            version->loaded == model->served ? "served" : "in memory");
    } else if (version->failure) {
        decide_command(verdict,
            version->failure_kind == EB_REGISTRY_SHORT ? EB_MODEL_SHORT : EB_MODEL_FAILED, "%s",
            version->failure);
        take_command_back(queue, command, version);
    } else if (command->end_ms != 0 && (version->loaded || version->is_on_disk)) {
        check_wait(queue, command, version, verdict);
    } else if (!version->loaded && eb_registry_is_settled(queue->registry, model)) {
        check_lost(queue, command, version, verdict);
    }
}

static void check_asked_version(const struct eb_command_queue *queue,
    const struct eb_model_command *command, struct verdict *verdict)
{
    struct eb_registry_model *model = eb_registry_find(queue->registry, command->model);
    if (!model) {
        decide_command(verdict, EB_MODEL_NOT_FOUND, "model \"%s\" is gone", command->model);
    } else if (command->verb == EB_MODEL_UNLOAD) {
        decide_command(verdict, EB_MODEL_DONE, "version %" PRIu64 " no longer answers requests",
            command->version);
    } else if (command->version != 0) {
        check_version(queue, command, model, verdict);
    } else if (eb_registry_is_settled(queue->registry, model) && model->served) {
        decide_command(
            verdict, EB_MODEL_DONE, "version %" PRIu64 " is served", model->served->version);
    } else if (eb_registry_is_settled(queue->registry, model)) {
        decide_command(verdict, EB_MODEL_FAILED, "no version of model \"%s\" %s", command->model,
            queue->registry->is_routed ? "is complete yet" : "can be loaded");
    }
}

void eb_command_queue_finish(struct eb_command_queue *queue)
{
    for (struct eb_model_command **link = &queue->first; *link;) {
        struct verdict verdict = {0};
        if ((*link)->is_begun) {
            check_asked_version(queue, *link, &verdict);
        }
        if (verdict.is_over) {
            answer_command(queue, link, &verdict);
        } else {
            link = &(*link)->next;
        }
    }
}

uint64_t eb_command_queue_due_ms(const struct eb_command_queue *queue)
{
    uint64_t due_ms = UINT64_MAX;
    for (const struct eb_model_command *command = queue->first; command; command = command->next) {
        if (command->end_ms != 0 && command->end_ms < due_ms) {
            due_ms = command->end_ms;
        }
    }
    return due_ms;
}

void eb_command_queue_tell(const struct eb_command_queue *queue, const char *model,
    uint64_t done_bytes, uint64_t total_bytes)
{
    for (struct eb_model_command *command = queue->first; command; command = command->next) {
        if (command->on_progress && strcmp(command->model, model) == 0) {
            command->on_progress(command, done_bytes, total_bytes);
        }
    }
}

void eb_command_queue_cancel(struct eb_command_queue *queue)
{
    struct verdict verdict;
    decide_command(&verdict, EB_MODEL_CANCELLED, "the server is shutting down");
    while (queue->first) {
        answer_command(queue, &queue->first, &verdict);
    }
}
