/* The service behind one loop and a real socket, its model loaded from a file, with an executor of
 * one thread that a test can hold; and lookups as its client sees them.
 * The model "trial" has version 7 with one table, "rows": i32 [4, 2], whose bytes count 1, 2, 3 on.
 * Thread: the test's. Memory: freed by service_host_stop. What fails outside the service fails the
 * test. */
#pragma once

#include "server/rpc/service.h"
#include "tests/unit/net/loop_host.h"
#include "tests/unit/net/wire_peer.h"
#include "tests/unit/publish/manager_host.h"

#define SERVICE_HOST_METHOD(name) "/embag.v1.EmbeddingBag/" name
#define SERVICE_HOST_TIMEOUT_MS 10000 /* of what must happen */
#define SERVICE_HOST_ROW_BYTES 8
#define SERVICE_HOST_ANSWERS_MAX 256

struct service_host {
    struct loop_host loops;       /* the first serves, the second has nobody */
    struct eb_server_facts facts; /* for the test to change before the start, as the limits */
    struct eb_limits limits;
    struct manager_host models;
    struct eb_snapshot *snapshot;      /* of the models */
    struct eb_admin_endpoint endpoint; /* likewise; its mails come on loops.uv */
    struct eb_service service;
    struct eb_executor *executor;
    struct eb_address address;
    struct service_hold {
        struct eb_work work;
        struct service_host *host;
    } hold[2];
    uv_sem_t holds; /* the executor's thread has come to one of them */
    uv_sem_t released;
    bool is_held;
    bool is_started;
};

/* Default limits, but everything goes to the executor. */
void service_host_init(struct service_host *host);
void service_host_start(struct service_host *host);
/* Releases the executor, cuts what is left; everything that was taken must come back. Frees what
 * service_host_init has loaded, also where nothing was started. Does nothing the second time. */
void service_host_stop(struct service_host *host);

/* What is submitted from now on stays queued until released. Once for each host. */
void service_host_hold(struct service_host *host);
void service_host_release(struct service_host *host);
/* Lets the executor, which is held, compute for one turn of one connection, EB_QUEUE_QUANTUM_BYTES,
 * and holds it again. Once for each host. */
void service_host_turn(struct service_host *host);

/* The loop has dealt with all mail until now. */
void service_host_settle(struct service_host *host);
/* Stops accepting and lets calls end; returns when the loop has begun with it. */
void service_host_drain(struct service_host *host);
/* true: the serving loop is drained by now. */
bool service_host_is_drained(struct service_host *host);
/* true: in good time no more than `bytes` are taken from the loop's pools. */
bool service_host_wait_taken(struct service_host *host, uint64_t bytes);

/* One LookupRequest: a bag with row 2, or as many bags that are empty. */
struct service_request {
    uint64_t id;
    uint32_t bags;
    uint32_t queries; /* so many times; 0: once */
    uint32_t priority;
    bool cancel;
    bool partial;
    bool is_bad; /* names an output type that there is none of: the codec refuses it */
    uint64_t timeout_us;
    const char *table; /* NULL: "rows" */
};

/* The bytes, which are the caller's to free; *size is set. */
uint8_t *service_request_encode(const struct service_request *request, size_t *size);

/* One LookupResponse. */
struct service_answer {
    uint64_t id;
    uint32_t error_code;
    uint32_t retry_after_ms;
    uint32_t queue_us;
    bool more;
    size_t values_bytes;
    uint8_t row[SERVICE_HOST_ROW_BYTES]; /* the first */
};

/* A lookup call and its answers, in the order of their coming. */
struct service_call {
    struct wire_call wire;
    bool is_garbled; /* an answer was no LookupResponse, or there were too many */
    bool has_wanted;
    size_t wanted;
    size_t count;
    struct service_answer answers[SERVICE_HOST_ANSWERS_MAX];
};

/* `method` is the whole path, `timeout_us` the call's (0: none). */
void service_call_open(
    struct wire_peer *peer, struct service_call *call, const char *method, uint64_t timeout_us);
void service_call_write(
    struct service_call *call, const struct service_request *request, bool last);
/* A unary Lookup, begun and ended. */
void service_call_lookup(
    struct wire_peer *peer, struct service_call *call, const struct service_request *request);
/* Waits until there are `count` answers; there are no more of them then. */
void service_call_expect_answers(struct wire_peer *peer, struct service_call *call, size_t count);
/* Waits until the call ends, which it does so. */
void service_call_expect_end(
    struct wire_peer *peer, struct service_call *call, enum eb_status status);
/* The answer with this id; NULL: there is none. */
const struct service_answer *service_call_find(const struct service_call *call, uint64_t id);

/* The service has dealt with all that the peer has sent until now. */
void service_peer_settle(struct wire_peer *peer);

/* What most tests of the service use, for cmocka's setup and teardown. */
struct service_fixture {
    struct service_host host;
    struct wire_peer peer;
    struct service_call call;
};

/* Sets *state to one on the heap, its host initialised. */
int service_fixture_set_up(void **state);
/* Closes the peer, stops the host when it has no connection left, and frees the fixture. */
int service_fixture_tear_down(void **state);
/* Starts the host, after the test's own limits, and connects the peer. */
void service_fixture_start(struct service_fixture *fixture);
/* For tests that look at what is left: closes the peer, and stops the host when it has no
 * connection left. */
void service_fixture_stop(struct service_fixture *fixture);
