#include "server/config_file.h"

#include "server/base/yaml_load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What libcyaml reads into: every scalar as a text, so that all sources share one reader of
 * numbers. NULL: the file does not say. */
struct values {
    char *texts[EB_CONFIG_SETTING_COUNT];
    char **listen;
    uint32_t listen_count;
};

/* The schema, made from the table of settings. */
struct schema {
    cyaml_schema_field_t fields[EB_CONFIG_SETTING_COUNT + 1]; /* ended by a NULL key */
    cyaml_schema_value_t top;
};

/* Always false. */
static bool refuse(struct eb_config_error *failure, const struct eb_config *config, const char *why)
{
    snprintf(failure->text, sizeof failure->text, "%.200s: %s", config->config_file, why);
    return false;
}

/* Reads until the end of the file or of `bytes`. Returns what was read; negative: errno. */
static ssize_t read_all(int file, uint8_t *bytes, size_t bytes_max)
{
    size_t used = 0;
    while (used < bytes_max) {
        ssize_t got = read(file, bytes + used, bytes_max - used);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        used += (size_t)got;
    }
    return (ssize_t)used;
}

/* `bytes` has room for one byte more than a file may have. */
static bool read_file(const struct eb_config *config, uint8_t *bytes, size_t *bytes_used,
    struct eb_config_error *failure)
{
    /* Not to wait for the writer of a FIFO, which is refused below. */
    int file = open(config->config_file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    if (file < 0) {
        return refuse(failure, config, strerror(errno));
    }
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(file);
        return refuse(failure, config, "not a regular file");
    }
    ssize_t used = read_all(file, bytes, EB_CONFIG_FILE_BYTES_MAX + 1);
    int error = errno;
    close(file);
    if (used < 0) {
        return refuse(failure, config, strerror(error));
    }
    if (used > EB_CONFIG_FILE_BYTES_MAX) {
        return refuse(failure, config, "larger than 64 KiB: not a file of settings");
    }
    *bytes_used = (size_t)used;
    return true;
}

/* Of all settings but the file's own path. */
static void make_schema(struct schema *schema)
{
    static const cyaml_schema_value_t text = {
        CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 0, CYAML_UNLIMITED)};
    enum cyaml_flag flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL;
    cyaml_schema_field_t *field = schema->fields;
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        const struct eb_config_setting *setting = &eb_config_settings[i];
        if (setting->kind == EB_CONFIG_LISTEN) {
            *field++ = (cyaml_schema_field_t)CYAML_FIELD_SEQUENCE(
                setting->name, flags, struct values, listen, &text, 1, EB_LISTEN_MAX);
        } else if (setting->offset != offsetof(struct eb_config, config_file)) {
            *field++ = (cyaml_schema_field_t){
                .key = setting->name,
                .data_offset = (uint32_t)(offsetof(struct values, texts) + i * sizeof(char *)),
                .value = text,
            };
            field[-1].value.flags = flags;
        }
    }
    *field = (cyaml_schema_field_t)CYAML_FIELD_END;
    schema->top = (cyaml_schema_value_t){
        CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct values, schema->fields)};
}

static bool apply_values(
    struct eb_config *config, const struct values *values, struct eb_config_error *failure)
{
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        const struct eb_config_setting *setting = &eb_config_settings[i];
        bool many = setting->kind == EB_CONFIG_LISTEN;
        char *const *texts = many ? values->listen : &values->texts[i];
        size_t count = many ? values->listen_count : !!values->texts[i];
        for (size_t n = 0; n < count; n++) {
            if (!eb_config_setting_apply(config, setting, EB_CONFIG_FILE, texts[n], failure)) {
                return false;
            }
        }
    }
    return true;
}

static bool apply_yaml(struct eb_config *config, const uint8_t *yaml, size_t yaml_bytes,
    struct eb_config_error *failure)
{
    struct schema schema;
    make_schema(&schema);
    void *values;
    struct eb_failure why;
    if (!eb_yaml_load(yaml, yaml_bytes, &schema.top, &values, &why)) {
        return refuse(failure, config, why.text);
    }
    bool applied = !values || apply_values(config, values, failure);
    eb_yaml_free(&schema.top, values);
    return applied;
}

bool eb_config_file_apply(struct eb_config *config, struct eb_config_error *failure)
{
    uint8_t *yaml = malloc(EB_CONFIG_FILE_BYTES_MAX + 1);
    if (!yaml) {
        return refuse(failure, config, "out of memory");
    }
    size_t yaml_bytes;
    bool applied = read_file(config, yaml, &yaml_bytes, failure) &&
                   apply_yaml(config, yaml, yaml_bytes, failure);
    free(yaml);
    return applied;
}
