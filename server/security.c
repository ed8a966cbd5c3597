#include "server/security.h"

#include "proto/list.h"
#include "server/auth_file.h"
#include "server/base/log.h"
#include "server/net/loop.h"
#include "server/rpc/auth_call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EXPIRES_SOON_DAYS 14 /* fewer days: each check of the certificate logs a warning */

struct eb_security {
    const struct eb_config *config;
    struct eb_tls *tls;
    struct eb_auth *auth;
    uint64_t generation; /* generation of the rules that were read last; 0 if none were */
    struct eb_file_list files[EB_SECURITY_KINDS];
};

/* The state that a loop changes to. The mail owns a hold of each of the two. */
struct security_mail {
    struct eb_mail mail;
    struct eb_loop *loop;
    struct eb_tls *tls;
    struct eb_auth *auth;
};

/* ---- reading ---- */

static void log_certificate(const struct eb_config *config, const struct eb_tls *tls)
{
    int64_t days = eb_tls_days_left(tls);
    bool is_soon = days < EXPIRES_SOON_DAYS;
    eb_log(is_soon ? EB_LOG_WARN : EB_LOG_INFO, is_soon ? "certificate_expires" : "certificate",
        eb_log_text("file", config->tls_cert), eb_log_number("days_left", days));
}

/* Notes the files of TLS with their stamps. Returns false with *failure set if out of memory. */
static bool note_tls_files(struct eb_security *security, struct eb_failure *failure)
{
    const struct eb_config *config = security->config;
    struct eb_file_list *files = &security->files[EB_SECURITY_TLS];
    eb_file_list_deinit(files);
    return (eb_file_list_add(files, config->tls_cert) && eb_file_list_add(files, config->tls_key) &&
               (!config->tls_client_ca || eb_file_list_add(files, config->tls_client_ca))) ||
           eb_failure_set(failure, "out of memory");
}

/* Returns NULL with *failure set if the files are not valid. */
static struct eb_tls *read_tls(struct eb_security *security, struct eb_failure *failure)
{
    const struct eb_config *config = security->config;
    if (!note_tls_files(security, failure)) {
        return NULL;
    }
    struct eb_tls_options options = {
        .certificate_file = config->tls_cert,
        .key_file = config->tls_key,
        .client_ca_file = config->tls_client_ca,
        .is_client_optional = config->tls_client_verify == EB_TLS_CLIENT_OPTIONAL,
        .is_1_3_only = config->tls_min_version == EB_TLS_1_3,
    };
    struct eb_tls *tls = eb_tls_open(&options, failure);
    if (tls) {
        eb_secret_check_file(config->tls_key);
        log_certificate(config, tls);
    }
    return tls;
}

/* Returns whether the file in use has `end: true` and this one does not. This one may then have
 * been read while it was being written. */
static bool has_lost_end(const struct eb_security *security, const struct eb_auth *auth)
{
    return security->auth && security->auth->has_end && !auth->has_end;
}

/* Returns whether a principal has a client_name although clients are not asked for certificates, so
 * that it could never be recognised. */
static bool is_any_unreachable(const struct eb_config *config, const struct eb_auth *auth)
{
    for (size_t i = 0; i < auth->count; i++) {
        if (auth->principals[i].client_name && !config->tls_client_ca) {
            return true;
        }
    }
    return false;
}

/* Returns NULL with *failure set if the file is not valid. */
static struct eb_auth *read_auth(struct eb_security *security, struct eb_failure *failure)
{
    const struct eb_config *config = security->config;
    struct eb_file_list *files = &security->files[EB_SECURITY_AUTH];
    eb_file_list_deinit(files);
    struct eb_auth *auth = eb_auth_file_read(config->auth_file, files, failure);
    if (auth && is_any_unreachable(config, auth)) {
        eb_auth_drop(auth);
        auth = NULL;
        eb_failure_set(
            failure, "%s: client_name requires tls_client_ca, which is not set", config->auth_file);
    }
    if (auth && has_lost_end(security, auth)) {
        eb_auth_drop(auth);
        auth = NULL;
        eb_failure_set(failure,
            "%s: the last line is not \"end: true\", which the file had before, so it may be "
            "incomplete; a file without that line is read only at the next start",
            config->auth_file);
    }
    if (!auth) {
        return NULL;
    }
    auth->generation = ++security->generation;
    eb_log(EB_LOG_INFO, "auth", eb_log_text("file", config->auth_file),
        eb_log_number("principals", (int64_t)auth->count));
    return auth;
}

/* ---- life ---- */

static bool has_tcp(const struct eb_config *config)
{
    bool has = false;
    for (size_t i = 0; i < config->listen_count; i++) {
        has |= strncmp(config->listen[i], "unix:", strlen("unix:")) != 0;
    }
    return has;
}

static bool read_all(struct eb_security *security)
{
    const struct eb_config *config = security->config;
    static const char file_hint[] = "correct the file, or name another one";
    struct eb_failure failure;
    if (config->tls_cert && !(security->tls = read_tls(security, &failure))) {
        eb_log_fail_start("tls_cert", failure.text, file_hint);
        return false;
    }
    if (config->auth_file && !(security->auth = read_auth(security, &failure))) {
        eb_log_fail_start("auth_file", failure.text, file_hint);
        return false;
    }
    if (security->auth && !security->tls && has_tcp(config)) {
        eb_log(EB_LOG_WARN, "tokens_in_clear",
            eb_log_text("reason", "bearer tokens are sent over TCP without TLS"),
            eb_log_text("remedy", "set tls_cert and tls_key, or let a proxy speak TLS"));
    }
    return true;
}

struct eb_security *eb_security_open(const struct eb_config *config)
{
    struct eb_security *security = calloc(1, sizeof *security);
    if (!security) {
        eb_log_fail_start("memory", strerror(ENOMEM), "free some memory");
        return NULL;
    }
    security->config = config;
    if (!read_all(security)) {
        eb_security_close(security);
        return NULL;
    }
    return security;
}

void eb_security_close(struct eb_security *security)
{
    if (security) {
        eb_tls_drop(security->tls);
        eb_auth_drop(security->auth);
        for (int i = 0; i < EB_SECURITY_KINDS; i++) {
            eb_file_list_deinit(&security->files[i]);
        }
        free(security);
    }
}

struct eb_tls *eb_security_tls(const struct eb_security *security)
{
    return security->tls;
}

struct eb_auth *eb_security_auth(const struct eb_security *security)
{
    return security->auth;
}

void eb_security_log_expiry(const struct eb_security *security)
{
    if (security->tls) {
        log_certificate(security->config, security->tls);
    }
}

/* ---- reading again ---- */

const char *eb_security_kind_name(enum eb_security_kind kind)
{
    return kind == EB_SECURITY_TLS ? "tls_cert" : "auth_file";
}

const char *eb_security_kind_file(const struct eb_security *security, enum eb_security_kind kind)
{
    const struct eb_config *config = security->config;
    return kind == EB_SECURITY_TLS ? config->tls_cert : config->auth_file;
}

/* Runs on the loop's thread. */
static void on_mail(struct eb_mail *mail)
{
    struct security_mail *change = EB_CONTAINER_OF(mail, struct security_mail, mail);
    eb_loop_set_tls(change->loop, change->tls);
    eb_auth_call_set_rules(change->loop, change->auth);
    eb_tls_drop(change->tls);
    eb_auth_drop(change->auth);
    free(change);
}

/* Hands what is in force to all loops. Returns false with *failure set if out of memory. */
static bool hand_security(const struct eb_security *security, struct eb_loop *const *loops,
    size_t count, struct eb_failure *failure)
{
    bool is_good = true;
    for (size_t i = 0; i < count; i++) {
        struct security_mail *change = malloc(sizeof *change);
        if (!change) {
            is_good = eb_failure_set(failure, "out of memory");
            continue;
        }
        *change = (struct security_mail){
            .mail = {.deliver = on_mail},
            .loop = loops[i],
            .tls = eb_tls_hold(security->tls),
            .auth = eb_auth_hold(security->auth),
        };
        eb_mailbox_post(eb_loop_mailbox(loops[i]), &change->mail);
    }
    return is_good;
}

void eb_security_log_kept(enum eb_security_kind kind, const struct eb_failure *failure)
{
    eb_log(EB_LOG_ERROR, "reload_failed", eb_log_text("what", eb_security_kind_name(kind)),
        eb_log_text("reason", failure->text),
        eb_log_text("remedy", "correct the file and, if watch is off, send SIGHUP again; until "
                              "then the previous content applies"));
}

static bool is_kind_used(const struct eb_security *security, enum eb_security_kind kind)
{
    return kind == EB_SECURITY_TLS ? !!security->tls : !!security->auth;
}

/* Reads files that are in use. If they are valid, they replace the former ones. */
static bool read_again(
    struct eb_security *security, enum eb_security_kind kind, struct eb_failure *failure)
{
    if (kind == EB_SECURITY_TLS) {
        struct eb_tls *tls = read_tls(security, failure);
        if (tls) {
            eb_tls_drop(security->tls);
            security->tls = tls;
        }
        return tls;
    }
    struct eb_auth *auth = read_auth(security, failure);
    if (auth) {
        eb_auth_drop(security->auth);
        security->auth = auth;
    }
    return auth;
}

static void log_reloaded(bool has_tls, bool has_auth)
{
    eb_log(EB_LOG_INFO, "reloaded", eb_log_number("tls", has_tls), eb_log_number("auth", has_auth));
}

bool eb_security_reload_kind(struct eb_security *security, enum eb_security_kind kind,
    struct eb_loop *const *loops, size_t count, struct eb_failure *failure)
{
    if (!is_kind_used(security, kind)) {
        return true;
    }
    if (!read_again(security, kind, failure) || !hand_security(security, loops, count, failure)) {
        return false;
    }
    log_reloaded(kind == EB_SECURITY_TLS, kind == EB_SECURITY_AUTH);
    return true;
}

bool eb_security_reload(struct eb_security *security, struct eb_loop *const *loops, size_t count)
{
    struct eb_failure failure;
    bool is_good = true;
    for (int i = 0; i < EB_SECURITY_KINDS; i++) {
        enum eb_security_kind kind = (enum eb_security_kind)i;
        if (is_kind_used(security, kind) && !read_again(security, kind, &failure)) {
            eb_security_log_kept(kind, &failure);
            is_good = false;
        }
    }
    if (!hand_security(security, loops, count, &failure)) {
        eb_log(EB_LOG_WARN, "reload_failed", eb_log_text("reason", failure.text),
            eb_log_text("remedy", "send SIGHUP again"));
        return false;
    }
    if (is_good) {
        log_reloaded(security->tls, security->auth);
    }
    return is_good;
}

struct eb_file_list eb_security_take_files(struct eb_security *security, enum eb_security_kind kind)
{
    struct eb_file_list files = security->files[kind];
    security->files[kind] = (struct eb_file_list){.files = NULL};
    return files;
}
