/* Certificates and rules of who may what: read at start, and again on command while connections
 * stay and calls go on.
 * Thread: main's. Memory: the heap from open to close; loops have holds of their own. */
#pragma once

#include "server/config.h"

#include <stdbool.h>

struct eb_auth;
struct eb_loop;
struct eb_security; /* opaque */
struct eb_tls;

/* Reads what the settings name. NULL: one log line has said what is wrong and what to do. `config`
 * is borrowed for its life. */
struct eb_security *eb_security_open(const struct eb_config *config);
/* Accepts NULL. */
void eb_security_close(struct eb_security *security);

/* Borrowed. NULL: plain bytes; nobody is asked who he is. */
struct eb_tls *eb_security_tls(const struct eb_security *security);
struct eb_auth *eb_security_auth(const struct eb_security *security);

/* Says in the log how long the certificate is good for, where there is one: a warning where that is
 * not long. To be called about once a day. */
void eb_security_look(const struct eb_security *security);

/* Reads the files again and hands what is good to all loops: connections that are accepted, and
 * calls that begin, from now on. What is not good leaves what was, and is logged. Not once the
 * loops are being ended. true: all was good. */
bool eb_security_reload(struct eb_security *security, struct eb_loop *const *loops, size_t count);
