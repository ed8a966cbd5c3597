/* A command's flags as data, and the reading of their values. What is wrong is said on stderr in
 * one line that names program, flag and value.
 * Thread: main (getopt_long keeps state of its own, and so does this: the program's name). Memory:
 * lists are the caller's to free. */
#pragma once

#include "client/embag.h"

/* Kind of a flag, and what lies at its offset in the command's options. */
enum eb_flag_kind {
    EB_FLAG_SWITCH,     /* bool; takes no value */
    EB_FLAG_TEXT,       /* const char *, borrowed from the arguments */
    EB_FLAG_NUMBER,     /* uint64_t between min and max */
    EB_FLAG_INTEGER,    /* struct eb_flag_integer */
    EB_FLAG_INTEGERS,   /* struct embag_integers of width 8; its data is on the heap */
    EB_FLAG_CHOICE,     /* int: position of the value in `choices` */
    EB_FLAG_POSITIONAL, /* const char *; no flag but the next argument, which must be there */
    EB_FLAG_REST        /* struct eb_flag_rest: the arguments left, at least one; comes last */
};

struct eb_flag_integer {
    bool given;
    int64_t value;
};

struct eb_flag_rest {
    size_t count;
    char **texts; /* [count], borrowed from the arguments */
};

struct eb_flag {
    const char *name; /* without dashes */
    enum eb_flag_kind kind;
    size_t offset;
    uint64_t min, max;          /* NUMBER */
    const char *const *choices; /* CHOICE: ended by NULL; position 0 is "not given" */
};

#define EB_FLAGS_MAX 40

struct eb_command {
    const char *name;  /* "lookup", of embag; with "embag-" before it a program's own */
    const char *usage; /* what --help prints */
    const struct eb_flag *flags;
    size_t flag_count; /* at most EB_FLAGS_MAX */
};

enum eb_arguments_outcome {
    EB_ARGUMENTS_READ,
    EB_ARGUMENTS_HELP, /* --help: the usage has been printed */
    EB_ARGUMENTS_WRONG /* said on stderr */
};

/* Reads `arguments` (the first is the command's name) into the zeroed struct `options`. A flag
 * that takes a value is refused where it is there twice. Lists that were read are in *options
 * whatever the outcome. */
enum eb_arguments_outcome eb_arguments_read(
    const struct eb_command *command, int argument_count, char **arguments, void *options);

/* An array of values of a type, as "0.5,-1" says them. */
struct eb_arguments_values {
    void *data; /* on the heap */
    size_t count;
};

/* For f32, f64 and integer types. false: said on stderr, in the name of the program whose arguments
 * were read last, embag's at first; and *out is empty. */
bool eb_arguments_read_values(
    const char *flag, const char *text, enum embag_type type, struct eb_arguments_values *out);

/* ---- the flags of every command that calls a server: who it is and whom it trusts ---- */

/* In a list of flags. `type`, the command's options, has a struct embag_access called access. */
#define EB_ACCESS_FLAGS(type)                                                                      \
    {"tls", EB_FLAG_SWITCH, offsetof(type, access.tls), 0, 0, NULL},                               \
        {"tls-ca", EB_FLAG_TEXT, offsetof(type, access.tls_ca), 0, 0, NULL},                       \
        {"tls-cert", EB_FLAG_TEXT, offsetof(type, access.tls_cert), 0, 0, NULL},                   \
        {"tls-key", EB_FLAG_TEXT, offsetof(type, access.tls_key), 0, 0, NULL},                     \
        {"tls-server-name", EB_FLAG_TEXT, offsetof(type, access.tls_server_name), 0, 0, NULL},     \
    {                                                                                              \
        "token-file", EB_FLAG_TEXT, offsetof(type, access.token_file), 0, 0, NULL                  \
    }

/* In the command's usage. */
#define EB_ACCESS_USAGE                                                                            \
    "Of a server that asks who calls, or speaks TLS:\n"                                            \
    "  --tls-ca FILE          who vouches for the server; with --tls alone, whom the system\n"     \
    "                         trusts\n"                                                            \
    "  --tls-cert FILE        this caller's certificate, with --tls-key FILE\n"                    \
    "  --tls-server-name NAME in the server's certificate, unless it is that of --server\n"        \
    "  --token-file FILE      the bearer token to show\n"
