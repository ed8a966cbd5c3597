/* Describes the methods of services. Each service has a table of them.
 * Thread, memory: constants. */
#pragma once

#include "server/rpc/unary.h"

struct eb_grpc_message;
struct eb_lookup_codec;
struct eb_rpc_call;
struct eb_rpc_conn;

enum eb_method_kind {
    EB_METHOD_UNARY,            /* one request, one answer */
    EB_METHOD_SERVER_STREAMING, /* one request, answers from time to time until the call is over */
    EB_METHOD_BIDIRECTIONAL     /* many requests, many answers */
};

/* Most bytes of a request that is not a lookup: such requests hold names and little else. Everybody
 * who may connect may send some of them, so this bounds what the server holds for a stranger. */
#define EB_UNARY_BYTES_MAX 32768u
/* Most bytes of answers to such requests of a stream that one connection's peer has not taken. At
 * this limit further requests wait. */
#define EB_UNARY_ANSWER_BYTES_MAX 65536u

/* Exactly one of answer, codec and start is set. Callbacks that are NULL are not called. */
struct eb_method {
    const char *name;
    enum eb_method_kind kind;
    bool is_probe;      /* open to all callers, whoever may call the other methods of its service */
    eb_unary_fn answer; /* answers each request at once; not server streaming */
    const struct eb_lookup_codec *codec; /* its requests are lookups; not server streaming */
    /* Server streaming. Starts the call with its request, which is borrowed. */
    void (*start)(struct eb_rpc_call *call, const struct eb_grpc_message *message);
    /* Server streaming. The server is about to end its connections. Messages sent now leave before
     * the peers are told. */
    void (*on_notice)(struct eb_rpc_call *call);
    void (*on_drain)(struct eb_rpc_call *call); /* the connection ends: so should the call */
    void (*on_tick)(struct eb_rpc_call *call);  /* about once a second */
    void (*on_close)(struct eb_rpc_call *call); /* the call goes away */
};

/* Callers whose calls are answered, if an auth_file says who may call. */
enum eb_method_access {
    EB_METHOD_FOR_KNOWN,  /* callers that the auth_file knows */
    EB_METHOD_FOR_ADMINS, /* callers that it knows as admins */
    EB_METHOD_FOR_ALL     /* everybody */
};

struct eb_method_table {
    const char *service; /* "embag.v1.EmbeddingBag" */
    enum eb_method_access access;
    const struct eb_method *methods;
    size_t count;
    /* Returns whether the connection may call the service; if not, false with *error set. */
    bool (*check)(const struct eb_rpc_conn *conn, struct eb_error *error);
};

/* The tables of all services, ended by NULL. service.c defines the list. */
extern const struct eb_method_table *const eb_method_tables[];

size_t eb_method_table_count(void);
/* Returns the table at `index`; NULL if there are only `index` or fewer. */
const struct eb_method_table *eb_method_table_at(size_t index);

/* Returns the number of methods in all tables. */
unsigned eb_method_count(void);

struct eb_method_entry {
    const struct eb_method_table *table;
    const struct eb_method *method; /* NULL: there is no such method */
    unsigned index; /* in the order of the tables; eb_method_count() if there is no such method */
};

/* Finds a method by the path of a call, "/embag.v1.EmbeddingBag/Lookup". */
struct eb_method_entry eb_method_find(const char *path);
/* Sets *error: there is no such method. The text lists the methods of the service, or all services
 * if there is no such service. */
void eb_method_refuse(const char *path, struct eb_error *error);

/* Returns how long a call that asks for `asked_us` (0: no deadline) may take; 0: for ever. A unary
 * call has a deadline even if it asks for none, because it must not wait for its peer for ever.
 * Other calls then have none. */
uint64_t eb_method_timeout_us(
    const struct eb_method *method, uint64_t asked_us, uint64_t unary_longest_us);
