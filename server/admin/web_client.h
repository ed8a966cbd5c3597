/* Those who ask at the operators' port: their connections, how long each may take, and who of them
 * waits for which stats. What libmicrohttpd calls is here; web.c runs it.
 * Thread: the port's. Memory: a client's on the heap while it is connected. */
#pragma once

#include "server/admin/web.h"

#include <microhttpd.h>

/* Open connections; for a new one that goes whose last answer, or beginning, is longest ago: who
 * holds connections does not keep a probe out. */
#define EB_WEB_CONNECTIONS_MAX 64
/* Memory of a connection: of its request line and headers, which get 414 or 431 beyond, and of the
 * headers of its answer. */
#define EB_WEB_CONNECTION_BYTES 16384

struct eb_web_client;

/* Clients that wait for the same stats. */
struct eb_web_waiters {
    struct eb_web_client *last;
    bool is_whole;        /* one of them needs counts */
    uint64_t deadline_ms; /* of the first of them */
};

struct eb_web_clients {
    struct eb_web_facts facts;
    struct eb_web_times times;
    struct eb_stats_source source;
    uv_loop_t *uv;
    /* Clients have been resumed, outside libmicrohttpd's callbacks: it has to run. */
    void (*on_resumed)(struct eb_web_clients *all);
    /* After eb_web_client_end. */
    void (*on_ended)(struct eb_web_clients *all);
    struct eb_web_client *first;
    uv_timer_t pause; /* until the next stats is begun */
    struct eb_stats_request request;
    bool is_asking; /* the request is the taker's */
    bool is_ending;
    uint64_t next_stats_ms;
    struct eb_web_waiters asked;   /* who get the stats that is being taken */
    struct eb_web_waiters waiting; /* who get the one after it */
};

/* The first six members are set. */
void eb_web_client_init(struct eb_web_clients *all);
/* libmicrohttpd, which serves these clients and nobody else: connections are added to it, and it
 * runs when its epoll says so. NULL: errno. */
struct MHD_Daemon *eb_web_client_start(struct eb_web_clients *all);
/* Closes connections whose time is over, and tells those who have waited too long that they wait
 * in vain. Whether there are any. To be called about once a second, before libmicrohttpd runs. */
bool eb_web_client_look(struct eb_web_clients *all);
/* Where there are as many clients as may be one is cut, which libmicrohttpd has to see by running.
 * Whether that was so. */
bool eb_web_client_make_room(struct eb_web_clients *all);
/* Who waits for stats that is not being taken, or would from now on, gets 503. When the one that
 * is being taken is there, maybe at once, on_ended follows. */
void eb_web_client_end(struct eb_web_clients *all);
/* After on_ended or before any connection. */
void eb_web_client_deinit(struct eb_web_clients *all);
