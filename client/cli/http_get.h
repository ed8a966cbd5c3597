/* Fetches a text over HTTP, such as the metrics of a server.
 * Thread: any; the call blocks. Memory: the text is on the heap. */
#pragma once

#include "server/base/failure.h"

#include <stddef.h>
#include <stdint.h>

#define EB_HTTP_GET_PREFIX "http://"
/* Most bytes of the status line and the headers of an answer. */
#define EB_HTTP_GET_HEADER_BYTES_MAX 16384

/* The bounds of a fetch. */
struct eb_http_get_limits {
    size_t bytes_max;    /* most bytes of the text; a longer one is refused */
    uint64_t timeout_ms; /* for connecting, to any of the host's addresses, and the answer;
                            resolving a name comes on top */
};

/* Gets http://HOST:PORT[/PATH] with HTTP/1.0, so that the answer is not in chunks. Does not follow
 * redirects. Returns the text of an answer with status 200, NUL-terminated, which the caller frees,
 * and sets *bytes to its length. Otherwise returns NULL with *failure set, without the URL: the URL
 * is malformed, the server cannot be reached or is late, or its answer is too long, cut off or has
 * another status. */
char *eb_http_get(const char *url, const struct eb_http_get_limits *limits, size_t *bytes,
    struct eb_failure *failure);
