#include "proto/link/credentials.h"

#include "proto/memory.h"
#include "proto/net/tls_stream.h"

#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char scheme[] = EB_GRPC_BEARER;

/* Sets *error to a text that names the file, what is wrong with it, and OpenSSL's reason. Always
 * returns false. */
static bool refuse_credential(struct eb_error *error, const char *file, const char *what)
{
    unsigned long code = ERR_peek_error();
    const char *reason =
        ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code)) : ERR_reason_error_string(code);
    eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "%s: %s%s%s", file, what, reason ? ": " : "",
        reason ? reason : "");
    ERR_clear_error();
    return false;
}

/* ---- the token ---- */

/* Reads the file's only line and writes the scheme and the line to `header`. */
static bool read_credential_line(FILE *file, const char *path, char *header, struct eb_error *error)
{
    size_t scheme_bytes = sizeof scheme - 1;
    char *token = header + scheme_bytes;
    size_t count = fread(token, 1, EB_GRPC_AUTHORIZATION_BYTES - 1 - scheme_bytes, file);
    if (ferror(file) != 0 || fgetc(file) != EOF) {
        static_assert(EB_GRPC_TOKEN_BYTES_MAX == 256, "the error's text has the number");
        return refuse_credential(
            error, path, "is not a token file: a token has at most 256 characters");
    }
    while (count > 0 && (token[count - 1] == '\n' || token[count - 1] == '\r')) {
        count--;
    }
    token[count] = '\0';
    for (size_t i = 0; i < count; i++) {
        if (token[i] <= ' ' || token[i] > '~') {
            return refuse_credential(
                error, path, "is not a token: expected one line of visible characters");
        }
    }
    memcpy(header, scheme, scheme_bytes);
    return count > 0 || refuse_credential(error, path, "is empty");
}

static bool read_credential_token(const char *path, char *header, struct eb_error *error)
{
    if (!path) {
        return true;
    }
    FILE *file = fopen(path, "re");
    if (!file) {
        int code = errno;
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "%s: cannot be read as a token file: %s",
            path, strerror(code));
        return false;
    }
    setbuf(file, NULL); /* Leaves no copy of the secret in a buffer. */
    bool is_good = read_credential_line(file, path, header, error);
    (void)fclose(file);
    return is_good;
}

/* ---- TLS ---- */

static bool wants_tls(const struct eb_access *access)
{
    return access->tls || access->tls_ca || access->tls_cert || access->tls_key ||
           access->tls_server_name;
}

/* Gives no password: keys with a password are not supported. */
static int on_credential_password(char *out, int out_bytes, int is_writing, void *context)
{
    (void)out;
    (void)out_bytes;
    (void)is_writing;
    (void)context;
    return 0;
}

static bool set_credential_rules(SSL_CTX *tls)
{
    static const unsigned char protocols[] = {2, 'h', '2'};
    SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_default_passwd_cb(tls, on_credential_password);
    SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    return SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_alpn_protos(tls, protocols, sizeof protocols) == 0;
}

static bool load_files(SSL_CTX *tls, const struct eb_access *access, struct eb_error *error)
{
    if (!access->tls_ca && SSL_CTX_set_default_verify_paths(tls) != 1) {
        return refuse_credential(error, "TLS", "the system's certificates cannot be read");
    }
    if (access->tls_ca && SSL_CTX_load_verify_file(tls, access->tls_ca) != 1) {
        return refuse_credential(error, access->tls_ca, "cannot be read as certificates in PEM");
    }
    if (!access->tls_cert) {
        return true;
    }
    if (SSL_CTX_use_certificate_chain_file(tls, access->tls_cert) != 1) {
        return refuse_credential(error, access->tls_cert, "cannot be read as certificates in PEM");
    }
    return SSL_CTX_use_PrivateKey_file(tls, access->tls_key, SSL_FILETYPE_PEM) == 1 ||
           refuse_credential(error, access->tls_key,
               "cannot be used as the certificate's key, in PEM and without a password");
}

static bool has_unix(const struct eb_targets *targets)
{
    bool has = false;
    for (uint32_t i = 0; i < targets->count; i++) {
        has = has || targets->items[i].endpoint.is_unix;
    }
    return has;
}

static bool check_sense(
    const struct eb_access *access, const struct eb_targets *targets, struct eb_error *error)
{
    const char *what = NULL;
    if (has_unix(targets)) {
        what = "TLS is not used on unix sockets: leave the TLS options out";
    } else if ((!access->tls_cert) != (!access->tls_key)) {
        what = "a client certificate needs its key: give both or neither";
    } else if (access->tls_server_name &&
               strlen(access->tls_server_name) >= EB_ENDPOINT_HOST_BYTES) {
        what = "tls_server_name is too long";
    }
    if (what) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT, "%s", what);
    }
    return !what;
}

/* Sets `tls` and `server_name`. If that fails, `tls` may be set all the same. */
static bool open_credential_tls(struct eb_credentials *credentials, const struct eb_access *access,
    const struct eb_targets *targets, struct eb_error *error)
{
    if (!wants_tls(access)) {
        return true;
    }
    if (!check_sense(access, targets, error)) {
        return false;
    }
    if (access->tls_server_name) {
        (void)strcpy(credentials->server_name, access->tls_server_name);
    }
    credentials->tls = SSL_CTX_new(TLS_client_method());
    if (!credentials->tls || !set_credential_rules(credentials->tls)) {
        return refuse_credential(error, "TLS", "OpenSSL cannot be set up");
    }
    return load_files(credentials->tls, access, error);
}

static const struct eb_tls_side client_side = {
    .idle_row_max = 32,
    .idle_max = 100,
    .idle_price_bytes = 65536,
    .idle_reason = "TLS: the server sends too many records without data (KeyUpdates and the like)",
    .ended_reason = "closed by the server",
    .no_memory_reason = "out of memory for data to send",
};

struct eb_tls_stream *eb_credentials_start_tls(
    const struct eb_credentials *credentials, const char *host)
{
    char name[EB_ENDPOINT_HOST_BYTES];
    int size = snprintf(
        name, sizeof name, "%s", credentials->server_name[0] ? credentials->server_name : host);
    assert(size >= 0 && (size_t)size < sizeof name);
    if (size > 1 && name[size - 1] == '.') {
        name[size - 1] = '\0';
    }
    return eb_tls_stream_create(&client_side, credentials->tls, name, &eb_memory_heap);
}

/* ---- token and TLS together ---- */

/* Refuses to send a token in clear to another machine: anybody on the way could read and use it. */
static bool check_way(
    const struct eb_access *access, const struct eb_targets *targets, struct eb_error *error)
{
    if (!access->token_file || wants_tls(access)) {
        return true;
    }
    for (uint32_t i = 0; i < targets->count; i++) {
        const struct eb_endpoint *endpoint = &targets->items[i].endpoint;
        if (!eb_endpoint_is_local(endpoint)) {
            eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
                "refusing to send a token to \"%s\" unencrypted: use TLS (tls or tls_ca), a "
                "loopback address or a unix socket",
                endpoint->host);
            return false;
        }
    }
    return true;
}

/* Adds the files to the list with the stamps that they have before they are read. Keeps those of
 * TLS in the credentials too. */
static bool note_files(struct eb_credentials *credentials, const struct eb_access *access,
    struct eb_file_list *files, struct eb_error *error)
{
    const char *const paths[EB_CREDENTIALS_TLS_FILES + 1] = {
        access->tls_ca, access->tls_cert, access->tls_key, access->token_file};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (paths[i] && !eb_file_list_add(files, paths[i])) {
            eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for a client");
            return false;
        }
        if (paths[i] && i < EB_CREDENTIALS_TLS_FILES) {
            credentials->tls_stamps[i] = files->files[files->count - 1].stamp;
        }
    }
    return true;
}

/* Returns whether all of the files are regular ones. Opening another kind again, such as a FIFO,
 * could block for ever. A file that is missing passes: reading it fails, and gives the reason. */
static bool are_regular(const struct eb_file_list *files, struct eb_error *error)
{
    struct stat status;
    for (size_t i = 0; i < files->count; i++) {
        const char *path = files->files[i].path;
        if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
            return refuse_credential(error, path, "is not a regular file");
        }
    }
    return true;
}

bool eb_credentials_open(struct eb_credentials *credentials, const struct eb_access *access,
    const struct eb_targets *targets, struct eb_file_list *files, struct eb_error *error)
{
    *credentials = (struct eb_credentials){.tls = NULL};
    ERR_clear_error(); /* Drops errors that the caller has left, so that they are not reported as
                          ours. */
    if (note_files(credentials, access, files, error) && check_way(access, targets, error) &&
        open_credential_tls(credentials, access, targets, error) &&
        read_credential_token(access->token_file, credentials->authorization, error)) {
        return true;
    }
    eb_credentials_close(credentials);
    return false;
}

void eb_credentials_reopen(struct eb_credentials *fresh, const struct eb_access *access,
    const struct eb_targets *targets, struct eb_file_list *files)
{
    struct eb_error error = {.status = EB_STATUS_OK};
    *fresh = (struct eb_credentials){.tls = NULL};
    ERR_clear_error();
    if (!note_files(fresh, access, files, &error)) {
        eb_file_list_deinit(files);
        (void)strcpy(fresh->stale_reason, error.text);
        return;
    }
    if (!are_regular(files, &error)) {
        (void)strcpy(fresh->stale_reason, error.text);
        return;
    }
    if (!read_credential_token(access->token_file, fresh->authorization, &error)) {
        explicit_bzero(fresh->authorization, sizeof fresh->authorization);
    }
    if (!open_credential_tls(fresh, access, targets, &error)) {
        SSL_CTX_free(fresh->tls);
        fresh->tls = NULL;
    }
    if (error.status != EB_STATUS_OK) {
        static_assert(sizeof fresh->stale_reason == sizeof error.text, "it is copied");
        (void)strcpy(fresh->stale_reason, error.text);
    }
}

/* Returns whether the files of TLS are the same, and have not changed. */
static bool has_same_tls(
    const struct eb_credentials *credentials, const struct eb_credentials *fresh)
{
    bool is_same = true;
    for (size_t i = 0; i < EB_CREDENTIALS_TLS_FILES; i++) {
        is_same =
            is_same && eb_watched_stamp_is_same(&credentials->tls_stamps[i], &fresh->tls_stamps[i]);
    }
    return is_same;
}

struct eb_credentials_change eb_credentials_replace(
    struct eb_credentials *credentials, struct eb_credentials *fresh)
{
    struct eb_credentials_change change = {
        .is_token_new = fresh->authorization[0] &&
                        strcmp(credentials->authorization, fresh->authorization) != 0,
        .is_tls_new = fresh->tls && !has_same_tls(credentials, fresh),
    };
    if (change.is_token_new) {
        memcpy(credentials->authorization, fresh->authorization, sizeof credentials->authorization);
    }
    if (fresh->tls) {
        SSL_CTX_free(credentials->tls);
        credentials->tls = fresh->tls;
        memcpy(credentials->tls_stamps, fresh->tls_stamps, sizeof credentials->tls_stamps);
        fresh->tls = NULL;
    }
    memcpy(credentials->stale_reason, fresh->stale_reason, sizeof credentials->stale_reason);
    eb_credentials_close(fresh);
    return change;
}

void eb_credentials_close(struct eb_credentials *credentials)
{
    SSL_CTX_free(credentials->tls);
    explicit_bzero(credentials, sizeof *credentials);
}
