#include "server/service_manager.h"

#include "server/models/snapshot.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT_BYTES 4096

static char folder[] = "/tmp/embag-test-service-manager-XXXXXX";
static struct sockaddr_un name = {.sun_family = AF_UNIX};
static int heard = -1;

static int open_socket(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(name.sun_path, sizeof name.sun_path, "%s/notify", folder);
    heard = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(heard >= 0);
    assert_int_equal(bind(heard, (const struct sockaddr *)&name, sizeof name), 0);
    return setenv("NOTIFY_SOCKET", name.sun_path, 1);
}

static int close_socket(void **state)
{
    (void)state;
    close(heard);
    unlink(name.sun_path);
    return rmdir(folder);
}

static void expect_nothing(void)
{
    char text[TEXT_BYTES];
    assert_int_equal(recv(heard, text, sizeof text, 0), -1);
}

static void expect_told(const char *wanted)
{
    char text[TEXT_BYTES];
    ssize_t size = recv(heard, text, sizeof text - 1, 0);
    assert_true(size > 0);
    text[size] = '\0';
    assert_string_equal(text, wanted);
}

static void says_how_far_a_load_is_and_asks_for_time(void **state)
{
    (void)state;
    eb_service_manager_loading("/models/m/7", UINT64_C(3) << 29, UINT64_C(10) << 30);
    expect_told("EXTEND_TIMEOUT_USEC=300000000\nSTATUS=Loading 1.5 of 10.0 GiB: /models/m/7");
}

static void lets_no_name_end_its_line(void **state)
{
    (void)state;
    eb_service_manager_loading("/m\nREADY=1", 0, 0);
    expect_told("EXTEND_TIMEOUT_USEC=300000000\nSTATUS=Loading 0.0 of 0.0 GiB: /m?READY=1");
}

static void cuts_a_long_status_between_characters(void **state)
{
    (void)state;
    char path[TEXT_BYTES / 2];
    for (size_t spaces = 0; spaces < 4; spaces++) {
        char text[TEXT_BYTES];
        memset(path, ' ', spaces);
        for (size_t i = spaces; i + 3 < sizeof path; i += 3) {
            memcpy(path + i, "\xe2\x82\xac", 4);
        }
        eb_service_manager_loading(path, 0, 0);
        ssize_t size = recv(heard, text, sizeof text, 0);
        assert_in_range(size, 500, 560);
        assert_memory_equal(text + size - 3, "\xe2\x82\xac", 3);
    }
}

static void names_what_is_served(void **state)
{
    (void)state;
    struct eb_model_version version = {.version = 12};
    struct eb_snapshot_model models[] = {
        {.name = "a", .served = &version}, {.name = "b"}, {.name = "c", .served = &version}};
    struct eb_snapshot snapshot = {.count = 3, .models = models};
    struct eb_snapshot nothing = {.count = 0};
    eb_service_manager_serving(&snapshot);
    expect_told("STATUS=Serving 2 of 3 models: a 12, c 12");
    eb_service_manager_serving(&nothing);
    expect_told("STATUS=Serving 0 of 0 models");
}

static void asks_for_the_time_that_the_end_takes(void **state)
{
    (void)state;
    eb_service_manager_stopping(30000);
    expect_told("STOPPING=1\nSTATUS=Draining\nEXTEND_TIMEOUT_USEC=45000000");
}

static void says_nothing_where_nobody_listens(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    eb_service_manager_ready();
    eb_service_manager_alive();
    setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1);
    eb_service_manager_ready();
    setenv("NOTIFY_SOCKET", name.sun_path, 1);
    expect_nothing();
    eb_service_manager_ready();
    expect_told("READY=1");
}

static void knows_how_long_it_may_be_silent(void **state)
{
    (void)state;
    char pid[32];
    assert_int_equal(eb_service_manager_silence_ms(), 0);
    setenv("WATCHDOG_USEC", "2500000", 1);
    assert_int_equal(eb_service_manager_silence_ms(), 2500);
    /* The watchdog is now meant for another process, the parent of this one. */
    snprintf(pid, sizeof pid, "%d", (int)getppid());
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(eb_service_manager_silence_ms(), 0);
    unsetenv("WATCHDOG_PID");
    unsetenv("WATCHDOG_USEC");
}

static void takes_no_sockets_that_are_for_another_process(void **state)
{
    (void)state;
    struct eb_passed_socket passed[EB_PASSED_SOCKETS_MAX];
    struct eb_failure failure;
    size_t count = 7;
    setenv("LISTEN_FDS", "2", 1);
    setenv("LISTEN_PID", "1", 1);
    assert_true(eb_service_manager_take_sockets(passed, &count, &failure));
    assert_int_equal(count, 0);
}

static void says_what_is_wrong_with_the_number_of_sockets(void **state)
{
    (void)state;
    struct eb_passed_socket passed[EB_PASSED_SOCKETS_MAX];
    struct eb_failure failure;
    size_t count = 7;
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "many", 1);
    assert_false(eb_service_manager_take_sockets(passed, &count, &failure));
    assert_int_equal(count, 0);
    assert_non_null(strstr(failure.text, "LISTEN_FDS"));
}

EB_TEST_GROUP(service_manager)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_how_far_a_load_is_and_asks_for_time),
        cmocka_unit_test(lets_no_name_end_its_line),
        cmocka_unit_test(cuts_a_long_status_between_characters),
        cmocka_unit_test(names_what_is_served),
        cmocka_unit_test(asks_for_the_time_that_the_end_takes),
        cmocka_unit_test(says_nothing_where_nobody_listens),
        cmocka_unit_test(knows_how_long_it_may_be_silent),
        cmocka_unit_test(takes_no_sockets_that_are_for_another_process),
        cmocka_unit_test(says_what_is_wrong_with_the_number_of_sockets),
    };
    return cmocka_run_group_tests(tests, open_socket, close_socket);
}
