/* The server at one address of a watch (peer_watch.h): what it has told, its calls of WatchModels,
 * what is wrong with it, and whether it is in the map.
 *
 * The dispatcher's callbacks only note what has happened, and mark the server as due. Its owner
 * then has it reviewed before the loop sleeps: that begins and ends calls, and sets the server's
 * alarm for the next review. Thread: the loop's. Memory: create allocates 30 KB. */
#pragma once

#include "proto/link/dispatcher.h"
#include "server/base/log_rate_limit.h"
#include "server/route/part_map.h"
#include "server/route/peer_message.h"

/* Calls of a server: the one that tells what it holds, and the one that replaces it. */
#define EB_PART_SERVER_CALLS 2
/* A server that has told nothing for this long leaves the map; it is due to tell each second. */
#define EB_PART_SERVER_SILENCE_NS UINT64_C(3000000000)
/* Shortest pause before something that has failed is tried again. */
#define EB_PART_SERVER_PAUSE_NS UINT64_C(1000000000)

/* State that all servers of a watch share. */
struct eb_part_servers {
    struct eb_dispatcher *dispatcher;
    struct eb_alarms *alarms; /* room for one per server */
    struct eb_part_map *map;
    uint64_t connect_timeout_ns;
    struct eb_peer_request request; /* with the present claims */
    uint64_t claims;                /* number of these claims */
    uint64_t call_count;
    struct eb_list due; /* servers to review, linked by `link` */
    uint64_t random;    /* state of splitmix64.h */
    struct eb_log_rate_limit lines;
};

/* Problems of a server, in order of severity. */
enum eb_trouble {
    EB_TROUBLE_NONE,
    EB_TROUBLE_UNTOLD,  /* GetServer has failed */
    EB_TROUBLE_ENDED,   /* a call of WatchModels has ended */
    EB_TROUBLE_REFUSED, /* one of its messages was refused */
    EB_TROUBLE_UNFIT    /* it is no part server that this router can use */
};

/* A call of WatchModels. */
struct eb_watch_call {
    struct eb_part_server *server;
    struct eb_dispatch_call dispatched;
    struct eb_error error;
    uint64_t number;   /* of the watch's calls; the higher the newer */
    uint64_t instance; /* of the process that it is meant for */
    uint64_t claims;   /* number of the claims that it has sent */
    uint64_t begun_ns;
    uint64_t heard_ns; /* of its last message, or begun_ns */
    bool is_open;      /* the dispatcher has it */
    bool is_unwanted;  /* this side is ending it */
    bool has_message;
};

struct eb_part_server {
    struct eb_part_servers *shared;
    struct eb_peer *peer; /* NULL: the address is forgotten */
    uint32_t number;      /* of the map's peer */
    char address[EB_ADDRESS_TEXT_BYTES];
    uint64_t mapped;   /* its instance in the map; 0: it is not in the map */
    bool has_answered; /* or has failed, at some time */

    /* Private. */
    struct eb_list link; /* in the list of servers to review; in none if it is not due */
    struct eb_alarm alarm;
    struct eb_dispatch_group group;
    struct eb_watch_call calls[EB_PART_SERVER_CALLS];
    /* State reported on the present connection. */
    bool is_told;
    struct eb_part_choice role;
    uint64_t instance; /* also if it is not told on this one yet */
    uint64_t ask_ns;   /* when to ask what it is, if it is not told */
    /* Problems since the last review. */
    enum eb_trouble trouble;
    struct eb_error why;
    const char *hint; /* of EB_TROUBLE_UNFIT */
    bool is_lost;     /* its last connection was lost while a call was open */

    uint64_t heard_ns; /* when it has last told what it holds */
    uint64_t retry_ns; /* no call is made before */
    uint32_t failures; /* in a row */
    bool is_unfit;     /* that was logged */
    bool is_draining;  /* that was logged */
    uint64_t reported_ns;
};

/* Returns the server at an address, which is due. Keeps the pointers. Returns NULL if out of
 * memory. */
struct eb_part_server *eb_part_server_create(
    struct eb_part_servers *shared, struct eb_peer *peer, uint32_t number);
/* The server must be forgotten, without calls and in no list. */
void eb_part_server_destroy(struct eb_part_server *server);

/* Marks a server as due. */
void eb_part_server_mark(struct eb_part_server *server);
/* Does what is due for a server. Returns false if it is forgotten; then it must be destroyed. */
bool eb_part_server_review(struct eb_part_server *server);
/* Ends its calls. */
void eb_part_server_end_calls(struct eb_part_server *server);
/* Forgets its failures, because the credentials have changed. */
void eb_part_server_renew(struct eb_part_server *server);

/* Callbacks of the dispatcher. A connection of the server is open. */
void eb_part_server_on_open(struct eb_part_server *server);
/* It has told what it is, or has not: then `told` is NULL and *why is set. */
void eb_part_server_on_told(
    struct eb_part_server *server, const struct eb_wire_server *told, const struct eb_error *why);
/* Its peer is about to be freed. */
void eb_part_server_on_gone(struct eb_part_server *server);
/* Those of struct eb_dispatch_handler for its calls. */
bool eb_part_server_on_message(
    struct eb_dispatch_call *dispatched, const uint8_t *bytes, size_t size, struct eb_error *error);
void eb_part_server_on_over(struct eb_dispatch_call *dispatched);

/* Returns whether one more line may be logged. */
bool eb_part_servers_may_log(struct eb_part_servers *shared);
