/* Certificates and access rules. They are read at start, and again on command while connections and
 * calls continue.
 * Thread: main's. Memory: on the heap from open to close; each loop has holds of its own. */
#pragma once

#include "server/config.h"

#include <stdbool.h>

struct eb_auth;
struct eb_loop;
struct eb_security; /* opaque */
struct eb_tls;

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
void eb_security_look(const struct eb_security *security);

/* Reads the files again and hands the valid ones to all loops. They apply to connections accepted,
 * and calls begun, from now on. If a file is not valid, its former contents stay in force and an
 * error is logged. Must not be called once the loops are being ended. Returns true if all was
 * valid. */
bool eb_security_reload(struct eb_security *security, struct eb_loop *const *loops, size_t count);
