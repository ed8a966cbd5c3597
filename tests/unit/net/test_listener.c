#include "server/net/listener.h"

#include "tests/lib/test_group.h"
#include "tests/unit/net/wire_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 10000

/* A listener on a loop of its own, and what it has reported. */
struct watched {
    struct eb_listener listener;
    uv_loop_t loop;
    int accepted[8]; /* non-blocking sockets */
    int accepted_count;
    int exhausted_count;
};

static char folder[] = "/tmp/embag-test-listener-XXXXXX";
static struct eb_failure failure;

static struct eb_address resolve_listener(const char *text)
{
    struct eb_error error;
    struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
    assert_int_equal(eb_address_resolve(text, addresses, &error), 1);
    return addresses[0];
}

static struct eb_address unix_address(const char *name)
{
    char text[EB_ADDRESS_TEXT_BYTES];
    snprintf(text, sizeof text, "unix:%s/%s", folder, name);
    return resolve_listener(text);
}

static const char *path_of(const struct eb_address *address)
{
    return ((const struct sockaddr_un *)&address->socket_address)->sun_path;
}

static unsigned port_of(const struct eb_address *address)
{
    return ntohs(((const struct sockaddr_in *)&address->socket_address)->sin_port);
}

static bool exists(const struct eb_address *address)
{
    struct stat status;
    return lstat(path_of(address), &status) == 0;
}

/* Opens a socket as another program would: bound and, if it is a stream socket, listening. */
static int bind_plain(const struct eb_address *address, int type)
{
    int fd = socket(address->socket_address.ss_family, type | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address->socket_address, address->size), 0);
    if (type == SOCK_STREAM) {
        assert_int_equal(listen(fd, 1), 0);
    }
    return fd;
}

static int open_listener(struct eb_listener *listener, const struct eb_address *address, bool probe)
{
    memset(failure.text, 0, sizeof failure.text);
    return eb_listener_open(
        listener, address, (struct eb_listener_options){.probe = probe}, &failure);
}

/* ---- passed sockets ---- */

/* Opens a listening unix socket as a service manager would. */
static int make_passed(struct eb_address *address, mode_t mode)
{
    *address = unix_address("passed");
    int fd = bind_plain(address, SOCK_STREAM);
    assert_int_equal(chmod(path_of(address), mode), 0);
    return fd;
}

static void adopts_a_socket_and_leaves_its_file(void **state)
{
    (void)state;
    struct eb_address address;
    struct eb_listener listener;
    int fd = make_passed(&address, 0600);
    assert_int_equal(eb_listener_adopt(&listener, fd, true, &failure), 0);
    assert_int_equal(listener.socket, fd);
    assert_true(listener.is_admin);
    assert_string_equal(path_of(&listener.address), path_of(&address));
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    eb_listener_close(&listener);
    assert_int_equal(listener.socket, -1);
    assert_true(exists(&address));
    assert_int_equal(unlink(path_of(&address)), 0);
}

static void expect_not_adopted(int fd, bool is_admin, const char *part)
{
    struct eb_listener listener;
    assert_true(eb_listener_adopt(&listener, fd, is_admin, &failure) < 0);
    assert_non_null(strstr(failure.text, part));
    assert_int_equal(listener.socket, -1);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void refuses_to_adopt_what_does_not_listen(void **state)
{
    (void)state;
    struct eb_address address = resolve_listener("127.0.0.1:0");
    expect_not_adopted(bind_plain(&address, SOCK_DGRAM), false, "not a listening stream socket");
    expect_not_adopted(socket(AF_INET, SOCK_STREAM, 0), false, "not a listening stream socket");
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    expect_not_adopted(file, false, "getsockname");
    file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct eb_listener listener;
    assert_true(eb_listener_adopt(&listener, file, false, &failure) < 0);
    assert_int_equal(listener.address.size, 0);
}

static void refuses_to_adopt_an_admin_socket_that_others_may_use(void **state)
{
    (void)state;
    struct eb_address address = resolve_listener("127.0.0.1:0");
    expect_not_adopted(bind_plain(&address, SOCK_STREAM), true, "not a unix socket");
    expect_not_adopted(make_passed(&address, 0666), true, "every user can connect");
    assert_int_equal(unlink(path_of(&address)), 0);
    int fd = make_passed(&address, 0660);
    assert_int_equal(unlink(path_of(&address)), 0);
    expect_not_adopted(fd, true, "every user can connect");
}

/* A path may fill sun_path to the last byte, which leaves no room for a NUL. */
static void adopts_an_admin_socket_of_the_longest_path(void **state)
{
    (void)state;
    char path[sizeof((struct sockaddr_un *)0)->sun_path + 1] = "";
    struct eb_address address = unix_address("p");
    socklen_t size = sizeof(struct sockaddr_un);
    struct sockaddr_un *name = (struct sockaddr_un *)&address.socket_address;
    size_t length = strlen(name->sun_path);
    memset(name->sun_path + length, 'p', sizeof name->sun_path - length);
    memcpy(path, name->sun_path, sizeof name->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)name, size), 0);
    assert_int_equal(listen(fd, 1), 0);
    /* On the heap, where a sanitizer finds a read past the end. */
    struct eb_listener *listener = malloc(sizeof *listener);
    assert_non_null(listener);
    int code = eb_listener_adopt(listener, fd, true, &failure);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(code, 0);
    eb_listener_close(listener);
    free(listener);
}

/* ---- opening ---- */

static void replaces_port_0_by_the_one_given(void **state)
{
    (void)state;
    struct eb_listener listener;
    struct eb_address address = resolve_listener("127.0.0.1:0");
    assert_int_equal(open_listener(&listener, &address, true), 0);
    assert_int_not_equal(port_of(&listener.address), 0);
    int client = wire_connect(&listener.address, 0);
    assert_true(client >= 0);
    close(client);
    eb_listener_close(&listener);
    assert_int_equal(listener.socket, -1);
    assert_int_equal(wire_connect(&listener.address, 0), -1);
    eb_listener_close(&listener);
}

static void refuses_a_port_in_use(void **state)
{
    (void)state;
    struct eb_address address = resolve_listener("127.0.0.1:0");
    int plain = bind_plain(&address, SOCK_STREAM);
    assert_int_equal(
        getsockname(plain, (struct sockaddr *)&address.socket_address, &address.size), 0);
    for (int probe = 0; probe < 2; probe++) {
        struct eb_listener listener;
        assert_int_equal(open_listener(&listener, &address, probe), -EADDRINUSE);
        assert_int_equal(listener.socket, -1);
        assert_non_null(strstr(failure.text, "bind"));
        assert_non_null(strstr(failure.text, strerror(EADDRINUSE)));
        eb_listener_close(&listener);
    }
    close(plain);
}

static void shares_a_port_with_listeners_of_its_own_only(void **state)
{
    (void)state;
    struct eb_listener first;
    struct eb_listener second;
    struct eb_listener foreign;
    struct eb_address address = resolve_listener("127.0.0.1:0");
    assert_int_equal(open_listener(&first, &address, true), 0);
    assert_int_equal(open_listener(&second, &first.address, false), 0);
    assert_int_equal(port_of(&second.address), port_of(&first.address));
    assert_int_equal(open_listener(&foreign, &first.address, true), -EADDRINUSE);
    eb_listener_close(&first);
    assert_int_equal(open_listener(&foreign, &second.address, true), -EADDRINUSE);
    eb_listener_close(&second);
    assert_int_equal(open_listener(&foreign, &second.address, true), 0);
    eb_listener_close(&foreign);
}

static void refuses_an_address_that_is_not_of_this_machine(void **state)
{
    (void)state;
    struct eb_listener listener;
    struct eb_address address = resolve_listener("192.0.2.1:0");
    assert_int_equal(open_listener(&listener, &address, true), -EADDRNOTAVAIL);
    assert_int_equal(listener.socket, -1);
}

static void removes_a_unix_sockets_file_when_closed(void **state)
{
    (void)state;
    struct eb_listener listener;
    struct eb_address address = unix_address("removed");
    assert_int_equal(open_listener(&listener, &address, true), 0);
    assert_true(exists(&address));
    int client = wire_connect(&address, 0);
    assert_true(client >= 0);
    close(client);
    eb_listener_close(&listener);
    assert_false(exists(&address));
}

static void keeps_an_admin_socket_for_its_owner(void **state)
{
    (void)state;
    static const struct eb_listener_options options = {.probe = true, .is_admin = true};
    struct eb_listener listener;
    struct stat status;
    struct eb_address address = unix_address("admin");
    mode_t before = umask(0);
    assert_int_equal(eb_listener_open(&listener, &address, options, &failure), 0);
    umask(before);
    assert_true(listener.is_admin);
    assert_int_equal(lstat(path_of(&address), &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    eb_listener_close(&listener);
}

static void closes_a_unix_socket_whose_file_is_gone(void **state)
{
    (void)state;
    struct eb_listener listener;
    struct eb_address address = unix_address("gone");
    assert_int_equal(open_listener(&listener, &address, true), 0);
    assert_int_equal(unlink(path_of(&address)), 0);
    eb_listener_close(&listener);
    assert_int_equal(listener.socket, -1);
}

static void replaces_a_stale_unix_socket(void **state)
{
    (void)state;
    struct eb_listener listener;
    struct eb_address address = unix_address("stale");
    close(bind_plain(&address, SOCK_STREAM));
    assert_true(exists(&address));
    assert_int_equal(open_listener(&listener, &address, true), 0);
    int client = wire_connect(&address, 0);
    assert_true(client >= 0);
    close(client);
    eb_listener_close(&listener);
}

/* Expects opening to fail and the file to stay. */
static void expect_listen_refused(const struct eb_address *address)
{
    struct eb_listener listener;
    assert_int_equal(open_listener(&listener, address, true), -EADDRINUSE);
    assert_int_equal(listener.socket, -1);
    assert_true(exists(address));
    eb_listener_close(&listener);
    assert_true(exists(address));
}

static void refuses_a_live_unix_socket(void **state)
{
    (void)state;
    struct eb_listener listener;
    struct eb_address address = unix_address("live");
    assert_int_equal(open_listener(&listener, &address, true), 0);
    expect_listen_refused(&address);
    eb_listener_close(&listener);
}

static void refuses_a_live_unix_socket_whose_backlog_is_full(void **state)
{
    (void)state;
    struct eb_address address = unix_address("busy");
    int clients[64];
    int count = 0;
    int plain = bind_plain(&address, SOCK_STREAM);
    do {
        clients[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(clients[count] >= 0);
    } while (connect(clients[count++], (const struct sockaddr *)&address.socket_address,
                 address.size) == 0 &&
             count < 64);
    assert_in_range(count, 2, 63);
    expect_listen_refused(&address);
    while (count > 0) {
        close(clients[--count]);
    }
    close(plain);
    assert_int_equal(unlink(path_of(&address)), 0);
}

static void refuses_a_unix_socket_of_another_type(void **state)
{
    (void)state;
    struct eb_address address = unix_address("datagrams");
    int plain = bind_plain(&address, SOCK_DGRAM);
    expect_listen_refused(&address);
    close(plain);
    assert_int_equal(unlink(path_of(&address)), 0);
}

static void refuses_a_file_that_is_no_socket(void **state)
{
    (void)state;
    struct eb_address address = unix_address("file");
    FILE *file = fopen(path_of(&address), "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    expect_listen_refused(&address);
    assert_int_equal(unlink(path_of(&address)), 0);
    assert_int_equal(symlink("/etc/hostname", path_of(&address)), 0);
    expect_listen_refused(&address);
    assert_int_equal(unlink(path_of(&address)), 0);
}

static void refuses_a_unix_socket_in_a_directory_that_is_missing(void **state)
{
    (void)state;
    struct eb_listener listener;
    struct eb_address address = unix_address("missing/socket");
    assert_int_equal(open_listener(&listener, &address, true), -ENOENT);
    assert_int_equal(listener.socket, -1);
}

/* ---- accepting ---- */

static void on_accept(struct eb_listener *listener, int socket)
{
    struct watched *watched = listener->context;
    if (watched->accepted_count < 8) {
        watched->accepted[watched->accepted_count++] = socket;
    } else {
        close(socket);
    }
}

static void on_exhausted(struct eb_listener *listener)
{
    struct watched *watched = listener->context;
    watched->exhausted_count++;
}

static void watch(struct watched *watched, const struct eb_address *address)
{
    *watched = (struct watched){0};
    assert_int_equal(open_listener(&watched->listener, address, true), 0);
    watched->listener.on_accept = on_accept;
    watched->listener.on_exhausted = on_exhausted;
    watched->listener.context = watched;
    assert_int_equal(uv_loop_init(&watched->loop), 0);
    assert_int_equal(eb_listener_start(&watched->listener, &watched->loop), 0);
}

/* Runs the loop until *count is `wanted`, at most for TIMEOUT_MS. */
static bool turn_until(struct watched *watched, const int *count, int wanted)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    while (*count < wanted && uv_hrtime() < deadline_ns) {
        uv_run(&watched->loop, UV_RUN_NOWAIT);
    }
    return *count == wanted;
}

static void unwatch(struct watched *watched)
{
    eb_listener_stop(&watched->listener);
    eb_listener_stop(&watched->listener);
    uv_run(&watched->loop, UV_RUN_DEFAULT);
    assert_int_equal(watched->listener.socket, -1);
    assert_int_equal(uv_loop_close(&watched->loop), 0);
    while (watched->accepted_count > 0) {
        close(watched->accepted[--watched->accepted_count]);
    }
}

static void expect_delivery(const struct eb_address *address)
{
    struct watched watched;
    char byte = 0;
    watch(&watched, address);
    for (int i = 0; i < 3; i++) {
        int client = wire_connect(&watched.listener.address, 0);
        assert_true(client >= 0);
        assert_true(turn_until(&watched, &watched.accepted_count, i + 1));
        assert_int_equal(recv(watched.accepted[i], &byte, 1, 0), -1);
        assert_int_equal(errno, EAGAIN);
        wire_send(watched.accepted[i], "x", 1);
        assert_int_equal(recv(client, &byte, 1, 0), 1);
        assert_int_equal(byte, 'x');
        close(client);
    }
    unwatch(&watched);
    assert_int_equal(watched.exhausted_count, 0);
}

static void delivers_connected_sockets_that_do_not_block(void **state)
{
    (void)state;
    struct eb_address tcp = resolve_listener("127.0.0.1:0");
    struct eb_address local = unix_address("delivers");
    expect_delivery(&tcp);
    expect_delivery(&local);
}

static void accepts_one_connection_per_turn_if_told_to(void **state)
{
    (void)state;
    struct watched watched;
    struct eb_address address = resolve_listener("127.0.0.1:0");
    int clients[4];
    watch(&watched, &address);
    watched.listener.accepts_one = true;
    for (int i = 0; i < 4; i++) {
        clients[i] = wire_connect(&watched.listener.address, 0);
    }
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    while (watched.accepted_count < 4) {
        int before = watched.accepted_count;
        uv_run(&watched.loop, UV_RUN_NOWAIT);
        assert_in_range(watched.accepted_count, before, before + 1);
        assert_true(uv_hrtime() < deadline_ns);
    }
    for (int i = 0; i < 4; i++) {
        close(clients[i]);
    }
    unwatch(&watched);
}

static void refuses_connections_once_stopped(void **state)
{
    (void)state;
    struct watched watched;
    struct eb_address address = resolve_listener("127.0.0.1:0");
    watch(&watched, &address);
    address = watched.listener.address;
    unwatch(&watched);
    assert_int_equal(wire_connect(&address, 0), -1);
    address = unix_address("stopped");
    watch(&watched, &address);
    unwatch(&watched);
    assert_false(exists(&address));
    eb_listener_resume(&watched.listener);
}

/* Takes every free file descriptor. Returns one of them, which may be closed again. */
static int fill_descriptors(void)
{
    struct rlimit limit = {.rlim_cur = 64, .rlim_max = 64};
    int last = -1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int fd = dup(STDERR_FILENO); fd >= 0; fd = dup(STDERR_FILENO)) {
        last = fd;
    }
    assert_int_equal(errno, EMFILE);
    return last;
}

static void exhaust_and_resume(void)
{
    struct watched watched;
    struct eb_address address = resolve_listener("127.0.0.1:0");
    watch(&watched, &address);
    int client = wire_connect(&watched.listener.address, 0);
    int spare = fill_descriptors();
    assert_true(turn_until(&watched, &watched.exhausted_count, 1));
    for (int i = 0; i < 100; i++) {
        uv_run(&watched.loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(watched.exhausted_count, 1);
    eb_listener_resume(&watched.listener);
    assert_true(turn_until(&watched, &watched.exhausted_count, 2));
    assert_int_equal(watched.accepted_count, 0);
    close(spare);
    eb_listener_resume(&watched.listener);
    assert_true(turn_until(&watched, &watched.accepted_count, 1));
    unwatch(&watched);
    close(client);
}

/* Runs in a child, because the limit of open files cannot be raised again. */
static void rests_when_out_of_sockets_until_resumed(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        exhaust_and_resume();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

EB_TEST_GROUP(listener)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaces_port_0_by_the_one_given),
        cmocka_unit_test(refuses_a_port_in_use),
        cmocka_unit_test(shares_a_port_with_listeners_of_its_own_only),
        cmocka_unit_test(refuses_an_address_that_is_not_of_this_machine),
        cmocka_unit_test(removes_a_unix_sockets_file_when_closed),
        cmocka_unit_test(keeps_an_admin_socket_for_its_owner),
        cmocka_unit_test(closes_a_unix_socket_whose_file_is_gone),
        cmocka_unit_test(replaces_a_stale_unix_socket),
        cmocka_unit_test(refuses_a_live_unix_socket),
        cmocka_unit_test(refuses_a_live_unix_socket_whose_backlog_is_full),
        cmocka_unit_test(refuses_a_unix_socket_of_another_type),
        cmocka_unit_test(refuses_a_file_that_is_no_socket),
        cmocka_unit_test(refuses_a_unix_socket_in_a_directory_that_is_missing),
        cmocka_unit_test(adopts_a_socket_and_leaves_its_file),
        cmocka_unit_test(adopts_an_admin_socket_of_the_longest_path),
        cmocka_unit_test(refuses_to_adopt_what_does_not_listen),
        cmocka_unit_test(refuses_to_adopt_an_admin_socket_that_others_may_use),
        cmocka_unit_test(delivers_connected_sockets_that_do_not_block),
        cmocka_unit_test(accepts_one_connection_per_turn_if_told_to),
        cmocka_unit_test(refuses_connections_once_stopped),
        cmocka_unit_test(rests_when_out_of_sockets_until_resumed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
