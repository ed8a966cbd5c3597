#include "server/config.h"

#include "proto/net/address.h"
#include "server/base/cpu.h"
#include "server/base/log.h"
#include "server/config_file.h"
#include "server/config_help.h"
#include "server/config_print.h"
#include "server/config_setting.h"
#include "server/net/buffer_pool.h"
#include "server/prefetch.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTEN_DEFAULT "127.0.0.1:8600"
#define HTTP_LISTEN_DEFAULT "127.0.0.1:8601"

/* What each loop must be able to hold at once: one whole answer, and so much that one connection
 * alone can send the largest request. A connection takes more only while it holds no more than it
 * leaves (receive_quota.h), so what it holds counts twice beside what it takes. It holds the most
 * where a message is decompressed: that as it came, which may be as large as the decompressed one,
 * and zlib's state. 2 * (request + state) + request is less than four of what a request takes of
 * the pool, where that is no less than REQUEST_ROOM_MIN; the rest is for what is being sent. */
#define LOOP_REQUESTS 4
#define LOOP_ANSWERS 1
#define REQUEST_ROOM_MIN (UINT64_C(256) << 10)

static enum eb_config_outcome answer(bool printed, struct eb_config_error *error)
{
    if (!printed) {
        snprintf(error->text, sizeof error->text, "standard output cannot be written");
        return EB_CONFIG_ERROR;
    }
    return EB_CONFIG_EXIT;
}

/* The flag at arguments[0]: `--name value` or `--name=value`. *used: the arguments it takes. */
static bool read_flag(
    struct eb_config *config, char *const *arguments, int *used, struct eb_config_error *error)
{
    const char *flag = arguments[0];
    size_t name_bytes = strcspn(flag, "=");
    const struct eb_config_setting *setting =
        eb_config_setting_find(EB_CONFIG_FLAG, flag, name_bytes);
    if (!setting) {
        snprintf(error->text, sizeof error->text,
            "%.200s: no such flag; embagd --help lists them all", flag);
        return false;
    }
    bool joined = flag[name_bytes] == '=';
    const char *value = joined ? flag + name_bytes + 1 : arguments[1];
    if (!value) {
        snprintf(error->text, sizeof error->text, "%s: needs a value: %s %s", flag, flag,
            setting->value);
        return false;
    }
    *used = joined ? 1 : 2;
    return eb_config_setting_apply(config, setting, EB_CONFIG_FLAG, value, error);
}

/* *print: whether the settings are to be printed once all are known. */
static enum eb_config_outcome read_flags(struct eb_config *config, int argument_count,
    char *const *arguments, bool *print, struct eb_config_error *error)
{
    int used;
    for (int i = 1; i < argument_count; i += used) {
        if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) {
            return answer(eb_config_help_print(stdout), error);
        }
        if (strcmp(arguments[i], "--version") == 0) {
            return answer(eb_config_help_print_version(stdout), error);
        }
        if (strcmp(arguments[i], "--print-config") == 0) {
            *print = true;
            used = 1;
        } else if (!read_flag(config, arguments + i, &used, error)) {
            return EB_CONFIG_ERROR;
        }
    }
    return EB_CONFIG_RUN;
}

/* Whether Kubernetes sets such a variable in every pod beside a service called embag or embag-...:
 * EMBAG_SERVICE_HOST, EMBAG_SERVICE_PORT_GRPC, EMBAG_PORT=tcp://..., EMBAG_PORT_8600_TCP_ADDR. */
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
    struct eb_config *config, const char *variable, struct eb_config_error *error)
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
            config, setting, EB_CONFIG_ENVIRONMENT, variable + name_bytes + 1, error);
    }
    if (is_service_link(variable)) {
        return true;
    }
    snprintf(error->text, sizeof error->text,
        "%.*s: no such setting; embagd --help lists them all, unset it if it is not for embagd",
        name_bytes < 200 ? (int)name_bytes : 200, variable);
    return false;
}

static bool read_environment(
    struct eb_config *config, char *const *environment, struct eb_config_error *error)
{
    for (; *environment; environment++) {
        if (!read_variable(config, *environment, error)) {
            return false;
        }
    }
    return true;
}

/* What the largest request takes of its loop's receive memory. */
static uint64_t find_request_room(const struct eb_limits *limits)
{
    const uint64_t rounded = eb_buffer_pool_rounded(limits->request_bytes_max);
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

/* Sets a text that no source has set. */
static bool set_default(char **text, const char *fallback, struct eb_config_error *error)
{
    if (!*text) {
        *text = strdup(fallback);
    }
    if (!*text) {
        snprintf(error->text, sizeof error->text, "out of memory");
    }
    return *text;
}

/* Fills in what depends on the machine and on other settings. */
static bool resolve(struct eb_config *config, struct eb_config_error *error)
{
    if (!config->model_repository) {
        snprintf(error->text, sizeof error->text,
            "--model-repository is missing: name the directory of the models by it, by "
            "EMBAG_MODEL_REPOSITORY or by model_repository in the file");
        return false;
    }
    if (!set_default(&config->http_listen, HTTP_LISTEN_DEFAULT, error)) {
        return false;
    }
    if (config->listen_count == 0) {
        if (!set_default(&config->listen[0], LISTEN_DEFAULT, error)) {
            return false;
        }
        config->listen_count = 1;
    }
    uint32_t cpus = eb_cpu_count("");
    if (config->loops == 0) {
        config->loops = eb_config_loops_default(cpus, &config->limits);
    }
    if (config->threads == 0) {
        config->threads = cpus < EB_CONFIG_THREADS_MAX ? cpus : EB_CONFIG_THREADS_MAX;
    }
    return true;
}

/* Settings that are of no use, or of less than their users may think, without others. */
static bool check_tls(const struct eb_config *config, struct eb_config_error *error)
{
    const char *what = NULL;
    if (!config->tls_cert != !config->tls_key) {
        what = config->tls_cert ? "--tls-cert needs --tls-key, its key"
                                : "--tls-key needs --tls-cert, its certificate";
    } else if (config->tls_client_ca && !config->tls_cert) {
        what = "--tls-client-ca needs --tls-cert and --tls-key: without TLS no client shows a "
               "certificate";
    } else if (config->tls_min_version != EB_TLS_1_2 && !config->tls_cert) {
        what = "--tls-min-version needs --tls-cert and --tls-key: without them there is no TLS";
    } else if (config->tls_client_verify != EB_TLS_CLIENT_REQUIRED && !config->tls_client_ca) {
        what = "--tls-client-verify needs --tls-client-ca: without it clients are not asked";
    }
    if (what) {
        snprintf(error->text, sizeof error->text, "%s", what);
    }
    return !what;
}

/* A budget that all loops share equally must give each of them its part. */
static bool check_budgets(const struct eb_config *config, struct eb_config_error *error)
{
    const struct eb_limits *limits = &config->limits;
    const struct {
        const char *budget_name;
        const char *part_name;
        uint64_t budget, limit, part, parts;
    } budgets[] = {
        {"receive-memory-bytes", "request-bytes-max", limits->receive_memory_bytes,
            limits->request_bytes_max, find_request_room(limits), LOOP_REQUESTS},
        {"answer-memory-bytes", "response-bytes-max", limits->answer_memory_bytes,
            limits->response_bytes_max, limits->response_bytes_max, LOOP_ANSWERS},
    };
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        uint64_t needed = config->loops * budgets[i].parts * budgets[i].part;
        if (budgets[i].budget < needed) {
            snprintf(error->text, sizeof error->text,
                "--%s %" PRIu64 ": %" PRIu32 " loops need %" PRIu64 ", %" PRIu64 " x %" PRIu64
                " each for --%s %" PRIu64 "; raise it, lower --%s or lower --loops",
                budgets[i].budget_name, budgets[i].budget, config->loops, needed, budgets[i].parts,
                budgets[i].part, budgets[i].part_name, budgets[i].limit, budgets[i].part_name);
            return false;
        }
    }
    return true;
}

/* From the highest layer to the lowest, because the file's path comes from those above it; what is
 * set stays set (eb_config_setting_apply). */
static enum eb_config_outcome read_layers(struct eb_config *config, int argument_count,
    char *const *arguments, char *const *environment, struct eb_config_error *error)
{
    bool print = false;
    enum eb_config_outcome outcome = read_flags(config, argument_count, arguments, &print, error);
    if (outcome != EB_CONFIG_RUN) {
        return outcome;
    }
    bool fine = read_environment(config, environment, error) &&
                (!config->config_file || eb_config_file_apply(config, error)) &&
                resolve(config, error) && check_budgets(config, error) && check_tls(config, error);
    if (fine && print) {
        return eb_config_print(config, stdout, error) ? EB_CONFIG_EXIT : EB_CONFIG_ERROR;
    }
    return fine ? EB_CONFIG_RUN : EB_CONFIG_ERROR;
}

enum eb_config_outcome eb_config_read(
    int argument_count, char *const *arguments, char *const *environment, struct eb_config *out)
{
    *out = (struct eb_config){0};
    eb_config_setting_apply_defaults(out);
    struct eb_config_error error;
    enum eb_config_outcome outcome =
        read_layers(out, argument_count, arguments, environment, &error);
    if (outcome == EB_CONFIG_ERROR) {
        eb_log(EB_LOG_ERROR, "bad_configuration", eb_log_text("reason", error.text));
    }
    return outcome;
}

void eb_config_deinit(struct eb_config *config)
{
    free(config->config_file);
    free(config->model_repository);
    free(config->admin_listen);
    free(config->http_listen);
    free(config->tls_cert);
    free(config->tls_key);
    free(config->tls_client_ca);
    free(config->auth_file);
    free(config->isa);
    free(config->prefetch);
    for (size_t i = 0; i < config->listen_count; i++) {
        free(config->listen[i]);
    }
    *config = (struct eb_config){0};
}

/* The addresses joined by commas, as they can be given. `out` has room for all there can be. */
static void join_listen(const struct eb_config *config, char *out)
{
    *out = '\0';
    for (size_t i = 0; i < config->listen_count; i++) {
        out = stpcpy(out, i ? "," : "");
        out = stpcpy(out, config->listen[i]);
    }
}

static void log_source(
    const struct eb_config *config, enum eb_config_source source, const char *listen)
{
    static const char *const names[] = {
        [EB_CONFIG_DEFAULT] = "default",
        [EB_CONFIG_FILE] = "file",
        [EB_CONFIG_ENVIRONMENT] = "environment",
        [EB_CONFIG_FLAG] = "flag",
    };
    struct eb_log_field fields[EB_CONFIG_SETTING_COUNT + 2] = {
        eb_log_text("source", names[source])};
    size_t count = 1;
    /* From the last to the first: so a long path stands behind all numbers, and hides none of them
     * where it fills the line. */
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
    char listen[EB_LISTEN_MAX * EB_ADDRESS_GIVEN_BYTES];
    join_listen(config, listen);
    for (int source = EB_CONFIG_DEFAULT; source <= EB_CONFIG_FLAG; source++) {
        log_source(config, (enum eb_config_source)source, listen);
    }
}
