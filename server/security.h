/* Certificates and access rules. They are read at start, and again on command or after a change of
 * their files (server/security_watch.h) while connections and calls continue.
 * Thread: main's. Memory: on the heap from open to close; each loop has holds of its own. */
#pragma once

#include "proto/net/file_watch.h"
#include "server/base/failure.h"
#include "server/config.h"

#include <stdbool.h>

struct eb_auth;
struct eb_loop;
struct eb_security; /* opaque */
struct eb_tls;

/* Kinds of files. All files of one kind are read together. */
enum eb_security_kind {
    EB_SECURITY_TLS,  /* tls_cert, tls_key, tls_client_ca */
    EB_SECURITY_AUTH, /* auth_file and the token files that it names */
    EB_SECURITY_KINDS
};

/* Reads the files that the settings name. Returns NULL if one is not valid; one log line has said
 * why and what to do. `config` is borrowed until close. */
struct eb_security *eb_security_open(const struct eb_config *config);
/* Accepts NULL. */
void eb_security_close(struct eb_security *security);

/* Return the current state, which the caller borrows. NULL means that TCP connections carry plain
 * bytes, or that callers are not authenticated. */
struct eb_tls *eb_security_tls(const struct eb_security *security);
struct eb_auth *eb_security_auth(const struct eb_security *security);

/* Logs how long the certificate, if there is one, is still valid. Logs a warning if it expires
 * soon. Call it about once a day. */
void eb_security_log_expiry(const struct eb_security *security);

/* Reads the files again and hands the valid ones to all loops. They apply to connections accepted,
 * and calls begun, from now on. If a file is not valid, its former contents stay in force and an
 * error is logged. Must not be called once the loops are being ended. Returns true if all was
 * valid. */
bool eb_security_reload(struct eb_security *security, struct eb_loop *const *loops, size_t count);
/* Does the same with one kind of files, but returns false with *failure set instead of logging a
 * failure. A kind that is not in use counts as valid. */
bool eb_security_reload_kind(struct eb_security *security, enum eb_security_kind kind,
    struct eb_loop *const *loops, size_t count, struct eb_failure *failure);
/* Logs an error: the former contents of these files stay in force because of `failure`. */
void eb_security_log_kept(enum eb_security_kind kind, const struct eb_failure *failure);
/* Returns the setting that names the first file of the kind. */
const char *eb_security_kind_name(enum eb_security_kind kind);
/* Returns the value of that setting; NULL if the kind is not in use. */
const char *eb_security_kind_file(const struct eb_security *security, enum eb_security_kind kind);

/* Returns the files of a kind, with the stamps that they had before they were last read. The caller
 * takes over the list. It is empty if it was taken before, or if the kind is not in use. */
struct eb_file_list eb_security_take_files(
    struct eb_security *security, enum eb_security_kind kind);
