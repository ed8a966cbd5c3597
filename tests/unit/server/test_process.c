#include "server/process.h"

#include "server/base/page_size.h"
#include "server/tables/numa_policy.h"
#include "tests/lib/capture.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"
#include "tests/unit/net/wire_peer.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#define TIMEOUT_MS 10000
#define LINES_BYTES 65536
#define EXIT_SKIPPED 77

static struct eb_scratch scratch;
static char lines[LINES_BYTES]; /* the log of the last start */

/* Reads settings that start successfully, with one thread and ports chosen by the system. */
static void configure(struct eb_config *config)
{
    static char repository[128];
    static char *arguments[] = {"embagd", "--model-repository", repository, "--listen",
        "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--loops", "2", "--threads", "1", "--isa",
        "ref"};
    static char *environment[] = {NULL};
    snprintf(repository, sizeof repository, "%s/models", scratch.root);
    assert_int_equal(
        eb_config_read(sizeof arguments / sizeof arguments[0], arguments, environment, config),
        EB_CONFIG_RUN);
}

static void set_text(char **text, const char *value)
{
    free(*text);
    *text = strdup(value);
    assert_non_null(*text);
}

/* Replaces the only address with a unix socket in the scratch directory. */
static void listen_at(struct eb_config *config, const char *name)
{
    char text[EB_ADDRESS_TEXT_BYTES];
    snprintf(text, sizeof text, "unix:%s/%s", scratch.root, name);
    set_text(&config->listen[0], text);
}

static size_t count_entries(const char *directory)
{
    size_t count = 0;
    DIR *entries = opendir(directory);
    assert_non_null(entries);
    while (readdir(entries)) {
        count++;
    }
    closedir(entries);
    return count;
}

/* Expects the test's process to have `count` threads, or soon to have. A thread that has been
 * joined may still be listed for a moment. */
static void expect_threads(size_t count)
{
    for (unsigned ms = 0; ms < 5000 && count_entries("/proc/self/task") != count; ms++) {
        uv_sleep(1);
    }
    assert_int_equal(count_entries("/proc/self/task"), count);
}

static size_t count_in_lines(const char *part)
{
    size_t count = 0;
    for (const char *at = lines; (at = strstr(at, part)); at++) {
        count++;
    }
    return count;
}

/* Expects the start to fail with one line that contains `part`, and to leave no descriptor and no
 * thread behind. */
static void expect_no_start(const struct eb_config *config, const char *part)
{
    struct eb_capture capture;
    size_t descriptors = count_entries("/proc/self/fd");
    size_t threads = count_entries("/proc/self/task");
    eb_capture_start(&capture, STDERR_FILENO);
    struct eb_process *process = eb_process_open(config);
    eb_capture_stop(&capture, lines, sizeof lines);
    assert_null(process);
    assert_int_equal(count_in_lines("event=start_failed"), 1);
    eb_scratch_expect(strstr(lines, "event=start_failed"), part);
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    expect_threads(threads);
}

/* The process that a test has started and not closed yet, for the teardown. */
static struct eb_process *open_process;

static void close_process(struct eb_process *process)
{
    open_process = NULL;
    eb_process_close(process);
}

static struct eb_process *expect_start(const struct eb_config *config)
{
    struct eb_capture capture;
    eb_capture_start(&capture, STDERR_FILENO);
    struct eb_process *process = eb_process_open(config);
    eb_capture_stop(&capture, lines, sizeof lines);
    assert_non_null(process);
    open_process = process;
    assert_int_equal(count_in_lines("event=start_failed"), 0);
    return process;
}

/* The settings lie on the heap, because the threads of a process that a failed test left running
 * still read them. */
static int set_up(void **state)
{
    struct eb_config *config = malloc(sizeof *config);
    if (!config) {
        return -1;
    }
    configure(config);
    *state = config;
    return 0;
}

static int tear_down(void **state)
{
    close_process(open_process);
    eb_config_deinit(*state);
    free(*state);
    return 0;
}

/* ---- starting ---- */

static void opens_and_closes_without_serving(void **state)
{
    struct eb_config *config = *state;
    struct eb_process *process = expect_start(config);
    assert_int_equal(count_in_lines("event=model_loaded"), 1);
    assert_int_equal(count_in_lines("event=listening"), 1);
    close_process(process);
    close_process(NULL);
}

/* The memory settings reach the tables: with EB_PAGE_SMALL no page is huge. */
static void keeps_tables_in_the_pages_that_are_asked_for(void **state)
{
    struct eb_config *config = *state;
    config->huge_pages = EB_PAGE_SMALL;
    struct eb_process *process = expect_start(config);
    eb_scratch_expect(strstr(lines, "event=model_loaded"), " bytes_2m=0 bytes_1g=0 ");
    assert_int_equal(count_in_lines("event=huge_pages_missing"), 0);
    close_process(process);
    config->huge_pages = EB_PAGE_1G;
    config->numa = EB_NUMA_LOCAL;
    process = expect_start(config);
    bool is_giant = !strstr(lines, " bytes_1g=0 ");
    assert_int_equal(count_in_lines("event=huge_pages_missing"), is_giant ? 0 : 1);
    close_process(process);
}

static void does_not_start_without_models(void **state)
{
    struct eb_config *config = *state;
    set_text(&config->model_repository, "/no/such/directory");
    expect_no_start(config, "/no/such/directory");
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&scratch, "empty", path);
    set_text(&config->model_repository, path);
    expect_no_start(config, "what=model_repository");
    eb_scratch_path(&scratch, "broken", path);
    set_text(&config->model_repository, path);
    expect_no_start(config, "table.npy");
}

static void does_not_start_with_an_unknown_instruction_set(void **state)
{
    struct eb_config *config = *state;
    /* An unusable instruction set is reported before the models are read. */
    set_text(&config->model_repository, "/nowhere");
    set_text(&config->isa, "mmx");
    expect_no_start(config, "what=isa");
    expect_no_start(config, "this build does not have mmx");
    expect_no_start(config, "the best of ref");
}

static void does_not_start_on_an_address_that_is_none(void **state)
{
    struct eb_config *config = *state;
    set_text(&config->listen[0], "256.0.0.1:0");
    expect_no_start(config, "256.0.0.1");
    set_text(&config->listen[0], "192.0.2.1:8600");
    expect_no_start(config, "192.0.2.1:8600");
    set_text(&config->listen[0], "127.0.0.1:0");
    set_text(&config->http_listen, "256.0.0.1:0");
    expect_no_start(config, "what=http_listen");
    set_text(&config->http_listen, "192.0.2.1:8601");
    expect_no_start(config, "192.0.2.1:8601");
}

static void needs_no_port_for_operators(void **state)
{
    struct eb_config *config = *state;
    set_text(&config->http_listen, EB_CONFIG_NONE);
    close_process(expect_start(config));
    assert_int_equal(count_in_lines("event=http_listening"), 0);
}

/* An unusable address is reported before the models are read. */
static void looks_at_addresses_first(void **state)
{
    struct eb_config *config = *state;
    set_text(&config->model_repository, "/nowhere");
    set_text(&config->listen[0], "unix:/proc/nowhere");
    expect_no_start(config, "what=listen");
}

/* Copies the address from the log line of an event. */
static void find_address(const char *event, char out[EB_ADDRESS_TEXT_BYTES])
{
    const char *line = strstr(lines, event);
    assert_non_null(line);
    const char *address = strstr(line, "address=");
    assert_non_null(address);
    address += strlen("address=");
    snprintf(out, EB_ADDRESS_TEXT_BYTES, "%.*s", (int)strcspn(address, " \n"), address);
}

static void does_not_start_where_another_listens(void **state)
{
    struct eb_config *config = *state;
    char taken[EB_ADDRESS_TEXT_BYTES];
    char http_taken[EB_ADDRESS_TEXT_BYTES];
    struct eb_process *other = expect_start(config);
    find_address("event=listening", taken);
    find_address("event=http_listening", http_taken);
    set_text(&config->listen[0], taken);
    expect_no_start(config, taken);
    set_text(&config->listen[0], "127.0.0.1:0");
    set_text(&config->http_listen, http_taken);
    expect_no_start(config, http_taken);
    expect_no_start(config, "what=http_listen");
    close_process(other);
    close_process(expect_start(config));
}

static void takes_back_earlier_addresses_where_a_later_one_fails(void **state)
{
    struct eb_config *config = *state;
    listen_at(config, "first");
    set_text(&config->listen[1], "192.0.2.1:8600");
    config->listen_count = 2;
    expect_no_start(config, "192.0.2.1:8600");
    char path[EB_SCRATCH_PATH_BYTES];
    eb_scratch_path(&scratch, "first", path);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- starting with too few resources ---- */

#define DESCRIPTORS_MAX 128

/* Takes all descriptors but `spare`. Returns how many it has taken. */
static int take_descriptors(int taken[DESCRIPTORS_MAX], int spare)
{
    int count = 0;
    for (int fd = dup(STDERR_FILENO); fd >= 0; fd = dup(STDERR_FILENO)) {
        taken[count++] = fd;
    }
    while (count > 0 && spare-- > 0) {
        close(taken[--count]);
    }
    return count;
}

/* Starts with more and more descriptors. Each failed start leaves nothing behind. In turn every
 * step that needs a descriptor fails. */
static void start_with_few_descriptors(const struct eb_config *config)
{
    bool failed_port = false;
    bool failed_loops = false;
    bool failed_listen = false;
    struct eb_process *process = NULL;
    struct rlimit limit = {.rlim_cur = DESCRIPTORS_MAX, .rlim_max = DESCRIPTORS_MAX};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int spare = 0; !process; spare++) {
        struct eb_capture capture;
        int taken[DESCRIPTORS_MAX];
        assert_true(spare < DESCRIPTORS_MAX);
        eb_capture_start(&capture, STDERR_FILENO);
        int taken_count = take_descriptors(taken, spare);
        process = eb_process_open(config);
        while (taken_count > 0) {
            close(taken[--taken_count]);
        }
        eb_capture_stop(&capture, lines, sizeof lines);
        assert_int_equal(count_in_lines("event=start_failed"), !process);
        failed_port |= !!strstr(lines, "what=http_listen");
        failed_loops |= !!strstr(lines, "what=loops");
        failed_listen |= !!strstr(lines, "what=listen");
    }
    assert_true(failed_port && failed_loops && failed_listen);
    close_process(process);
}

/* Keeps this process, a child, from starting threads. If the system allows them all the same, skips
 * the test. */
static void forbid_threads(void)
{
    static const struct rlimit none = {0};
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || (geteuid() == 0 && setuid(65534) != 0)) {
        _exit(EXIT_SKIPPED);
    }
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    if (child > 0) {
        _exit(EXIT_SKIPPED);
    }
}

static void start_without_threads(const struct eb_config *config)
{
    struct eb_config without_port = *config;
    without_port.http_listen = EB_CONFIG_NONE;
    forbid_threads();
    expect_no_start(config, "what=http_listen");
    expect_no_start(config, "its thread cannot be started: ");
    expect_no_start(&without_port, "what=threads");
}

/* Opens the process and then denies its loops their threads. */
static void run_without_threads(const struct eb_config *config)
{
    struct eb_process *process = expect_start(config);
    struct eb_capture capture;
    forbid_threads();
    eb_capture_start(&capture, STDERR_FILENO);
    alarm(TIMEOUT_MS / 1000);
    eb_process_run(process);
    eb_capture_stop(&capture, lines, sizeof lines);
    assert_int_equal(count_in_lines("event=start_failed"), 1);
    eb_scratch_expect(lines, "what=loops");
    close_process(process);
}

/* Runs `act` in a child, whose limits affect no other test. */
static void expect_in_child(
    const struct eb_config *config, void (*act)(const struct eb_config *config))
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        act(config);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == EXIT_SKIPPED) {
        print_message("the system lets this user start threads whatever its limit is\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void does_not_start_without_descriptors(void **state)
{
    expect_in_child(*state, start_with_few_descriptors);
}

static void does_not_start_without_threads(void **state)
{
    expect_in_child(*state, start_without_threads);
}

static void ends_at_once_where_its_loops_get_no_threads(void **state)
{
    expect_in_child(*state, run_without_threads);
}

/* ---- serving ---- */

/* A client that never answers a ping, and that signals the process to end. */
struct teller {
    struct eb_address address;
    char path[EB_SCRATCH_PATH_BYTES];
    bool tells_twice;
    bool saw_greeting;
    bool saw_end;
};

static void wait_until_gone(const char *path)
{
    uint64_t deadline_ns = uv_hrtime() + UINT64_C(1000000) * TIMEOUT_MS;
    while (access(path, F_OK) == 0 && uv_hrtime() < deadline_ns) {
        uv_sleep(1);
    }
}

/* Ends the process once it serves, whatever fails on the way, because an assert must not fire on
 * this thread. */
static void tell(void *context)
{
    struct teller *teller = context;
    char byte;
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool connected = connect(client, (const struct sockaddr *)&teller->address.socket_address,
                         teller->address.size) == 0;
    teller->saw_greeting =
        connected && send(client, WIRE_HELLO, WIRE_HELLO_BYTES, MSG_NOSIGNAL) == WIRE_HELLO_BYTES &&
        recv(client, &byte, 1, 0) == 1;
    kill(getpid(), SIGTERM);
    if (teller->tells_twice) {
        wait_until_gone(teller->path);
        kill(getpid(), SIGTERM);
    }
    teller->saw_end = wire_read_to_end(client, TIMEOUT_MS, NULL, 0);
    close(client);
}

/* Serves until the teller has ended the process. Leaves the log in `lines`. */
static void expect_served(struct eb_config *config, bool tells_twice)
{
    struct teller teller = {.tells_twice = tells_twice};
    struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
    struct eb_capture capture;
    uv_thread_t thread;
    struct eb_error error;
    listen_at(config, "socket");
    eb_scratch_path(&scratch, "socket", teller.path);
    assert_int_equal(eb_address_resolve(config->listen[0], addresses, &error), 1);
    teller.address = addresses[0];
    size_t descriptors = count_entries("/proc/self/fd");
    struct eb_process *process = expect_start(config);
    eb_capture_start(&capture, STDERR_FILENO);
    assert_int_equal(uv_thread_create(&thread, tell, &teller), 0);
    eb_process_run(process);
    uv_thread_join(&thread);
    eb_capture_stop(&capture, lines, sizeof lines);
    close_process(process);
    assert_true(teller.saw_greeting && teller.saw_end);
    assert_int_not_equal(access(teller.path, F_OK), 0);
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
}

static void serves_until_told_to_end_and_drains(void **state)
{
    struct eb_config *config = *state;
    config->limits.drain_timeout_ms = 100;
    config->limits.header_timeout_ms = 100; /* this makes ticks short */
    expect_served(config, false);
    assert_int_equal(count_in_lines("event=ready"), 1);
    assert_int_equal(count_in_lines("event=draining signal=SIGTERM"), 1);
    assert_int_equal(count_in_lines("event=cutting"), 0);
    assert_int_equal(count_in_lines("event=stopped"), 1);
}

static void cuts_when_told_twice(void **state)
{
    struct eb_config *config = *state;
    expect_served(config, true);
    assert_int_equal(count_in_lines("event=draining signal=SIGTERM"), 1);
    assert_int_equal(count_in_lines("event=cutting signal=SIGTERM"), 1);
    assert_int_equal(count_in_lines("event=stopped"), 1);
}

static int set_up_group(void **state)
{
    static const char dict[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2)}";
    (void)state;
    eb_scratch_init(&scratch);
    eb_scratch_write_npy(&scratch, "models/spec/1/table.npy", dict, 40);
    eb_scratch_write_npy(&scratch, "broken/spec/1/table.npy", dict, 39);
    eb_scratch_make_directory(&scratch, "empty");
    return chmod(scratch.root, 0755);
}

static int tear_down_group(void **state)
{
    (void)state;
    eb_scratch_deinit(&scratch);
    return 0;
}

EB_TEST_GROUP(process)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(opens_and_closes_without_serving),
        FIXTURE(keeps_tables_in_the_pages_that_are_asked_for),
        FIXTURE(does_not_start_without_models),
        FIXTURE(does_not_start_with_an_unknown_instruction_set),
        FIXTURE(does_not_start_on_an_address_that_is_none),
        FIXTURE(needs_no_port_for_operators),
        FIXTURE(looks_at_addresses_first),
        FIXTURE(does_not_start_where_another_listens),
        FIXTURE(takes_back_earlier_addresses_where_a_later_one_fails),
        FIXTURE(does_not_start_without_descriptors),
        FIXTURE(does_not_start_without_threads),
        FIXTURE(ends_at_once_where_its_loops_get_no_threads),
        FIXTURE(serves_until_told_to_end_and_drains),
        FIXTURE(cuts_when_told_twice),
    };
    return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}
