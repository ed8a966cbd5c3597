/* The settings of a running server: those in force, and those that were read last. When the
 * settings are read again, changes of some take effect at once (EB_CONFIG_LIVE), and changes of the
 * others are pending until the next start.
 * Thread: main's. Memory: each struct owns its settings, except that the texts in force are
 * borrowed from the settings of the start. */
#pragma once

#include "server/config.h"

struct eb_config_live {
    struct eb_config running; /* settings in force */
    struct eb_config read;    /* settings that were read last; zeroed until they are read again */
};

/* Settings that were read again and are not in force yet. */
struct eb_config_change {
    struct eb_config read;
    struct eb_config next; /* those in force after the change */
    size_t changed_count;  /* settings whose value changes at once */
    size_t pending_count;  /* settings whose value will change at the next start */
};

/* Starts with `config`, whose texts are borrowed until deinit. */
void eb_config_live_init(struct eb_config_live *live, const struct eb_config *config);
void eb_config_live_deinit(struct eb_config_live *live);

/* Reads all settings again, from the sources that the start read. Returns false with *failure set
 * if one of them is not valid, or if the new values that take effect at once do not fit the values
 * that stay in force until the next start. The caller deinits *change, whatever the outcome. */
bool eb_config_live_read(
    const struct eb_config_live *live, struct eb_config_change *change, struct eb_failure *failure);
/* Puts a change in force and leaves *change empty. Sets the log's level and format. Logs each
 * setting that has changed and, once per change, each setting that needs a restart. The caller must
 * pass live->running on to all other parts that need settings. */
void eb_config_live_apply(struct eb_config_live *live, struct eb_config_change *change);
/* Accepts a change that was applied. */
void eb_config_change_deinit(struct eb_config_change *change);

/* Returns whether another value of the setting was read, which takes effect at the next start. */
bool eb_config_live_is_pending(
    const struct eb_config_live *live, const struct eb_config_setting *setting);
/* Returns the number of such settings. */
size_t eb_config_live_count_pending(const struct eb_config_live *live);
