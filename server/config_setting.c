#include "server/config_setting.h"

#include "kernels/bag_schedule.h"
#include "proto/link/target.h"
#include "proto/net/address.h"
#include "server/kernel_choice.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct eb_config, member)
/* Bytes of the reason why a value is refused. */
#define WHY_BYTES 128
#define LIMIT(name, effect, fallback, min, max, what)                                              \
    {#name, EB_CONFIG_LIMIT, EB_CONFIG_##effect, AT(limits.name), fallback, min, max, "N", what,   \
        NULL},

static const char *const false_or_true[] = {"false", "true", NULL};
static const char *const client_verify_names[] = {"require", "optional", NULL};
static const char *const resident_readers_names[] = {"user", "group", NULL};
static const char *const resident_verify_names[] = {"sample", "full", NULL};
static const char *const resident_small_pages_names[] = {"refuse", "allow", NULL};
static const char *const tls_version_names[] = {"1.2", "1.3", NULL};

const struct eb_config_setting eb_config_settings[] = {
    {"model_repository", EB_CONFIG_TEXT, EB_CONFIG_START, AT(model_repository), 0, 1, PATH_MAX - 1,
        "DIR", "directory of the models, laid out as DIR/MODEL/VERSION/TABLE.npy; required", NULL},
    {"state_dir", EB_CONFIG_TEXT, EB_CONFIG_START, AT(state_dir), 0, 1, PATH_MAX - 1, "DIR",
        "directory for small files that should outlive the process, but not a reboot: with it, a "
        "version that kills the process twice while it loads is not loaded again, and another one "
        "is served; it must exist and be writable; default: none",
        NULL},
    {"part", EB_CONFIG_PART, EB_CONFIG_START, AT(part), 0, 1, EB_PART_CHOICE_BYTES - 1,
        "K/P|hostname/P",
        "makes this a part server, which loads only part K, from 0, of versions that embag split "
        "has divided into P parts; with hostname/P, K is the number at the end of the host's "
        "name, modulo P; other versions do not exist for it; default: none",
        NULL},
    {"route", EB_CONFIG_ROUTE, EB_CONFIG_START, AT(route), 0, 1, EB_CONFIG_ROUTE_BYTES - 1,
        "ADDRESSES",
        "makes this a router, which answers from versions in parts by asking the part servers at "
        "these addresses: dns:NAME:PORT, HOST:PORT[,HOST:PORT...] or unix:PATH; only tables that "
        "are placed everywhere are in its memory; part must not be set; default: none",
        NULL},
    {"route_tls_ca", EB_CONFIG_TEXT, EB_CONFIG_START, AT(route_tls_ca), 0, 1, PATH_MAX - 1, "FILE",
        "CA certificates, in PEM, that vouch for the part servers; with it a router speaks TLS to "
        "them; default: none",
        NULL},
    {"route_tls_cert", EB_CONFIG_TEXT, EB_CONFIG_START, AT(route_tls_cert), 0, 1, PATH_MAX - 1,
        "FILE",
        "certificate, in PEM, that a router shows the part servers; with it the router speaks TLS "
        "to them; default: none",
        NULL},
    {"route_tls_key", EB_CONFIG_TEXT, EB_CONFIG_START, AT(route_tls_key), 0, 1, PATH_MAX - 1,
        "FILE", "private key of route_tls_cert, in PEM without a password", NULL},
    {"route_token_file", EB_CONFIG_TEXT, EB_CONFIG_START, AT(route_token_file), 0, 1, PATH_MAX - 1,
        "FILE",
        "file whose only line a router sends the part servers as its bearer token; their auth_file "
        "must name it with router: true; default: none",
        NULL},
    {"listen", EB_CONFIG_LISTEN, EB_CONFIG_START, AT(listen), 0, 1, EB_ADDRESS_GIVEN_BYTES - 1,
        "ADDRESS",
        "address to serve gRPC on: HOST:PORT, [V6]:PORT or unix:PATH; separate several with "
        "commas or repeat the flag; sockets that systemd passes under the name embag-data "
        "replace them; without auth_file or tls_client_ca callers are not authenticated, so the "
        "default is 127.0.0.1:8600; 0.0.0.0:8600 opens it to the network",
        NULL},
    {"admin_listen", EB_CONFIG_SOCKET, EB_CONFIG_START, AT(admin_listen), 0, 1,
        EB_ADDRESS_GIVEN_BYTES - 1, "unix:PATH",
        "unix socket that serves embag.v1.ModelAdmin in addition to everything else; only its "
        "owner may connect (mode 0600); a socket that systemd passes as embag-admin replaces it; "
        "default: none",
        NULL},
    {"http_listen", EB_CONFIG_PORT, EB_CONFIG_START, AT(http_listen), 0, 1,
        EB_ADDRESS_GIVEN_BYTES - 1, "ADDRESS|none",
        "address of the HTTP port for operators: HOST:PORT, [V6]:PORT or none; it serves the "
        "status page, /metrics, /healthz, /readyz and /version; anyone who can connect can read "
        "them, so the default is 127.0.0.1:8601; none disables the port",
        NULL},
    {"admin_on_data_port", EB_CONFIG_CHOICE, EB_CONFIG_START, AT(admin_on_data_port), 0, 0, 0,
        "false|true",
        "whether ModelAdmin, which loads, unloads and serves versions, is also available on the "
        "addresses of listen; over TCP it is then open to all callers or, with auth_file, to "
        "those that the file marks as admins; default: false",
        false_or_true},
    {"tls_cert", EB_CONFIG_TEXT, EB_CONFIG_START, AT(tls_cert), 0, 1, PATH_MAX - 1, "FILE",
        "this server's certificate and the chain that leads to a root, in PEM; with it and "
        "tls_key all TCP addresses of listen speak only TLS, and unix sockets stay unencrypted; it "
        "is read again when it changes; default: none",
        NULL},
    {"tls_key", EB_CONFIG_TEXT, EB_CONFIG_START, AT(tls_key), 0, 1, PATH_MAX - 1, "FILE",
        "private key of tls_cert, in PEM without a password; it is read again when it changes",
        NULL},
    {"tls_client_ca", EB_CONFIG_TEXT, EB_CONFIG_START, AT(tls_client_ca), 0, 1, PATH_MAX - 1,
        "FILE",
        "CA certificates, in PEM, that client certificates are verified with (mutual TLS); "
        "they are read again when they change; default: none, clients are not asked for a "
        "certificate",
        NULL},
    {"tls_client_verify", EB_CONFIG_CHOICE, EB_CONFIG_START, AT(tls_client_verify), 0, 0, 0,
        "require|optional",
        "whether every client must present a certificate that tls_client_ca vouches for; require "
        "(default): yes; optional: clients without a certificate are served too",
        client_verify_names},
    {"tls_min_version", EB_CONFIG_CHOICE, EB_CONFIG_START, AT(tls_min_version), 0, 0, 0, "1.2|1.3",
        "lowest TLS version that is accepted; default: 1.2", tls_version_names},
    {"auth_file", EB_CONFIG_TEXT, EB_CONFIG_START, AT(auth_file), 0, 1, PATH_MAX - 1, "FILE",
        "YAML file that lists who may call over TCP (by bearer token or client certificate) and "
        "what they may use (which models, ModelAdmin); it is read again when it changes; default: "
        "none, everyone may look up all models",
        NULL},
    {"config", EB_CONFIG_TEXT, EB_CONFIG_START, AT(config_file), 0, 1, PATH_MAX - 1, "FILE",
        "YAML file of settings, at most 64 KiB; it cannot set this setting itself", NULL},
    {"watch_settings", EB_CONFIG_CHOICE, EB_CONFIG_START, AT(watch_settings), 0, 0, 0, "false|true",
        "whether the file of config is read again when it changes, as it is on SIGHUP; default: "
        "false",
        false_or_true},
    {"loops", EB_CONFIG_COUNT, EB_CONFIG_START, AT(loops), 0, 1, EB_CONFIG_LOOPS_MAX, "N",
        "event loops, one thread each; default: one per four CPUs, 1 to 16", NULL},
    {"threads", EB_CONFIG_COUNT, EB_CONFIG_START, AT(threads), 0, 1, EB_CONFIG_THREADS_MAX, "N",
        "executor threads; default: one per CPU that affinity and cgroup quota grant", NULL},
    {"isa", EB_CONFIG_TEXT, EB_CONFIG_START, AT(isa), 0, 1, 31, "NAME",
        "instruction set to compute with, such as avx2; default: the fastest that this machine "
        "can run",
        NULL},
    {"prefetch", EB_CONFIG_PREFETCH, EB_CONFIG_START, AT(prefetch), 0, 1,
        EB_BAG_SCHEDULE_TEXT_BYTES - 1, "auto|off|FAR:NEAR:l1|l2",
        "how many rows ahead table rows are prefetched into the CPU caches; auto (default): "
        "measured at start; off: no prefetch; FAR:NEAR:l1|l2: the first cache line of a row is "
        "prefetched into L2 FAR rows ahead (FARw: all its cache lines), and all its cache lines "
        "into L1 or L2 NEAR rows ahead; FAR and NEAR are 0..4096, and 0 turns that step off",
        NULL},
    {"log_level", EB_CONFIG_LEVEL, EB_CONFIG_LIVE, AT(log_level), 0, 0, 0, "debug|info|warn|error",
        "lowest level that is logged; default: info", NULL},
    {"log_format", EB_CONFIG_CHOICE, EB_CONFIG_LIVE, AT(log_format), 0, 0, 0, "logfmt|json",
        "form of each log line; logfmt (default): key=value pairs; json: one JSON object with the "
        "same keys",
        eb_log_format_names},
    {"access_log", EB_CONFIG_CHOICE, EB_CONFIG_LIVE, AT(access_log), 0, 0, 0,
        "errors|off|sampled|all",
        "which requests are logged as event=request; errors (default): those that fail; off: "
        "none; sampled: those that fail, one in access_log_sample of the others, and those whose "
        "traceparent has the sampled flag; all: every request; access_log_per_s_max bounds the "
        "log lines per second; no request is logged if log_level is warn or error",
        eb_access_log_mode_names},
    {"huge_pages", EB_CONFIG_CHOICE, EB_CONFIG_START, AT(huge_pages), 0, 0, 0, "2m|1g|off",
        "size of the pages that hold tables; 2m (default): 2 MiB; 1g: 1 GiB, from the system's "
        "pool; off: small pages; if the system provides too few, the server starts anyway and "
        "logs how many it got",
        eb_page_size_names},
    {"numa", EB_CONFIG_CHOICE, EB_CONFIG_START, AT(numa), 0, 0, 0, "interleave|local|off",
        "memory nodes that hold tables, on a machine with several; interleave (default): all "
        "nodes in turn; local: the node of the thread that loads a table; off: the process's own "
        "policy (numactl)",
        eb_numa_names},
    {"watch", EB_CONFIG_CHOICE, EB_CONFIG_LIVE, AT(watch), 0, 0, 0, "auto|poll|off",
        "how new versions and models, and changes of certificates and auth_file, are noticed; auto "
        "(default): at once, and by a scan every watch_poll_ms; poll: only by that scan; off: only "
        "when a command, or for certificates and auth_file SIGHUP, asks for them",
        eb_manager_watch_names},
    {"resident_dir", EB_CONFIG_TEXT, EB_CONFIG_START, AT(resident_dir), 0, 1, PATH_MAX - 1, "DIR",
        "directory in a tmpfs, or a hugetlbfs of 2 MiB pages, that keeps tables in memory while "
        "no server runs, so that a restart does not load them again; default: none",
        NULL},
    {"resident_readers", EB_CONFIG_CHOICE, EB_CONFIG_START, AT(resident_readers), 0, 0, 0,
        "user|group",
        "who may read the files in resident_dir; user (default): the server's user; group: its "
        "group too",
        resident_readers_names},
    {"resident_verify", EB_CONFIG_CHOICE, EB_CONFIG_START, AT(resident_verify), 0, 0, 0,
        "sample|full",
        "how much of a table in resident_dir is compared with its checksums before it is served; "
        "sample (default): a sample that differs from start to start; full: all rows",
        resident_verify_names},
    {"resident_small_pages", EB_CONFIG_CHOICE, EB_CONFIG_START, AT(resident_small_pages), 0, 0, 0,
        "refuse|allow",
        "what happens to a table whose file in resident_dir would not be in pages of 2 MiB; "
        "refuse (default): it is kept in ordinary memory, where lookups are faster, and is loaded "
        "again at a restart; allow: it is kept in the file",
        resident_small_pages_names},
    EB_LIMIT_LIST(LIMIT)};

static_assert(sizeof eb_config_settings / sizeof eb_config_settings[0] == EB_CONFIG_SETTING_COUNT,
    "EB_CONFIG_GENERAL_COUNT counts the settings that are no limits");

#define IN_RANGE(name, effect, fallback, min, max, what)                                           \
    static_assert((fallback) >= (min) && (fallback) <= (max), #name);
EB_LIMIT_LIST(IN_RANGE)

/* Choices are stored as 32-bit numbers. */
static_assert(sizeof(enum eb_config_truth) == sizeof(uint32_t), "an enum has 32 bits");
static_assert(sizeof(enum eb_numa) == sizeof(uint32_t), "an enum has 32 bits");

/* A value that is about to be set. */
struct attempt {
    struct eb_config *config;
    const struct eb_config_setting *setting;
    enum eb_config_source source;
    const char *text;
    struct eb_failure *failure;
};

/* The spelling of a setting's name, by source. */
static const struct {
    const char *prefix;
    bool dashes;
    bool capitals;
} spellings[] = {
    [EB_CONFIG_DEFAULT] = {"", false, false},
    [EB_CONFIG_FILE] = {"", false, false},
    [EB_CONFIG_ENVIRONMENT] = {"EMBAG_", false, true},
    [EB_CONFIG_FLAG] = {"--", true, false},
};

void eb_config_setting_name(const struct eb_config_setting *setting, enum eb_config_source source,
    char out[EB_CONFIG_NAME_BYTES])
{
    int length = snprintf(out, EB_CONFIG_NAME_BYTES, "%s", spellings[source].prefix);
    const char *name = setting->name;
    for (; *name && length < EB_CONFIG_NAME_BYTES - 1; name++) {
        bool dash = *name == '_' && spellings[source].dashes;
        int letter = spellings[source].capitals ? toupper((unsigned char)*name) : *name;
        out[length++] = dash ? '-' : (char)letter;
    }
    assert(*name == '\0');
    out[length] = '\0';
}

const struct eb_config_setting *eb_config_setting_find(
    enum eb_config_source source, const char *name, size_t name_bytes)
{
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        char spelled[EB_CONFIG_NAME_BYTES];
        eb_config_setting_name(&eb_config_settings[i], source, spelled);
        if (strlen(spelled) == name_bytes && memcmp(spelled, name, name_bytes) == 0) {
            return &eb_config_settings[i];
        }
    }
    return NULL;
}

const char *eb_config_setting_unit(const struct eb_config_setting *setting)
{
    static const char *const units[] = {"_bytes", "_ms", "_us"};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strstr(setting->name, units[i])) {
            return units[i] + 1;
        }
    }
    return "";
}

/* Sets *failure. Always returns false. */
static bool refuse_setting(const struct attempt *attempt, const char *why)
{
    const struct eb_config_setting *setting = attempt->setting;
    char name[EB_CONFIG_NAME_BYTES];
    eb_config_setting_name(setting, attempt->source, name);
    bool file = attempt->source == EB_CONFIG_FILE;
    const char *text = *attempt->text ? attempt->text : "''";
    const char *between = file ? ": " : attempt->source == EB_CONFIG_ENVIRONMENT ? "=" : " ";
    /* Leave out what happens at the limit. */
    int what_bytes = (int)strcspn(setting->what, ";");
    return eb_failure_set(attempt->failure, "%.200s%s%s%s%.200s: %s (%.*s)",
        file ? attempt->config->config_file : "", file ? ": " : "", name, between, text, why,
        what_bytes, setting->what);
}

/* Returns whether no higher source has set the value. If so, notes the attempt's source. */
static bool take_precedence(const struct attempt *attempt)
{
    uint8_t *source = &attempt->config->sources[attempt->setting - eb_config_settings];
    if (attempt->source < *source) {
        return false;
    }
    *source = (uint8_t)attempt->source;
    return true;
}

static bool apply_text(const struct attempt *attempt)
{
    if (!*attempt->text) {
        return refuse_setting(attempt, "is empty");
    }
    if (strlen(attempt->text) > attempt->setting->max) {
        char why[WHY_BYTES];
        snprintf(why, sizeof why, "is longer than %" PRIu64 " bytes", attempt->setting->max);
        return refuse_setting(attempt, why);
    }
    char *copy = strdup(attempt->text);
    if (!copy) {
        return refuse_setting(attempt, "out of memory");
    }
    if (take_precedence(attempt)) {
        char **member = (char **)(void *)((char *)attempt->config + attempt->setting->offset);
        free(*member);
        *member = copy;
    } else {
        free(copy);
    }
    return true;
}

static bool apply_socket(const struct attempt *attempt)
{
    bool is_unix = strncmp(attempt->text, "unix:", strlen("unix:")) == 0;
    const char *why = is_unix ? eb_address_error(attempt->text) : "expected unix:PATH";
    return why ? refuse_setting(attempt, why) : apply_text(attempt);
}

static bool apply_port(const struct attempt *attempt)
{
    const char *text = attempt->text;
    bool is_port = !eb_address_error(text) && strncmp(text, "unix:", strlen("unix:")) != 0;
    if (!is_port && strcmp(text, EB_CONFIG_NONE) != 0) {
        return refuse_setting(
            attempt, "expected HOST:PORT or [V6]:PORT with a port of 0..65535, or none");
    }
    return apply_text(attempt);
}

static bool apply_prefetch(const struct attempt *attempt)
{
    struct eb_failure why;
    return eb_kernel_choice_check_prefetch(attempt->text, &why) ? apply_text(attempt)
                                                                : refuse_setting(attempt, why.text);
}

static bool apply_part(const struct attempt *attempt)
{
    struct eb_failure why;
    struct eb_part_choice choice;
    return eb_part_choice_read(attempt->text, &choice, &why) ? apply_text(attempt)
                                                             : refuse_setting(attempt, why.text);
}

static bool apply_route(const struct attempt *attempt)
{
    struct eb_error why;
    struct eb_targets targets;
    if (!eb_targets_parse(attempt->text, &targets, &why)) {
        return refuse_setting(attempt, why.text);
    }
    eb_targets_free(&targets);
    return apply_text(attempt);
}

static void clear_listen(struct eb_config *config)
{
    while (config->listen_count > 0) {
        free(config->listen[--config->listen_count]);
    }
}

/* Refuses one address of the attempt's text, and names it unless it is empty. Always returns
 * false. */
static bool refuse_address(const struct attempt *attempt, const char *address, const char *why)
{
    struct attempt one = *attempt;
    one.text = *address ? address : attempt->text;
    return refuse_setting(&one, why);
}

/* Adds an address. Takes it: the config keeps it, or it is freed. */
static bool add_address(const struct attempt *attempt, char *address)
{
    struct eb_config *config = attempt->config;
    const char *why = *address         ? eb_address_error(address)
                      : *attempt->text ? "an address is empty"
                                       : "is empty";
    uint8_t source_before = config->sources[attempt->setting - eb_config_settings];
    if (why) {
        refuse_address(attempt, address, why);
        free(address);
        return false;
    }
    if (!take_precedence(attempt)) {
        free(address);
        return true;
    }
    if (source_before < attempt->source) {
        clear_listen(config);
    }
    if (config->listen_count == EB_LISTEN_MAX) {
        free(address);
        return refuse_setting(attempt, "at most 16 addresses are allowed");
    }
    config->listen[config->listen_count++] = address;
    return true;
}

static bool apply_listen(const struct attempt *attempt)
{
    const char *rest = attempt->text;
    do {
        size_t length = strcspn(rest, ",");
        char *address = strndup(rest, length);
        if (!address) {
            return refuse_setting(attempt, "out of memory");
        }
        if (!add_address(attempt, address)) {
            return false;
        }
        rest += length;
    } while (*rest++ == ',');
    return true;
}

static bool apply_level(const struct attempt *attempt)
{
    int level = eb_log_level_parse(attempt->text);
    if (level < 0) {
        return refuse_setting(attempt, "not one of debug|info|warn|error");
    }
    if (take_precedence(attempt)) {
        attempt->config->log_level = (enum eb_log_level)level;
    }
    return true;
}

static void set_number(
    struct eb_config *config, const struct eb_config_setting *setting, uint64_t value)
{
    char *member = (char *)config + setting->offset;
    if (setting->kind == EB_CONFIG_LIMIT) {
        memcpy(member, &value, sizeof value);
        return;
    }
    uint32_t count = (uint32_t)value;
    memcpy(member, &count, sizeof count);
}

static bool apply_choice(const struct attempt *attempt)
{
    const struct eb_config_setting *setting = attempt->setting;
    uint32_t choice = 0;
    while (setting->choices[choice] && strcmp(setting->choices[choice], attempt->text) != 0) {
        choice++;
    }
    if (!setting->choices[choice]) {
        char why[WHY_BYTES];
        snprintf(why, sizeof why, "not one of %s", setting->value);
        return refuse_setting(attempt, why);
    }
    if (take_precedence(attempt)) {
        set_number(attempt->config, setting, choice);
    }
    return true;
}

/* Returns log2 of the factor that a suffix means, or -1 if it is unknown. */
static int suffix_shift(const char *suffix)
{
    static const char *const suffixes[] = {"", "KiB", "MiB", "GiB"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(suffix, suffixes[i]) == 0) {
            return 10 * i;
        }
    }
    return -1;
}

/* Parses a number. Returns false if `text` is not one. A number that is too large becomes
 * UINT64_MAX. */
static bool parse_number(const char *text, bool is_bytes, uint64_t *value)
{
    if (!isdigit((unsigned char)*text)) {
        return false;
    }
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    int shift = is_bytes || !*end ? suffix_shift(end) : -1;
    if (shift < 0) {
        return false;
    }
    *value = errno == ERANGE || *value > UINT64_MAX >> shift ? UINT64_MAX : *value << shift;
    return true;
}

static bool apply_number(const struct attempt *attempt)
{
    const struct eb_config_setting *setting = attempt->setting;
    const char *unit = eb_config_setting_unit(setting);
    bool is_bytes = strcmp(unit, "bytes") == 0;
    uint64_t value;
    bool is_number = parse_number(attempt->text, is_bytes, &value);
    if (!is_number || value < setting->min || value > setting->max) {
        char why[WHY_BYTES];
        snprintf(why, sizeof why, "not %sin %" PRIu64 "..%" PRIu64 "%s%s%s",
            is_number ? "" : "a whole number ", setting->min, setting->max, *unit ? " " : "", unit,
            is_number || !is_bytes ? "" : "; only KiB, MiB or GiB may follow it");
        return refuse_setting(attempt, why);
    }
    if (take_precedence(attempt)) {
        set_number(attempt->config, setting, value);
    }
    return true;
}

bool eb_config_setting_apply(struct eb_config *config, const struct eb_config_setting *setting,
    enum eb_config_source source, const char *text, struct eb_failure *failure)
{
    struct attempt attempt = {config, setting, source, text, failure};
    switch (setting->kind) {
    case EB_CONFIG_TEXT: return apply_text(&attempt);
    case EB_CONFIG_SOCKET: return apply_socket(&attempt);
    case EB_CONFIG_PORT: return apply_port(&attempt);
    case EB_CONFIG_PREFETCH: return apply_prefetch(&attempt);
    case EB_CONFIG_PART: return apply_part(&attempt);
    case EB_CONFIG_ROUTE: return apply_route(&attempt);
    case EB_CONFIG_LISTEN: return apply_listen(&attempt);
    case EB_CONFIG_LEVEL: return apply_level(&attempt);
    case EB_CONFIG_CHOICE: return apply_choice(&attempt);
    case EB_CONFIG_COUNT:
    case EB_CONFIG_LIMIT: break;
    }
    return apply_number(&attempt);
}

void eb_config_setting_apply_defaults(struct eb_config *config)
{
    config->log_level = EB_LOG_INFO;
    for (size_t i = 0; i < EB_CONFIG_SETTING_COUNT; i++) {
        if (eb_config_settings[i].kind == EB_CONFIG_LIMIT) {
            set_number(config, &eb_config_settings[i], eb_config_settings[i].fallback);
        }
    }
}

static uint64_t number_of(const struct eb_config *config, const struct eb_config_setting *setting)
{
    const char *member = (const char *)config + setting->offset;
    uint64_t limit;
    uint32_t count;
    if (setting->kind == EB_CONFIG_LIMIT) {
        memcpy(&limit, member, sizeof limit);
        return limit;
    }
    memcpy(&count, member, sizeof count);
    return count;
}

void eb_config_setting_copy(
    struct eb_config *to, const struct eb_config *from, const struct eb_config_setting *setting)
{
    size_t index = (size_t)(setting - eb_config_settings);
    assert(setting->effect == EB_CONFIG_LIVE);
    if (setting->kind == EB_CONFIG_LEVEL) {
        to->log_level = from->log_level;
    } else {
        set_number(to, setting, number_of(from, setting));
    }
    to->sources[index] = from->sources[index];
}

const char *eb_config_source_name(enum eb_config_source source)
{
    static const char *const names[] = {
        [EB_CONFIG_DEFAULT] = "default",
        [EB_CONFIG_FILE] = "file",
        [EB_CONFIG_ENVIRONMENT] = "environment",
        [EB_CONFIG_FLAG] = "flag",
    };
    return names[source];
}

void eb_config_setting_format(const struct eb_config *config,
    const struct eb_config_setting *setting, char out[EB_CONFIG_VALUE_BYTES])
{
    struct eb_log_field field = eb_config_setting_field(config, setting);
    char *end = out;
    *out = '\0';
    if (setting->kind == EB_CONFIG_LISTEN) {
        for (size_t i = 0; i < config->listen_count; i++) {
            end = stpcpy(end, i ? "," : "");
            end = stpcpy(end, config->listen[i]);
        }
    } else if (field.text) {
        stpcpy(out, field.text);
    } else if (field.key) {
        snprintf(out, EB_CONFIG_VALUE_BYTES, "%" PRId64, field.number);
    }
}

bool eb_config_setting_equals(const struct eb_config *one, const struct eb_config *other,
    const struct eb_config_setting *setting)
{
    size_t index = (size_t)(setting - eb_config_settings);
    char value[EB_CONFIG_VALUE_BYTES];
    char other_value[EB_CONFIG_VALUE_BYTES];
    if (setting->kind == EB_CONFIG_COUNT && one->sources[index] == EB_CONFIG_DEFAULT &&
        other->sources[index] == EB_CONFIG_DEFAULT) {
        return true;
    }
    eb_config_setting_format(one, setting, value);
    eb_config_setting_format(other, setting, other_value);
    return strcmp(value, other_value) == 0;
}

struct eb_log_field eb_config_setting_field(
    const struct eb_config *config, const struct eb_config_setting *setting)
{
    const char *text = NULL;
    switch (setting->kind) {
    case EB_CONFIG_TEXT:
    case EB_CONFIG_SOCKET:
    case EB_CONFIG_PORT:
    case EB_CONFIG_PART:
    case EB_CONFIG_ROUTE:
        memcpy(&text, (const char *)config + setting->offset, sizeof text);
        return text ? eb_log_text(setting->name, text) : (struct eb_log_field){0};
    case EB_CONFIG_PREFETCH:
        text = config->prefetch ? config->prefetch : EB_KERNEL_CHOICE_AUTO;
        return eb_log_text(setting->name, text);
    case EB_CONFIG_LISTEN: return (struct eb_log_field){0};
    case EB_CONFIG_LEVEL:
        text = eb_log_level_name(config->log_level);
        return eb_log_text(setting->name, text);
    case EB_CONFIG_CHOICE:
        text = setting->choices[number_of(config, setting)];
        return eb_log_text(setting->name, text);
    case EB_CONFIG_COUNT:
    case EB_CONFIG_LIMIT: break;
    }
    return eb_log_number(setting->name, (int64_t)number_of(config, setting));
}

void eb_config_deinit(struct eb_config *config)
{
    free(config->config_file);
    free(config->model_repository);
    free(config->resident_dir);
    free(config->state_dir);
    free(config->part);
    free(config->route);
    free(config->route_tls_ca);
    free(config->route_tls_cert);
    free(config->route_tls_key);
    free(config->route_token_file);
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
