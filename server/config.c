#include "server/config.h"

#include "proto/net/address.h"
#include "server/base/machine.h"
#include "server/base/yaml_load.h"
#include "server/net/buffer_pool.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LISTEN_DEFAULT "127.0.0.1:8600"
#define HTTP_LISTEN_DEFAULT "127.0.0.1:8601"

/* Smallest memory of each loop: enough for one whole answer, and for one connection to send the
 * largest request. A connection may take more memory only while it holds no more than it leaves
 * free (buffer_pool.h). So the pool must have room for twice the memory that it holds, in addition
 * to what it takes. It holds the most while a message is decompressed: the compressed message,
 * which may be as large as the decompressed one, and zlib's state. 2 * (request + state) + request
 * is less than four times what a request takes from the pool, if that is at least REQUEST_ROOM_MIN.
 * The rest is for data that is being sent. */
#define LOOP_REQUESTS 4
#define LOOP_ANSWERS 1
#define REQUEST_ROOM_MIN (UINT64_C(256) << 10)

/* ---- flags and environment ---- */

static enum eb_config_outcome end_print(bool printed, struct eb_failure *failure)
{
    if (!printed) {
        eb_failure_set(failure, "cannot write standard output");
        return EB_CONFIG_ERROR;
    }
    return EB_CONFIG_EXIT;
}

/* Applies the flag at arguments[0]: `--name value` or `--name=value`. Sets *used to the number of
 * arguments that it consists of. */
static bool read_flag(
    struct eb_config *config, char *const *arguments, int *used, struct eb_failure *failure)
{
    const char *flag = arguments[0];
    size_t name_bytes = strcspn(flag, "=");
    const struct eb_config_setting *setting =
        eb_config_setting_find(EB_CONFIG_FLAG, flag, name_bytes);
    if (!setting) {
        return eb_failure_set(failure, "%.200s: no such flag; embagd --help lists all flags", flag);
    }
    bool joined = flag[name_bytes] == '=';
    const char *value = joined ? flag + name_bytes + 1 : arguments[1];
    if (!value) {
        return eb_failure_set(
            failure, "%s: value is missing; expected %s %s", flag, flag, setting->value);
    }
    *used = joined ? 1 : 2;
    return eb_config_setting_apply(config, setting, EB_CONFIG_FLAG, value, failure);
}

/* Applies the flags. Sets *print if the settings are to be printed once all are known. */
static enum eb_config_outcome read_flags(struct eb_config *config, int argument_count,
    char *const *arguments, bool *print, struct eb_failure *failure)
{
    int used = 1;
    for (int i = 1; i < argument_count; i += used) {
        if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) {
            return end_print(eb_config_print_help(stdout), failure);
        }
        if (strcmp(arguments[i], "--version") == 0) {
            return end_print(eb_config_print_version(stdout), failure);
        }
        if (strcmp(arguments[i], "--print-config") == 0) {
            *print = true;
            used = 1;
        } else if (!read_flag(config, arguments + i, &used, failure)) {
            return EB_CONFIG_ERROR;
        }
    }
    return EB_CONFIG_RUN;
}

/* Returns whether the variable is one that Kubernetes sets in every pod beside a service called
 * embag or embag-...: EMBAG_SERVICE_HOST, EMBAG_SERVICE_PORT_GRPC, EMBAG_PORT=tcp://...,
 * EMBAG_PORT_8600_TCP_ADDR. */
static bool is_service_link(const char *variable)
{
    const char *equals = strchr(variable, '=');
    const char *service = strstr(variable, "_SERVICE_");
    const char *port = strstr(variable, "_PORT");
    if (service && service < equals) {
        return true;
    }
    if (!port || port > equals) {
        return false;
    }
    const char *behind = port + strlen("_PORT");
    return (behind[0] == '_' && isdigit((unsigned char)behind[1])) || strstr(equals, "://");
}

static bool read_variable(
    struct eb_config *config, const char *variable, struct eb_failure *failure)
{
    static const char prefix[] = "EMBAG_";
    size_t name_bytes = strcspn(variable, "=");
    if (strncmp(variable, prefix, strlen(prefix)) != 0 || !variable[name_bytes]) {
        return true;
    }
    const struct eb_config_setting *setting =
        eb_config_setting_find(EB_CONFIG_ENVIRONMENT, variable, name_bytes);
    if (setting) {
        return eb_config_setting_apply(
            config, setting, EB_CONFIG_ENVIRONMENT, variable + name_bytes + 1, failure);
    }
    if (is_service_link(variable)) {
        return true;
    }
    return eb_failure_set(failure,
        "%.*s: no such setting; embagd --help lists all settings; unset the variable if it is not "
        "meant "
        "for embagd",
        name_bytes < 200 ? (int)name_bytes : 200, variable);
}

static bool read_environment(
    struct eb_config *config, char *const *environment, struct eb_failure *failure)
{
    for (; *environment; environment++) {
        if (!read_variable(config, *environment, failure)) {
            return false;
        }
    }
    return true;
}

/* ---- the file ---- */

/* The file as libcyaml reads it: every scalar is a text, so that all sources share one parser of
 * numbers. A text is NULL if the file does not have it. */
struct file_values {
    char *texts[EB_CONFIG_SETTING_COUNT];
    char **listen;
    uint32_t listen_count;
};

/* The schema, built from the table of settings. */
struct file_schema {
    cyaml_schema_field_t fields[EB_CONFIG_SETTING_COUNT + 1]; /* the last one has a NULL key */
    cyaml_schema_value_t top;
};

/* Sets *failure with the file's path. Always returns false. */
static bool refuse_file(struct eb_failure *failure, const struct eb_config *config, const char *why)
{
    return eb_failure_set(failure, "%.200s: %s", config->config_file, why);
}

static bool refuse_unread(struct eb_failure *failure, const struct eb_config *config, int error)
{
    return eb_failure_set(
        failure, "--config %.200s: cannot be read: %s", config->config_file, strerror(error));
}

/* Reads until the end of the file or of `bytes`. Returns the number of bytes read, or a negative
 * number with errno set. */
static ssize_t read_to_end(int file, uint8_t *bytes, size_t bytes_max)
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

/* Reads the file. `bytes` has room for one byte more than a file may have. */
static bool read_config_file(
    const struct eb_config *config, uint8_t *bytes, size_t *bytes_used, struct eb_failure *failure)
{
    /* Do not wait for the writer of a FIFO, which is refused below. */
    int file = open(config->config_file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    if (file < 0) {
        return refuse_unread(failure, config, errno);
    }
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(file);
        return refuse_file(failure, config, "not a regular file; expected a YAML file of settings");
    }
    ssize_t used = read_to_end(file, bytes, EB_CONFIG_FILE_BYTES_MAX + 1);
    int error = errno;
    close(file);
    if (used < 0) {
        return refuse_unread(failure, config, error);
    }
    if (used > EB_CONFIG_FILE_BYTES_MAX) {
        return refuse_file(failure, config, "larger than 64 KiB; expected a YAML file of settings");
    }
    *bytes_used = (size_t)used;
    return true;
}

/* Makes the schema of all settings except the file's own path. */
static void make_file_schema(struct file_schema *schema)
{
    static const cyaml_schema_value_t text = {
        CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 0, CYAML_UNLIMITED)};
    enum cyaml_flag flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL;
    cyaml_schema_field_t *field = schema->fields;
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        const struct eb_config_setting *setting = &eb_config_settings[i];
        if (setting->kind == EB_CONFIG_LISTEN) {
            *field++ = (cyaml_schema_field_t)CYAML_FIELD_SEQUENCE(
                setting->name, flags, struct file_values, listen, &text, 1, EB_LISTEN_MAX);
        } else if (setting->offset != offsetof(struct eb_config, config_file)) {
            *field++ = (cyaml_schema_field_t){
                .key = setting->name,
                .data_offset = (uint32_t)(offsetof(struct file_values, texts) + i * sizeof(char *)),
                .value = text,
            };
            field[-1].value.flags = flags;
        }
    }
    *field = (cyaml_schema_field_t)CYAML_FIELD_END;
    schema->top = (cyaml_schema_value_t){
        CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct file_values, schema->fields)};
}

static bool apply_file_value(struct eb_config *config, const struct eb_config_setting *setting,
    const struct file_values *values, struct eb_failure *failure)
{
    bool many = setting->kind == EB_CONFIG_LISTEN;
    char *const *texts = many ? values->listen : &values->texts[setting - eb_config_settings];
    size_t count = many ? values->listen_count : !!*texts;
    for (size_t n = 0; n < count; n++) {
        if (!eb_config_setting_apply(config, setting, EB_CONFIG_FILE, texts[n], failure)) {
            return false;
        }
    }
    return true;
}

static bool apply_file_values(
    struct eb_config *config, const struct file_values *values, struct eb_failure *failure)
{
    /* Apply log_format first, because whatever is wrong with the others is logged in that format.
     */
    static const char first[] = "log_format";
    const struct eb_config_setting *setting =
        eb_config_setting_find(EB_CONFIG_FILE, first, strlen(first));
    bool applied = apply_file_value(config, setting, values, failure);
    for (size_t i = 0; applied && i < EB_CONFIG_SETTING_COUNT; i++) {
        applied = apply_file_value(config, &eb_config_settings[i], values, failure);
    }
    return applied;
}

static bool apply_yaml(
    struct eb_config *config, const uint8_t *yaml, size_t yaml_bytes, struct eb_failure *failure)
{
    struct file_schema schema;
    make_file_schema(&schema);
    void *values;
    struct eb_failure why;
    if (!eb_yaml_load(yaml, yaml_bytes, &schema.top, &values, &why)) {
        return refuse_file(failure, config, why.text);
    }
    bool applied = !values || apply_file_values(config, values, failure);
    eb_yaml_free(&schema.top, values);
    return applied;
}

/* Notes the state of the file, before it is read. Returns false if out of memory. */
static bool stamp_file(struct eb_config *config)
{
    struct eb_file_list list = {.files = NULL};
    bool is_added = eb_file_list_add(&list, config->config_file);
    if (is_added) {
        config->file_stamp = list.files[0].stamp;
    }
    eb_file_list_deinit(&list);
    return is_added;
}

/* Applies the file config->config_file, which is not NULL. */
static bool apply_file(struct eb_config *config, struct eb_failure *failure)
{
    uint8_t *yaml = malloc(EB_CONFIG_FILE_BYTES_MAX + 1);
    if (!yaml || !stamp_file(config)) {
        free(yaml);
        return refuse_file(failure, config, "out of memory");
    }
    size_t yaml_bytes = 0;
    bool applied = read_config_file(config, yaml, &yaml_bytes, failure) &&
                   apply_yaml(config, yaml, yaml_bytes, failure);
    free(yaml);
    return applied;
}

/* ---- settings that depend on the machine and on other settings ---- */

/* Returns the bytes that the largest request takes from its loop's receive memory. */
static uint64_t find_request_room(const struct eb_limits *limits)
{
    uint64_t rounded = eb_buffer_pool_rounded(limits->request_bytes_max);
    return rounded > REQUEST_ROOM_MIN ? rounded : REQUEST_ROOM_MIN;
}

uint32_t eb_config_loops_default(uint32_t cpus, const struct eb_limits *limits)
{
    uint64_t loops = cpus / 4 < 16 ? cpus / 4 : 16;
    uint64_t by_requests =
        limits->receive_memory_bytes / (LOOP_REQUESTS * find_request_room(limits));
    uint64_t by_answers = limits->answer_memory_bytes / (LOOP_ANSWERS * limits->response_bytes_max);
    loops = loops < by_requests ? loops : by_requests;
    loops = loops < by_answers ? loops : by_answers;
    return loops > 0 ? (uint32_t)loops : 1;
}

/* Sets a text that no source has set. Returns false with *failure set if out of memory. */
static bool set_default(char **text, const char *fallback, struct eb_failure *failure)
{
    if (!*text) {
        *text = strdup(fallback);
    }
    if (!*text) {
        eb_failure_set(failure, "out of memory");
    }
    return *text;
}

/* Sets the settings that depend on the machine and on other settings. */
static bool resolve_settings(struct eb_config *config, struct eb_failure *failure)
{
    if (!config->model_repository) {
        return eb_failure_set(failure,
            "--model-repository is missing: give the directory of the models with this flag, with "
            "EMBAG_MODEL_REPOSITORY or with model_repository in the file");
    }
    if (!set_default(&config->http_listen, HTTP_LISTEN_DEFAULT, failure)) {
        return false;
    }
    if (config->listen_count == 0) {
        if (!set_default(&config->listen[0], LISTEN_DEFAULT, failure)) {
            return false;
        }
        config->listen_count = 1;
    }
    uint32_t cpus = eb_machine_cpu_count("");
    if (config->loops == 0) {
        config->loops = eb_config_loops_default(cpus, &config->limits);
    }
    if (config->threads == 0) {
        config->threads = cpus < EB_CONFIG_THREADS_MAX ? cpus : EB_CONFIG_THREADS_MAX;
    }
    return true;
}

/* Refuses settings that have no effect, or less than users may expect, without other settings. */
static bool check_tls(const struct eb_config *config, struct eb_failure *failure)
{
    const char *what = NULL;
    if (!config->tls_cert != !config->tls_key) {
        what = config->tls_cert ? "--tls-cert needs --tls-key, the private key of the certificate"
                                : "--tls-key needs --tls-cert, the certificate of the key";
    } else if (config->tls_client_ca && !config->tls_cert) {
        what = "--tls-client-ca needs --tls-cert and --tls-key: without TLS clients cannot present "
               "certificates";
    } else if (config->tls_min_version != EB_TLS_1_2 && !config->tls_cert) {
        what = "--tls-min-version needs --tls-cert and --tls-key: without them the server does not "
               "use TLS";
    } else if (config->tls_client_verify != EB_TLS_CLIENT_REQUIRED && !config->tls_client_ca) {
        what = "--tls-client-verify needs --tls-client-ca: without it clients are not asked for "
               "certificates";
    }
    if (what) {
        eb_failure_set(failure, "%s", what);
    }
    return !what;
}

/* Checks the settings of part servers and routers. */
static bool check_roles(const struct eb_config *config, struct eb_failure *failure)
{
    const char *what = NULL;
    bool has_access = config->route_tls_ca || config->route_tls_cert || config->route_tls_key ||
                      config->route_token_file;
    if (config->route && config->part) {
        what = "--route makes this a router and --part a part server: set one of them";
    } else if (has_access && !config->route) {
        what = "--route-tls-ca, --route-tls-cert, --route-tls-key and --route-token-file need "
               "--route, the addresses of the part servers";
    } else if (!config->route_tls_cert != !config->route_tls_key) {
        what = config->route_tls_cert
                   ? "--route-tls-cert needs --route-tls-key, the private key of the certificate"
                   : "--route-tls-key needs --route-tls-cert, the certificate of the key";
    }
    if (what) {
        eb_failure_set(failure, "%s", what);
    }
    return !what;
}

/* Checks that the memory that all loops share equally is enough for each of them. */
static bool check_budgets(const struct eb_config *config, struct eb_failure *failure)
{
    const struct eb_limits *limits = &config->limits;
    const struct {
        const char *budget_name;
        const char *limit_name;
        uint64_t budget, limit, unit, units;
    } budgets[] = {
        {"receive-memory-bytes", "request-bytes-max", limits->receive_memory_bytes,
            limits->request_bytes_max, find_request_room(limits), LOOP_REQUESTS},
        {"answer-memory-bytes", "response-bytes-max", limits->answer_memory_bytes,
            limits->response_bytes_max, limits->response_bytes_max, LOOP_ANSWERS},
    };
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        uint64_t needed = config->loops * budgets[i].units * budgets[i].unit;
        if (budgets[i].budget < needed) {
            return eb_failure_set(failure,
                "--%s %" PRIu64 " is too small: %" PRIu32 " loops need %" PRIu64 ", %" PRIu64
                " x %" PRIu64 " bytes each because of --%s %" PRIu64
                "; raise it, lower --%s or lower --loops",
                budgets[i].budget_name, budgets[i].budget, config->loops, needed, budgets[i].units,
                budgets[i].unit, budgets[i].limit_name, budgets[i].limit, budgets[i].limit_name);
        }
    }
    return true;
}

/* ---- all layers ---- */

enum eb_log_format eb_config_find_log_format(
    int argument_count, char *const *arguments, char *const *environment)
{
    static const char flag[] = "--log-format";
    static const char variable[] = "EMBAG_LOG_FORMAT=";
    const char *value = NULL;
    for (; !value && *environment; environment++) {
        if (strncmp(*environment, variable, strlen(variable)) == 0) {
            value = *environment + strlen(variable);
        }
    }
    for (int i = 1; i < argument_count; i++) {
        const char *behind = arguments[i] + strlen(flag);
        if (strncmp(arguments[i], flag, strlen(flag)) != 0) {
            continue;
        }
        if (*behind == '=') {
            value = behind + 1;
        } else if (!*behind && arguments[i + 1]) {
            value = arguments[i + 1];
        }
    }
    bool is_json = value && strcmp(value, eb_log_format_names[EB_LOG_JSON]) == 0;
    return is_json ? EB_LOG_JSON : EB_LOG_LOGFMT;
}

bool eb_config_check(const struct eb_config *config, struct eb_failure *failure)
{
    return check_budgets(config, failure) && check_tls(config, failure) &&
           check_roles(config, failure);
}

/* Reads the sources from the highest to the lowest, because a higher one gives the file's path. A
 * value that is set stays set (eb_config_setting_apply). Sets *print if the settings are to be
 * printed. */
static enum eb_config_outcome read_layers(
    struct eb_config *config, bool *print, struct eb_failure *failure)
{
    const struct eb_config_input *input = &config->input;
    enum eb_config_outcome outcome =
        read_flags(config, input->argument_count, input->arguments, print, failure);
    if (outcome != EB_CONFIG_RUN) {
        return outcome;
    }
    bool fine = read_environment(config, input->environment, failure) &&
                (!config->config_file || apply_file(config, failure)) &&
                resolve_settings(config, failure) && eb_config_check(config, failure);
    return fine ? EB_CONFIG_RUN : EB_CONFIG_ERROR;
}

/* Sets what holds before any source is read. */
static void init_config(struct eb_config *config, struct eb_config_input input)
{
    *config = (struct eb_config){.input = input};
    eb_config_setting_apply_defaults(config);
    config->log_format =
        eb_config_find_log_format(input.argument_count, input.arguments, input.environment);
}

enum eb_config_outcome eb_config_read(
    int argument_count, char *const *arguments, char *const *environment, struct eb_config *out)
{
    struct eb_failure failure;
    bool print = false;
    init_config(out, (struct eb_config_input){argument_count, arguments, environment});
    enum eb_config_outcome outcome = read_layers(out, &print, &failure);
    if (outcome == EB_CONFIG_RUN && print) {
        outcome = eb_config_print(out, stdout, &failure) ? EB_CONFIG_EXIT : EB_CONFIG_ERROR;
    }
    eb_log_set_format(out->log_format);
    if (outcome == EB_CONFIG_ERROR) {
        eb_log(EB_LOG_ERROR, "bad_configuration", eb_log_text("reason", failure.text));
    }
    return outcome;
}

bool eb_config_read_again(
    const struct eb_config *config, struct eb_config *out, struct eb_failure *failure)
{
    bool print = false;
    init_config(out, config->input);
    return read_layers(out, &print, failure) == EB_CONFIG_RUN;
}

/* ---- the log ---- */

static void log_source(
    const struct eb_config *config, enum eb_config_source source, const char *listen)
{
    struct eb_log_field fields[EB_CONFIG_SETTING_COUNT + 2] = {
        eb_log_text("source", eb_config_source_name(source))};
    size_t count = 1;
    /* Log the settings from last to first. A long path then comes after all numbers, and cannot
     * push them out of a line that is too long. */
    for (size_t i = EB_CONFIG_SETTING_COUNT; i-- > 0;) {
        const struct eb_config_setting *setting = &eb_config_settings[i];
        struct eb_log_field field = setting->kind == EB_CONFIG_LISTEN
                                        ? eb_log_text(setting->name, listen)
                                        : eb_config_setting_field(config, setting);
        if (config->sources[i] == source && field.key) {
            fields[count++] = field;
        }
    }
    if (count > 1) {
        eb_log_write(EB_LOG_INFO, "config", fields);
    }
}

void eb_config_log(const struct eb_config *config)
{
    static const char name[] = "listen";
    char listen[EB_CONFIG_VALUE_BYTES];
    eb_config_setting_format(
        config, eb_config_setting_find(EB_CONFIG_FILE, name, strlen(name)), listen);
    for (int source = EB_CONFIG_DEFAULT; source <= EB_CONFIG_FLAG; source++) {
        log_source(config, (enum eb_config_source)source, listen);
    }
}
