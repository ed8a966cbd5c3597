#include "client/cli/publish_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOAD_PAUSE_MS 1000

/* ---- the list of servers ---- */

/* Cuts the address at *next off at its comma, if it has one, and moves *next past the comma, or to
 * NULL. Returns the address without spaces around it. */
static char *cut_address(char **next)
{
    char *start = *next + strspn(*next, " ");
    char *comma = strchr(start, ',');
    char *end = comma ? comma : start + strlen(start);
    *next = comma ? comma + 1 : NULL;
    while (end > start && end[-1] == ' ') {
        end--;
    }
    *end = '\0';
    return start;
}

static bool check_address(
    const struct eb_publish_list *list, const char *address, struct eb_failure *failure)
{
    if (address[0] == '\0') {
        return eb_failure_set(failure,
            "address %zu is empty: expected ADDRESS[,ADDRESS]... without further commas",
            list->count + 1);
    }
    if (strncmp(address, "dns:", 4) == 0) {
        return eb_failure_set(failure,
            "invalid address \"%s\": expected the HOST:PORT, [V6]:PORT or unix:PATH of one server, "
            "because every server gets commands of its own",
            address);
    }
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->servers[i].address, address) == 0) {
            return eb_failure_set(
                failure, "address \"%s\" occurs twice: name each server once", address);
        }
    }
    if (list->count == EB_PUBLISH_SERVERS_MAX) {
        return eb_failure_set(
            failure, "too many addresses: at most %d are allowed", EB_PUBLISH_SERVERS_MAX);
    }
    return true;
}

bool eb_publish_list_init(
    struct eb_publish_list *list, const char *addresses, struct eb_failure *failure)
{
    *list =
        (struct eb_publish_list){.servers = calloc(EB_PUBLISH_SERVERS_MAX, sizeof *list->servers),
            .text = strdup(addresses)};
    if (!list->servers || !list->text) {
        eb_publish_list_deinit(list);
        return eb_failure_set(failure, "out of memory for the list of servers");
    }
    for (char *next = list->text; next;) {
        const char *address = cut_address(&next);
        if (!check_address(list, address, failure)) {
            eb_publish_list_deinit(list);
            return false;
        }
        list->servers[list->count++].address = address;
    }
    return true;
}

void eb_publish_list_deinit(struct eb_publish_list *list)
{
    free(list->servers);
    free(list->text);
    *list = (struct eb_publish_list){0};
}

/* ---- what a server has ---- */

static const struct embag_model_version *find_publish_version(
    const struct embag_model *model, uint64_t version)
{
    for (size_t i = 0; model && i < model->version_count; i++) {
        if (model->versions[i].version == version) {
            return &model->versions[i];
        }
    }
    return NULL;
}

static enum eb_publish_state translate_state(const struct embag_model_version *version)
{
    switch (version ? version->state : EMBAG_STATE_UNSPECIFIED) {
    case EMBAG_STATE_LOADING: return EB_PUBLISH_LOADING;
    case EMBAG_STATE_READY:
    case EMBAG_STATE_SERVING: return EB_PUBLISH_READY;
    case EMBAG_STATE_FAILED: return EB_PUBLISH_FAILED;
    case EMBAG_STATE_RETIRED:
    case EMBAG_STATE_UNSPECIFIED: break;
    }
    return EB_PUBLISH_ABSENT;
}

void eb_publish_observe(
    struct eb_publish_server *server, const struct embag_model *model, uint64_t version)
{
    const struct embag_model_version *found = find_publish_version(model, version);
    uint64_t served = model ? model->served_version : 0;
    if (!server->is_observed || served != version) {
        server->served_before = served;
        server->commanded_before = model ? model->commanded_version : 0;
    }
    server->may_serve = served == version && server->served_before != version;
    server->is_observed = true;
    server->state = translate_state(found);
    if (server->state == EB_PUBLISH_FAILED) {
        snprintf(server->reason, sizeof server->reason, "%s", found->error);
    } else if (server->state != EB_PUBLISH_ABSENT) {
        server->reason[0] = '\0';
    }
}

bool eb_publish_is_load_due(const struct eb_publish_server *server, uint64_t now_ms)
{
    return server->state == EB_PUBLISH_ABSENT && now_ms >= server->load_not_before_ms;
}

void eb_publish_note_load(struct eb_publish_server *server, uint64_t now_ms, bool is_answered)
{
    if (is_answered || server->load_pause_ms == 0) {
        server->load_pause_ms = LOAD_PAUSE_MS;
    }
    server->load_not_before_ms = now_ms + server->load_pause_ms;
    if (!is_answered) {
        server->load_pause_ms *= 2;
    }
}

/* ---- undoing ---- */

bool eb_publish_is_refusal(enum embag_status status)
{
    /* RESOURCE_EXHAUSTED may also mean that there was no memory for the answer. */
    switch ((int)status) {
    case EMBAG_INVALID_ARGUMENT:
    case EMBAG_NOT_FOUND:
    case EMBAG_PERMISSION_DENIED:
    case EMBAG_FAILED_PRECONDITION:
    case EMBAG_UNIMPLEMENTED:
    case EMBAG_UNAUTHENTICATED: return true;
    default: return false;
    }
}

enum eb_publish_undo eb_publish_find_undo(
    const struct eb_publish_server *server, uint64_t version, uint64_t *undo_version)
{
    bool was_served = server->served_before == version;
    *undo_version = was_served ? server->commanded_before : server->served_before;
    if (!server->may_serve || (was_served && server->commanded_before == version)) {
        return EB_PUBLISH_UNDO_NOTHING;
    }
    return server->served_before == 0 ? EB_PUBLISH_UNDO_IMPOSSIBLE : EB_PUBLISH_UNDO_SERVE;
}
