/* The flags by which every command that calls a server says who it is and whom it trusts.
 * Thread, memory: constants. */
#pragma once

#include "client/cli/arguments.h"

/* In a list of flags; `type`, the command's options, has a struct embag_access called access. */
#define EB_ACCESS_FLAGS(type)                                                                      \
    {"tls", EB_FLAG_SWITCH, offsetof(type, access.tls), 0, 0, NULL},                               \
        {"tls-ca", EB_FLAG_TEXT, offsetof(type, access.tls_ca), 0, 0, NULL},                       \
        {"tls-cert", EB_FLAG_TEXT, offsetof(type, access.tls_cert), 0, 0, NULL},                   \
        {"tls-key", EB_FLAG_TEXT, offsetof(type, access.tls_key), 0, 0, NULL},                     \
        {"tls-server-name", EB_FLAG_TEXT, offsetof(type, access.tls_server_name), 0, 0, NULL},     \
    {                                                                                              \
        "token-file", EB_FLAG_TEXT, offsetof(type, access.token_file), 0, 0, NULL                  \
    }

/* In its usage. */
#define EB_ACCESS_USAGE                                                                            \
    "Of a server that asks who calls, or speaks TLS:\n"                                            \
    "  --tls-ca FILE          who vouches for the server; with --tls alone, whom the system\n"     \
    "                         trusts\n"                                                            \
    "  --tls-cert FILE        this caller's certificate, with --tls-key FILE\n"                    \
    "  --tls-server-name NAME in the server's certificate, unless it is that of --server\n"        \
    "  --token-file FILE      the bearer token to show\n"
