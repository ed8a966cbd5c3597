/* A watch of part servers (server/route/peer_watch.h) with fake servers, over real sockets. The
 * watch's clock stands still unless a test advances it.
 * Thread: the test's; each fake server has its own. Memory: released by close_watch. */
#pragma once

#include "server/route/peer_watch.h"
#include "tests/lib/capture.h"
#include "tests/unit/client/fake_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define WATCH_SERVERS_MAX 2
#define WATCH_PARTS 2
#define WATCH_PATIENCE_NS UINT64_C(30000000000)
#define WATCH_CONNECT_TIMEOUT_MS 20000
#define WATCH_PAUSE_MS_MAX 31000 /* a watch tries everything again in that time */
#define WATCH_LOG_BYTES 262144

struct watch_fixture {
    struct fake_server servers[WATCH_SERVERS_MAX];
    bool is_stopped[WATCH_SERVERS_MAX];
    int server_count;
    uv_loop_t loop;
    uv_timer_t tick; /* wakes the loop, because the clock stands still */
    struct eb_targets targets;
    struct eb_credentials credentials;
    struct eb_peer_watch *watch;
    struct eb_part_set *set; /* of version 7 of model "m", with digest 70 */
    unsigned change_count;
    bool is_closed;
    bool closes_at_change;
    struct eb_capture capture;
    char log[WATCH_LOG_BYTES];
};

/* Runs the loop until the condition holds. */
#define RUN_UNTIL(f, condition)                                                                    \
    do {                                                                                           \
        uint64_t end_ns = __real_uv_hrtime() + WATCH_PATIENCE_NS;                                  \
        while (!(condition)) {                                                                     \
            assert_true(__real_uv_hrtime() < end_ns);                                              \
            (void)uv_run(&(f)->loop, UV_RUN_ONCE);                                                 \
        }                                                                                          \
    } while (0)

/* The system's clock, in ns. */
uint64_t __real_uv_hrtime(void);
/* The address of every name, from now on; NULL: names have none. */
void set_name_address(const char *address);
/* How many addresses every name has; with 1, which it is at first, the above. */
void set_address_count(unsigned count);
/* Counts how often a name was resolved since start_servers. */
unsigned count_resolutions(void);

/* Numbers of parts: part_numbers[i] is i. */
extern const uint32_t part_numbers[3];

/* Starts servers of parts 0, 1, ... of 2, with instances 100, 101, ... They say nothing of what
 * they hold yet. */
struct watch_fixture *start_servers(int count);
/* Sets the addresses for a watch that the test opens with make_options. */
void set_targets(struct watch_fixture *f, const char *addresses);
struct eb_peer_watch_options make_options(struct watch_fixture *f);
/* Open a watch of the addresses, or of the servers. */
void open_watch_to(struct watch_fixture *f, const char *addresses);
void open_watch(struct watch_fixture *f);
/* Starts one server, and waits until it is in the map with part 0. */
struct watch_fixture *watch_one(void);
/* Stops one of the servers. */
void stop_one(struct watch_fixture *f, int server);
/* Closes the watch if it is open, and everything else. */
void close_watch(struct watch_fixture *f);

/* Runs the loop often enough for something to happen that should not. */
void run_a_while(struct watch_fixture *f);
/* Moves the watch's clock. */
void advance(uint64_t ms);

/* A holding of part i % 2 of the set's version. */
struct eb_wire_holding make_holding(int i, int32_t state);
/* Change what a server tells: any message, a message of one holding, one that has its part in a
 * state, or READY, or no message. */
void tell_wire(struct watch_fixture *f, int server, const struct eb_wire_holdings *wire);
void tell_holding(
    struct watch_fixture *f, int server, const struct eb_wire_holding *holding, bool is_draining);
void tell_state(struct watch_fixture *f, int server, int32_t state);
void tell_ready(struct watch_fixture *f, int server);
void tell_nothing(struct watch_fixture *f, int server);

/* Count the instances that have a part READY, and the servers in the map. */
size_t count_ready(const struct watch_fixture *f, uint32_t part);
uint32_t count_mapped(const struct watch_fixture *f);
/* Returns the number of the peer at a server's address. */
uint32_t find_number(const struct watch_fixture *f, int server);
/* Count the calls of WatchModels at a server: those that have come, those that are open, and how
 * often none was left. */
unsigned count_begun(struct watch_fixture *f, int server);
unsigned count_open(struct watch_fixture *f, int server);
unsigned count_gaps(struct watch_fixture *f, int server);

/* Begins to capture the log. */
void start_log(struct watch_fixture *f);
/* Ends the capture, and leaves the lines in f->log. */
void stop_log(struct watch_fixture *f);
/* Counts how often a text occurs in the log. */
unsigned count_logged(const struct watch_fixture *f, const char *text);
/* Logs errors only; for use as the setup of a group. Returns 0. */
int quieten_log(void **state);
