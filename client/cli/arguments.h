/* Describes a command's flags as data, and reads their values. An error is printed to stderr as one
 * line that names the program, the flag and the value.
 * Thread: main (getopt_long has static state, and so has this module: the program's name). Memory:
 * the caller frees lists. */
#pragma once

#include "client/embag.h"

/* The kind of a flag determines the type of the option at its offset. */
enum eb_flag_kind {
    EB_FLAG_SWITCH,     /* bool; takes no value */
    EB_FLAG_TEXT,       /* const char *, borrowed from the arguments */
    EB_FLAG_NUMBER,     /* uint64_t between min and max */
    EB_FLAG_INTEGER,    /* struct eb_flag_integer */
    EB_FLAG_INTEGERS,   /* struct embag_integers of width 8; its data is on the heap */
    EB_FLAG_CHOICE,     /* int: index of the value in `choices` */
    EB_FLAG_POSITIONAL, /* const char *: the next argument instead of a flag; required */
    EB_FLAG_REST        /* struct eb_flag_rest: the remaining arguments, at least one; comes last */
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
    const char *const *choices; /* names for CHOICE, then NULL; position 0 is "not given" */
};

#define EB_FLAGS_MAX 40
/* C guarantees only 4 095 bytes for a string literal, so a longer text needs several. */
#define EB_USAGE_PIECES_MAX 3

struct eb_command {
    const char *name; /* "lookup" for a command of embag; "embag-load" for a separate program */
    const char *usage[EB_USAGE_PIECES_MAX]; /* the text of --help in pieces; NULL after the last */
    const struct eb_flag *flags;
    size_t flag_count; /* at most EB_FLAGS_MAX */
};

enum eb_arguments_outcome {
    EB_ARGUMENTS_READ,
    EB_ARGUMENTS_HELP, /* --help: the usage has been printed */
    EB_ARGUMENTS_WRONG /* an error, printed to stderr */
};

/* Reads `arguments` (the first is the command's name) into the zeroed struct `options`. Refuses a
 * flag that is given twice, unless it is a switch. Whatever the outcome, *options holds the lists
 * that have been read. */
enum eb_arguments_outcome eb_arguments_read(
    const struct eb_command *command, int argument_count, char **arguments, void *options);

/* An array of values of one type, as in "0.5,-1". */
struct eb_arguments_values {
    void *data; /* on the heap */
    size_t count;
};

/* Reads values of f32, f64 or an integer type. Returns false, with *out empty, after printing an
 * error to stderr. The error names the program whose arguments were read last, or embag if none
 * were. */
bool eb_arguments_read_values(
    const char *flag, const char *text, enum embag_type type, struct eb_arguments_values *out);

/* ---- --server ---- */

/* Lines for the usage of a command that sends lookups. */
#define EB_SERVERS_USAGE                                                                           \
    "  --server ADDRESS       HOST:PORT, [V6]:PORT, unix:PATH or dns:NAME:PORT; several servers\n" \
    "                         with the same models as HOST:PORT,HOST:PORT. Each address of a\n"    \
    "                         name is a server\n"

/* Checks the --server of a command about one server. Returns false after printing an error to
 * stderr if it is missing, or names several servers. Leaves other mistakes to embag_open. */
bool eb_arguments_check_server(const struct eb_command *command, const char *server);

/* ---- access flags, shared by all commands that call a server ---- */

/* Entries for a list of flags. `type` is the command's options struct; its member `access` is a
 * struct embag_access. */
#define EB_ACCESS_FLAGS(type)                                                                      \
    {"tls", EB_FLAG_SWITCH, offsetof(type, access.tls), 0, 0, NULL},                               \
        {"tls-ca", EB_FLAG_TEXT, offsetof(type, access.tls_ca), 0, 0, NULL},                       \
        {"tls-cert", EB_FLAG_TEXT, offsetof(type, access.tls_cert), 0, 0, NULL},                   \
        {"tls-key", EB_FLAG_TEXT, offsetof(type, access.tls_key), 0, 0, NULL},                     \
        {"tls-server-name", EB_FLAG_TEXT, offsetof(type, access.tls_server_name), 0, 0, NULL},     \
    {                                                                                              \
        "token-file", EB_FLAG_TEXT, offsetof(type, access.token_file), 0, 0, NULL                  \
    }

/* Lines for the command's usage. */
#define EB_ACCESS_USAGE                                                                            \
    "If the server requires TLS or authentication:\n"                                              \
    "  --tls                  use TLS and trust the system's certificate authorities\n"            \
    "  --tls-ca FILE          use TLS and trust the authorities in FILE (PEM)\n"                   \
    "  --tls-cert FILE        client certificate (PEM); needs --tls-key FILE\n"                    \
    "  --tls-server-name NAME\n"                                                                   \
    "                         name in the server's certificate (default: host of --server)\n"      \
    "  --token-file FILE      file with the bearer token to send\n"
