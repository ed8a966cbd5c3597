/* What the methods of a service are: each service has a table of them.
 * Thread, memory: constants. */
#pragma once

#include "server/rpc/unary.h"

struct eb_lookup_codec;
struct eb_rpc_call;
struct eb_rpc_conn;

enum eb_method_kind {
    EB_METHOD_UNARY,            /* one request, one answer */
    EB_METHOD_SERVER_STREAMING, /* one request, answers now and then until it is over */
    EB_METHOD_BIDIRECTIONAL     /* many of both */
};

/* One request of a method that is no lookup: names and a few words. Whoever may connect may send
 * some of them, and is not to make the server hold more. */
#define EB_UNARY_BYTES_MAX 32768u
/* Answers of a stream of them that one connection's peer does not take: at it they wait. */
#define EB_UNARY_ANSWER_BYTES_MAX 65536u

/* Exactly one of answer, form and start is set. What is NULL need not be done. */
struct eb_method {
    const char *name;
    enum eb_method_kind kind;
    bool is_probe;      /* answers everybody, whoever may call the others of its service */
    eb_unary_fn answer; /* not of a feed: answers each request at once, by one message */
    const struct eb_lookup_codec *codec;     /* not of a feed: its requests are lookups */
    void (*start)(struct eb_rpc_call *call); /* of a feed: takes call->message, which is whole */
    /* Of a feed. The server is going to end its connections: what this says leaves before they hear
     * of it. */
    void (*on_notice)(struct eb_rpc_call *call);
    void (*on_drain)(struct eb_rpc_call *call); /* the connection ends: so should the feed */
    void (*on_tick)(struct eb_rpc_call *call);  /* about once a second */
    void (*on_close)(struct eb_rpc_call *call); /* the call goes away */
};

/* Whose calls are answered where an auth_file says who may call. */
enum eb_method_access {
    EB_METHOD_FOR_KNOWN,  /* those whom it knows */
    EB_METHOD_FOR_ADMINS, /* those of them whom it says to be admins */
    EB_METHOD_FOR_ALL     /* everybody's */
};

struct eb_method_table {
    const char *service; /* "embag.v1.EmbeddingBag" */
    enum eb_method_access access;
    const struct eb_method *methods;
    size_t count;
    /* Whether the connection may call the service; false: *error says why not. */
    bool (*check)(const struct eb_rpc_conn *conn, struct eb_error *error);
};

/* The tables of all services, ended by NULL: service.c lists them. */
extern const struct eb_method_table *const eb_method_tables[];

size_t eb_method_table_count(void);
/* NULL: there are no more than `index`. */
const struct eb_method_table *eb_method_table_at(size_t index);

/* Of all tables. */
unsigned eb_method_count(void);

struct eb_method_place {
    const struct eb_method_table *table;
    const struct eb_method *method; /* NULL: there is no such method */
    unsigned index; /* in the order of the tables; where there is none, eb_method_count() */
};

/* By the path of a call, "/embag.v1.EmbeddingBag/Lookup". */
struct eb_method_place eb_method_find(const char *path);
/* Says that there is none, and which the service has, or which services there are. */
void eb_method_refuse(const char *path, struct eb_error *error);

/* How long a call may take that asks for `asked_us` (0: it does not say); 0: for ever. A unary call
 * has a deadline even where it names none: it must not wait for its peer for ever. A stream and a
 * feed have none then: both take as long as they take. */
uint64_t eb_method_timeout_us(
    const struct eb_method *method, uint64_t asked_us, uint64_t unary_longest_us);
