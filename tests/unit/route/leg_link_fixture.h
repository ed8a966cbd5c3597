/* A router's link to its part servers (server/route/leg_link.h) with fake servers, over real
 * sockets.
 * Thread: the test's; each fake server has its own. Memory: released by close_link. */
#pragma once

#include "server/route/leg_link.h"
#include "tests/unit/client/fake_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LINK_SERVERS 3
#define LINK_PARTS 2
#define LINK_LEGS_MAX 256
#define LINK_SECOND_NS UINT64_C(1000000000)
#define LINK_PATIENCE_NS (20 * LINK_SECOND_NS)
#define LINK_PART_BYTES_MAX 1000
#define LINK_FIRST_INSTANCE 100 /* of server 0 */

struct link_fixture;

/* A leg of version 7 of a model, whose name says how servers answer it. */
struct test_leg {
    struct eb_leg leg;
    struct link_fixture *fixture;
    int64_t index; /* of its only query; the server "echo" answers with it */
    unsigned take_count;
    unsigned over_count;
    bool abandons_others; /* as soon as it is over */
    bool sends_another;   /* as soon as it is over: "echo" to part 1 */
};

/* Servers with a link, which runs on a loop of the test's thread. */
struct link_fixture {
    struct fake_server servers[LINK_SERVERS];
    bool is_stopped[LINK_SERVERS];
    uv_loop_t loop;
    uv_prepare_t before_sleep;
    uv_timer_t tick; /* so that the loop never sleeps for long */
    struct eb_targets targets;
    struct eb_leg_link *link;
    size_t held_bytes; /* of the memory for messages */
    unsigned take_count;
    struct test_leg legs[LINK_LEGS_MAX];
    uint32_t count;              /* of legs */
    uint32_t wrong_count;        /* answers to come for which `take` returns false ... */
    enum eb_status wrong_status; /* ... with this error */
    uint32_t message_bytes;      /* of the last leg */
};

/* Runs the loop until the condition holds. */
#define RUN_LINK_UNTIL(f, condition)                                                               \
    do {                                                                                           \
        uint64_t end_ns = uv_hrtime() + LINK_PATIENCE_NS;                                          \
        while (!(condition)) {                                                                     \
            assert_true(uv_hrtime() < end_ns);                                                     \
            (void)uv_run(&(f)->loop, UV_RUN_ONCE);                                                 \
        }                                                                                          \
    } while (0)

/* ---- life ---- */

/* Returns a fixture with a loop alone. */
struct link_fixture *begin_link(void);
/* Starts the servers; the last ones are mute. Sets their addresses as the targets. */
void start_link_servers(struct link_fixture *f, int mute_count);
/* Returns options for a link to the targets. Its messages are counted. */
struct eb_leg_link_options make_link_options(struct link_fixture *f);
/* Starts servers, opens a link, and waits until the servers that are not mute are connected and
 * known. */
struct link_fixture *open_link(int mute_count);
/* Runs the loop until all handles are closed, and closes it. */
void end_link_loop(struct link_fixture *f);
void stop_link_server(struct link_fixture *f, int server);
/* Abandons the legs that are left, and checks that each has ended once and that the memory of all
 * messages is back. Releases everything. */
void close_link(struct link_fixture *f);

/* ---- routes ---- */

struct eb_route_table *create_routes(void);
/* Adds a version, whose digest is 10 times its number. Bit i of holders[p] says whether server i
 * has part p. */
void add_route(struct eb_route_table *table, const char *model, uint64_t version,
    const unsigned holders[LINK_PARTS]);
/* Replaces the link's table by one with version 7 of the models that tests use. */
void set_link_routes(struct link_fixture *f, unsigned part_0, unsigned part_1);

/* ---- legs ---- */

/* Makes a leg for version 7, without a message. */
struct test_leg *make_leg(struct link_fixture *f, const char *model, uint32_t part);
/* Makes the message of a leg, and takes an id for it unless it has one. */
void fill_leg(struct link_fixture *f, struct test_leg *test);
/* Fills and sends a leg, which must not be over before this returns. Returns it. */
struct test_leg *send_made(struct test_leg *test);
/* Makes and sends a leg. */
struct test_leg *send_leg(struct link_fixture *f, const char *model, uint32_t part);
/* Gives up the last leg, which the link has refused. */
void forget_refused(struct test_leg *test);
/* Abandons all legs that are not over. */
void abandon_legs(struct link_fixture *f);
void run_until_leg_over(struct test_leg *test);
/* Checks how a leg has ended. text: NULL if any will do. */
void expect_end(
    const struct test_leg *test, enum eb_status status, const char *text, uint32_t attempts);

/* ---- counts ---- */

/* Counts the servers that are connected and have told what they are. */
uint32_t count_connected(const struct link_fixture *f);
/* Counts the legs that have arrived at a server. */
unsigned count_calls(struct link_fixture *f, int server);
struct eb_leg_counters count_part(const struct link_fixture *f, uint32_t part);
/* Counts the resends of a part, for whatever reason. */
uint64_t count_resends(const struct link_fixture *f, uint32_t part);
