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
    EB_METHOD_SERVER_STREAMING, /* one request; answers from time to time until the call is over */
    EB_METHOD_BIDIRECTIONAL     /* many requests, many answers */
};

/* Most bytes of a request that is not a lookup: such requests hold names and little else. Everybody
 * who can connect may send some of them, so this bounds what the server holds for a stranger. */
#define EB_UNARY_BYTES_MAX 32768u
/* Most bytes of answers to such requests on a stream that the peer of one connection has not taken.
 * At this limit further requests wait. */
#define EB_UNARY_ANSWER_BYTES_MAX 65536u

/* Exactly one of answer, codec and start is set. Callbacks that are NULL are not called. */
struct eb_method {
    const char *name;
    enum eb_method_kind kind;
    bool is_probe; /* whether it is open to all callers, whoever may call the other methods of its
                      service */
    eb_unary_fn answer; /* answers each request at once; not for server streaming */
    const struct eb_lookup_codec *codec; /* if its requests are lookups; not server streaming */
    /* Server streaming. Starts the call with its request, which is borrowed. */
    void (*start)(struct eb_rpc_call *call, const struct eb_grpc_message *message);
    /* Server streaming. Called when the server is about to end its connections. Messages sent now
     * leave before the peers are told. */
    void (*on_notice)(struct eb_rpc_call *call);
    void (*on_drain)(struct eb_rpc_call *call); /* called to end it, as its connection ends */
    void (*on_tick)(struct eb_rpc_call *call);  /* called about once a second */
    void (*on_close)(struct eb_rpc_call *call); /* called when the call goes away */
};

/* The callers whose calls are answered if there is an auth_file. */
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
    /* Returns whether the connection may call the service. If not, returns false with *error
     * set. */
    bool (*check)(const struct eb_rpc_conn *conn, struct eb_error *error);
};

/* The tables of all services, with NULL at the end. service.c defines the list. */
extern const struct eb_method_table *const eb_method_tables[];

size_t eb_method_table_count(void);
/* Returns the table at `index`; NULL if there are only `index` or fewer. */
const struct eb_method_table *eb_method_table_at(size_t index);

/* Returns the number of methods in all tables. */
unsigned eb_method_count(void);

struct eb_method_entry {
    const struct eb_method_table *table;
    const struct eb_method *method; /* NULL if there is no such method */
    unsigned index; /* in the order of the tables; eb_method_count() if there is no such method */
};

/* Finds a method by the path of a call, "/embag.v1.EmbeddingBag/Lookup". */
struct eb_method_entry eb_method_find(const char *path);
/* Sets *error, which says that there is no such method. Its text lists the methods of the service,
 * or all services if there is no such service. */
void eb_method_refuse(const char *path, struct eb_error *error);

/* Returns how many us a call may take that asks for `asked_us`, where 0 is no deadline. Returns 0
 * if it may take for ever. A unary call has a deadline even if it asks for none, because it must
 * not wait for its peer for ever. Other calls have none then. */
uint64_t eb_method_timeout_us(
    const struct eb_method *method, uint64_t asked_us, uint64_t unary_longest_us);
