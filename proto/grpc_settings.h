/* How the server's side of a connection sets nghttp2 up, and what it tells its peer to keep to.
 * Thread: one at a time. Memory: nghttp2's. */
#pragma once

#include "proto/grpc_server.h"

struct nghttp2_option;
struct nghttp2_session;

/* The caller's to delete. NULL: no memory. */
struct nghttp2_option *eb_grpc_settings_option(void);
/* Submits SETTINGS and the connection's window. false: no memory. */
bool eb_grpc_settings_submit(
    struct nghttp2_session *session, const struct eb_grpc_server_limits *limits);
