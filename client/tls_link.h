/* One connection's TLS between bytes on the wire and bytes of its session, on the client's side.
 * Thread: the loop's. Memory: the heap; output is bounded by what is handed in. */
#pragma once

#include "client/credentials.h"
#include "proto/send_queue.h"

#define EB_TLS_LINK_PLAIN_BYTES 16384 /* of the largest record */

struct eb_tls_link; /* opaque */

/* `credentials` has tls, and is borrowed for the call. NULL: no memory. The hello is output. */
struct eb_tls_link *eb_tls_link_create(const struct eb_credentials *credentials);
/* Also while output is being written. Accepts NULL. */
void eb_tls_link_destroy(struct eb_tls_link *link);

/* Bytes from the peer, which are copied. false: no memory. */
bool eb_tls_link_feed(struct eb_tls_link *link, const uint8_t *bytes, size_t count);
/* Decrypts the next of them. Returns how many bytes `out`, of EB_TLS_LINK_PLAIN_BYTES, has got; 0:
 * all was read; -1: the link is over, as its reason says. It may have output in all cases. */
int eb_tls_link_read(struct eb_tls_link *link, uint8_t *out);
/* Encrypts what is in the queue, up to what is written at once; of a link that is ready. false: it
 * is over. */
bool eb_tls_link_seal(struct eb_tls_link *link, struct eb_send_queue *queue);
/* Says that nothing follows, where that can be said. */
void eb_tls_link_end(struct eb_tls_link *link);

/* The output so far, `*count` bytes, which stay until the next call. Once all of those before have
 * been written. */
const uint8_t *eb_tls_link_take_output(struct eb_tls_link *link, size_t *count);

/* Whether the handshake is done: the server is the one that was meant and speaks HTTP/2. */
bool eb_tls_link_is_ready(const struct eb_tls_link *link);
/* Why the link is over. */
const char *eb_tls_link_reason(const struct eb_tls_link *link);
