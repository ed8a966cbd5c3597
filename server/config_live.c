#include "server/config_live.h"

#include "server/base/log.h"

void eb_config_live_init(struct eb_config_live *live, const struct eb_config *config)
{
    *live = (struct eb_config_live){.running = *config};
}

void eb_config_live_deinit(struct eb_config_live *live)
{
    eb_config_deinit(&live->read);
    *live = (struct eb_config_live){0};
}

void eb_config_change_deinit(struct eb_config_change *change)
{
    eb_config_deinit(&change->read);
    *change = (struct eb_config_change){0};
}

/* Sorts a setting that was read again: takes its value over, or counts it as pending. */
static void sort_setting(struct eb_config_change *change, const struct eb_config_setting *setting)
{
    size_t index = (size_t)(setting - eb_config_settings);
    if (eb_config_setting_equals(&change->next, &change->read, setting)) {
        change->next.sources[index] = change->read.sources[index];
    } else if (setting->effect == EB_CONFIG_LIVE) {
        eb_config_setting_copy(&change->next, &change->read, setting);
        change->changed_count++;
    } else {
        change->pending_count++;
    }
}

bool eb_config_live_read(
    const struct eb_config_live *live, struct eb_config_change *change, struct eb_failure *failure)
{
    *change = (struct eb_config_change){.next = live->running};
    if (!eb_config_read_again(&live->running, &change->read, failure)) {
        return false;
    }
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        sort_setting(change, &eb_config_settings[i]);
    }
    struct eb_failure why;
    return eb_config_check(&change->next, &why) ||
           eb_failure_set(
               failure, "%s (until a restart, with the settings that need one)", why.text);
}

bool eb_config_live_is_pending(
    const struct eb_config_live *live, const struct eb_config_setting *setting)
{
    bool was_read = live->read.listen_count > 0;
    return was_read && setting->effect == EB_CONFIG_START &&
           !eb_config_setting_equals(&live->running, &live->read, setting);
}

size_t eb_config_live_count_pending(const struct eb_config_live *live)
{
    size_t count = 0;
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        count += eb_config_live_is_pending(live, &eb_config_settings[i]);
    }
    return count;
}

static void log_changed(const struct eb_config_live *live, const struct eb_config_change *change,
    const struct eb_config_setting *setting)
{
    char former[EB_CONFIG_VALUE_BYTES];
    char value[EB_CONFIG_VALUE_BYTES];
    if (eb_config_setting_equals(&live->running, &change->next, setting)) {
        return;
    }
    eb_config_setting_format(&live->running, setting, former);
    eb_config_setting_format(&change->next, setting, value);
    eb_log(EB_LOG_INFO, "setting_changed", eb_log_text("name", setting->name),
        eb_log_text("old", former), eb_log_text("new", value));
}

/* Logs a setting that is pending now, unless it was pending with the same value before. */
static void log_pending(const struct eb_config_live *live, const struct eb_config_change *change,
    const struct eb_config_setting *setting)
{
    char former[EB_CONFIG_VALUE_BYTES];
    char value[EB_CONFIG_VALUE_BYTES];
    bool is_known = eb_config_live_is_pending(live, setting) &&
                    eb_config_setting_equals(&live->read, &change->read, setting);
    if (is_known || setting->effect != EB_CONFIG_START ||
        eb_config_setting_equals(&live->running, &change->read, setting)) {
        return;
    }
    eb_config_setting_format(&live->running, setting, former);
    eb_config_setting_format(&change->read, setting, value);
    eb_log(EB_LOG_WARN, "setting_needs_restart", eb_log_text("name", setting->name),
        eb_log_text("value", former), eb_log_text("pending", value));
}

void eb_config_live_apply(struct eb_config_live *live, struct eb_config_change *change)
{
    enum eb_log_level former = live->running.log_level;
    enum eb_log_level level = change->next.log_level;
    /* A change of the level itself is logged if either level allows it. */
    eb_log_set_level(former < level ? former : level);
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        log_changed(live, change, &eb_config_settings[i]);
        log_pending(live, change, &eb_config_settings[i]);
    }
    eb_log(EB_LOG_INFO, "settings_reloaded", eb_log_count("changed", change->changed_count),
        eb_log_count("pending", change->pending_count));
    eb_log_set_level(level);
    eb_log_set_format(change->next.log_format);
    live->running = change->next;
    eb_config_deinit(&live->read);
    live->read = change->read;
    *change = (struct eb_config_change){0};
}
