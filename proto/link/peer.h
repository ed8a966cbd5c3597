/* One server of several: its address, the connections to it, and when to open them.
 * Thread: the loop's. Memory: create allocates the peer with room for its connections; a peer must
 * not move. */
#pragma once

#include "proto/link/connection.h"
#include "proto/link/replica.h"
#include "proto/link/target.h"

struct eb_peer;
struct eb_wire_server;

/* Settings that all peers share, with their owner's callbacks. */
struct eb_peer_config {
    uv_loop_t *loop;
    struct eb_alarms *alarms; /* room for an alarm per connection */
    uv_buf_t read_buffer;     /* shared by all connections of the loop */
    const struct eb_memory *memory;
    const struct eb_credentials *credentials;
    uint64_t connect_timeout_ns;
    unsigned int unacknowledged_ms_max; /* as in struct eb_transport */
    uint32_t connections;               /* wanted for each peer */
    uint32_t answer_bytes_max;
    bool is_unpaced;
    /* Callbacks of attempts. The context of a connection's config is its peer. */
    struct eb_connection_handler handler;
    /* A connection of the peer is open; if asks_instance, the peer is asked next. */
    void (*on_open)(struct eb_peer *peer);
    /* The peer has told what it is, if asks_instance. server->instance is not peer->instance yet.
     * If it has not told, `server` is NULL and *why is set. */
    void (*on_told)(
        struct eb_peer *peer, const struct eb_wire_server *server, const struct eb_error *why);
    /* A connection of the peer was lost, or could not be opened if it has not spoken HTTP/2. */
    void (*on_close)(struct eb_peer *peer, bool has_spoken, const struct eb_error *why);
};

struct eb_peer {
    const struct eb_peer_config *config;
    void *context; /* the owner's */
    void *user;    /* for the owner of the set of peers; NULL at first */
    const struct eb_target *target;
    struct eb_address address;
    /* Kept by the owner. */
    struct eb_replica replica;
    uint64_t sent;    /* attempts */
    uint64_t failed;  /* of those, the ones that the server did not answer or refused */
    uint64_t ejected; /* times that the replica was ejected */
    bool is_listed;   /* the target still has the address; otherwise lost connections are not
                         replaced */
    uint32_t connect_failures; /* failed attempts in a row */
    uint64_t connect_not_before_ns;
    uint64_t lost_ns;   /* when the last connection was lost that had served well */
    uint64_t spread_ns; /* time from then until it is opened again */
    /* The process at the address: 0 if it is not known. Asked for on the first connection. */
    uint64_t instance;
    uint64_t last_instance; /* the last one that was known, also after the peer is lost */
    bool is_unary;          /* it does not know LookupStream: its lookups are unary calls */
    bool is_router; /* it has said so when it was asked: it hedges by itself what it is sent */
    struct eb_attempt question;
    bool is_answered;      /* the question's answer has come */
    bool must_ask;         /* it was asked, and has not told what it is */
    uint64_t ask_ns;       /* if must_ask and the question has failed: when to ask again */
    uint32_t ask_failures; /* failed questions in a row on open connections */
    bool was_up;           /* has been connected at some time; set by the owner */
    bool asks_instance;    /* the owner needs to know it; set by the owner */
    bool is_twin;          /* another peer leads to the same process: no connections are opened */
    /* Why the last attempt to connect failed; OK if it succeeded or is in progress. */
    struct eb_error connect_error;
    /* A connection that served well is gone: it is replaced before a call needs it. */
    bool connects_early;
    uint64_t random; /* state of splitmix64.h */
    struct eb_connection_config connection_config;
    struct eb_connection_handler handler; /* the owner's, except for the question */
    uint32_t connection_count; /* twice as many as wanted: new ones replace those that drain */
    struct eb_connection connections[];
};

/* Returns a peer without connections. Keeps the pointers. Returns NULL if out of memory. */
struct eb_peer *eb_peer_create(const struct eb_peer_config *config, const struct eb_target *target,
    const struct eb_address *address);
/* All connections must be closed. */
void eb_peer_destroy(struct eb_peer *peer);

/* How much a peer's connections are needed. */
enum eb_peer_need {
    EB_PEER_NOT_NEEDED, /* only a connection that served well is replaced */
    EB_PEER_NEEDED,
    EB_PEER_URGENT /* calls wait for one */
};

/* Opens the connections that are missing and needed. After a failure it waits for a while, and
 * after a loss for a random time, which is short if a connection is needed urgently. Returns when
 * to call this again; UINT64_MAX if nothing is due. */
uint64_t eb_peer_connect(struct eb_peer *peer, enum eb_peer_need need, uint64_t now_ns);
/* Returns the connection that takes the next attempt of a priority: the one with the fewest.
 * Returns NULL if none can take one now. If may_write, it writes what waits where that may make
 * room; callbacks of attempts may follow. */
struct eb_connection *eb_peer_find_least_busy(
    struct eb_peer *peer, enum eb_priority priority, bool may_write);

/* Asks what the peer is, as is done on each connection that is opened if asks_instance; on_told
 * follows. A question that was asked less than connect_timeout_ns ago is not repeated, unless its
 * connection is ending. */
void eb_peer_ask_instance(struct eb_peer *peer);
/* Asks the peer again if the last question has failed, for any reason but that the peer does not
 * know GetServer, or has had no answer for connect_timeout_ns. After a failure it waits for a time
 * that doubles from 1 s to 32 s. Returns when to call this again; UINT64_MAX if nothing is due. */
uint64_t eb_peer_ask_again(struct eb_peer *peer, uint64_t now_ns);

/* Returns whether requests may be sent to the peer at all. */
bool eb_peer_is_usable(const struct eb_peer *peer);
/* Returns whether the peer is usable, or may be soon because a connection is being opened. */
bool eb_peer_is_live(const struct eb_peer *peer);
/* Returns whether the peer has not told yet which process it is, and may do so soon: it is being
 * asked or connected to, or no connection has been tried yet. */
bool eb_peer_may_tell(const struct eb_peer *peer);
/* Counts the attempts in flight. */
uint32_t eb_peer_count_attempts(const struct eb_peer *peer);
/* Returns whether every connection is closed. */
bool eb_peer_is_closed(const struct eb_peer *peer);

/* Tells the attempts of streams that have ended, and closes connections that are of no more use:
 * those of a twin as soon as they have no attempts. */
void eb_peer_settle(struct eb_peer *peer);
/* Writes what there is to write. Returns whether eb_peer_settle has something to do. */
bool eb_peer_flush(struct eb_peer *peer);
/* Closes connections whose server owes late answers and seems dead (eb_connection_check). */
void eb_peer_check(struct eb_peer *peer, uint64_t now_ns);
/* Notes that the credentials have changed: an attempt to connect that was delayed after a failure
 * is made at once. If the token is another one, it is sent with all later requests. */
void eb_peer_renew(struct eb_peer *peer, bool is_token_new);
/* Asks the peer for an answer, to see whether there is one: sends an empty lookup over each
 * connection. Its answer belongs to no attempt. */
void eb_peer_probe(struct eb_peer *peer);
/* Closes every connection. */
void eb_peer_close(struct eb_peer *peer);
