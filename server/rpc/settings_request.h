/* A request about the server's settings, on its way from a loop to the thread that keeps them, and
 * back with the outcome.
 * Thread: the keeper's from eb_admin_endpoint.ask_settings until on_done; otherwise its loop's.
 * Memory: on the heap, its maker's. */
#pragma once

#include "proto/arena.h"
#include "proto/codec_admin.h"

enum eb_settings_verb { EB_SETTINGS_LIST, EB_SETTINGS_RELOAD };

struct eb_settings_request {
    enum eb_settings_verb verb;
    /* The last callback, called once, on the keeper's thread, when the members below are set. The
     * request then belongs to its maker again. */
    void (*on_done)(struct eb_settings_request *request);
    struct eb_error error; /* its status is OK if the request was carried out */
    struct eb_wire_reload reload;
    struct eb_wire_setting_list list; /* its memory comes from the arena */
    struct eb_arena arena;            /* of the heap */
    struct eb_settings_request *next; /* the keeper's */
};
