/* The service on one loop with a real socket, with a model loaded from a file and an executor of
 * one thread that a test can hold. Also lookups as a client sees them.
 * The model "trial" has version 7 with one table, "rows": i32 [4, 2], whose bytes count up from 1.
 * Thread: the test's. Memory: freed by service_host_stop. A failure outside the service fails the
 * test. */
#pragma once

#include "server/rpc/service.h"
#include "tests/unit/net/loop_host.h"
#include "tests/unit/net/wire_peer.h"
#include "tests/unit/publish/manager_host.h"

#define SERVICE_HOST_METHOD(name) "/embag.v1.EmbeddingBag/" name
#define SERVICE_HOST_TIMEOUT_MS 10000 /* time allowed for an event that must happen */
#define SERVICE_HOST_ROW_BYTES 8
#define SERVICE_HOST_ANSWERS_MAX 256

struct service_host {
    struct loop_host loops;       /* the first loop serves, the second has no connections */
    struct eb_server_facts facts; /* the test may change these and the limits before the start */
    struct eb_limits limits;
    enum eb_access_log_mode access_log;
    struct manager_host models;
    struct eb_snapshot *snapshot;      /* of the models */
    struct eb_admin_endpoint endpoint; /* for commands; its mail arrives on loops.uv */
    struct eb_service service;
    struct eb_executor *executor;
    struct eb_address address;
    struct service_hold {
        struct eb_work work;
        struct service_host *host;
    } hold[2];
    uv_sem_t holds; /* posted when the executor's thread reaches a hold */
    uv_sem_t released;
    bool is_held;
    bool is_started;
};

/* Initialises a host with the default limits, except that every lookup goes to the executor. */
void service_host_init(struct service_host *host);
void service_host_start(struct service_host *host);
/* Releases the executor, cuts the remaining connections, and checks that all memory was given back.
 * Frees everything that service_host_init loaded, even if nothing was started. Does nothing the
 * second time. */
void service_host_stop(struct service_host *host);

/* Holds the executor: work items submitted from now on stay queued until service_host_release.
 * May be called once per host. */
void service_host_hold(struct service_host *host);
void service_host_release(struct service_host *host);
/* Lets the held executor compute one connection's turn of EB_QUEUE_QUANTUM_BYTES, and holds the
 * executor again. May be called once per host. */
void service_host_turn(struct service_host *host);

/* Waits until the loop has handled all mail sent so far. */
void service_host_settle(struct service_host *host);
/* Stops accepting connections and lets calls end. Returns when the loop has begun to drain. */
void service_host_drain(struct service_host *host);
/* Returns whether the serving loop has drained. */
bool service_host_is_drained(struct service_host *host);
/* Waits until at most `bytes` are taken from the loop's pools. Returns false on a timeout. */
bool service_host_wait_taken(struct service_host *host, uint64_t bytes);

/* One LookupRequest: a bag with row 2 if `bags` is 1, else `bags` empty bags. */
struct service_request {
    uint64_t id;
    uint32_t bags;
    uint32_t queries; /* number of identical queries; 0: one */
    uint32_t priority;
    bool cancel;
    bool partial;
    bool is_bad; /* names an unknown output type, which the codec refuses */
    uint64_t timeout_us;
    const char *table;       /* NULL: "rows" */
    const char *traceparent; /* NULL: none */
};

/* Returns the encoded request, which the caller frees. Sets *size. */
uint8_t *service_request_encode(const struct service_request *request, size_t *size);

/* One LookupResponse. */
struct service_answer {
    uint64_t id;
    uint32_t error_code;
    uint32_t retry_after_ms;
    uint32_t queue_us;
    bool more;
    size_t values_bytes;
    uint8_t row[SERVICE_HOST_ROW_BYTES]; /* the first row */
};

/* A lookup call and its answers, in order of arrival. */
struct service_call {
    struct wire_call wire;
    bool is_garbled; /* an answer was not a LookupResponse, or there were too many answers */
    bool has_wanted;
    size_t wanted;
    size_t count;
    struct service_answer answers[SERVICE_HOST_ANSWERS_MAX];
};

/* `method` is the whole path. `timeout_us` is the call's timeout; 0: none. */
void service_call_open(
    struct wire_peer *peer, struct service_call *call, const char *method, uint64_t timeout_us);
void service_call_write(
    struct service_call *call, const struct service_request *request, bool last);
/* Begins a unary Lookup and ends its request. */
void service_call_lookup(
    struct wire_peer *peer, struct service_call *call, const struct service_request *request);
/* Waits until there are `count` answers, and checks that there are no more. */
void service_call_expect_answers(struct wire_peer *peer, struct service_call *call, size_t count);
/* Waits until the call ends, and checks that it ends with this status. */
void service_call_expect_end(
    struct wire_peer *peer, struct service_call *call, enum eb_status status);
/* Returns the answer with this id, or NULL if there is none. */
const struct service_answer *service_call_find(const struct service_call *call, uint64_t id);

/* Waits until the service has handled everything that the peer has sent so far. */
void service_peer_settle(struct wire_peer *peer);

/* The fixture of most tests of the service, for cmocka's setup and teardown. */
struct service_fixture {
    struct service_host host;
    struct wire_peer peer;
    struct service_call call;
};

/* Sets *state to a fixture on the heap whose host is initialised. */
int service_fixture_set_up(void **state);
/* Closes the peer, stops the host once it has no connections, and frees the fixture. */
int service_fixture_tear_down(void **state);
/* Starts the host, with the limits as the test has set them, and connects the peer. */
void service_fixture_start(struct service_fixture *fixture);
/* Closes the peer, and stops the host once it has no connections. For tests that check something
 * after the stop. */
void service_fixture_stop(struct service_fixture *fixture);
