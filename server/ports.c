#include "server/ports.h"

#include "server/base/log.h"

#include <unistd.h>

/* How an address or a socket is used. `loops` is NULL if the server does not listen on it yet and
 * only tries whether it can. */
struct use {
    struct eb_ports *ports;
    struct eb_loop *const *loops;
    bool is_admin;
};

static void log_no_address(const struct eb_address *address, const char *why)
{
    char text[EB_ADDRESS_TEXT_BYTES];
    eb_address_format(address, text);
    eb_log(EB_LOG_ERROR, "start_failed", eb_log_text("what", "listen"),
        eb_log_text("address", text), eb_log_text("reason", why),
        eb_log_text("remedy", "stop the process that uses the address, or choose another --listen "
                              "or --admin-listen"));
}

static void log_listening(const struct eb_listener *listener)
{
    char text[EB_ADDRESS_TEXT_BYTES];
    eb_address_format(&listener->address, text);
    eb_log(EB_LOG_INFO, listener->is_admin ? "admin_listening" : "listening",
        eb_log_text("address", text),
        listener->is_passed ? eb_log_number("passed", 1) : (struct eb_log_field){0});
}

/* ---- addresses of the settings ---- */

static bool try_address(const struct use *use, const struct eb_address *address)
{
    struct eb_listener_options options = {.probe = true, .is_admin = use->is_admin};
    struct eb_listener listener;
    struct eb_failure failure;
    if (eb_listener_open(&listener, address, options, &failure) < 0) {
        log_no_address(address, failure.text);
        return false;
    }
    eb_listener_close(&listener);
    return true;
}

static bool listen_on(const struct use *use, const struct eb_address *address)
{
    struct eb_listener listener = {.address = *address};
    bool is_unix = eb_address_is_unix(address);
    uint32_t count = is_unix ? 1 : use->ports->config->loops;
    struct eb_failure failure;
    for (uint32_t i = 0; i < count; i++) {
        struct eb_listener_options options = {.probe = i == 0, .is_admin = use->is_admin};
        struct eb_address bound = listener.address;
        int rc = eb_listener_open(&listener, &bound, options, &failure);
        if (rc == 0) {
            rc = eb_loop_listen(use->loops[i], &listener, is_unix);
            if (rc < 0) {
                eb_failure_set(&failure, "%s", uv_strerror(rc));
                eb_listener_close(&listener);
            }
        }
        if (rc < 0) {
            log_no_address(address, failure.text);
            return false;
        }
    }
    log_listening(&listener);
    return true;
}

/* Tries, or listens on, every address that `text` stands for, until one cannot be used. */
static bool visit_text(const struct use *use, const char *text)
{
    struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
    struct eb_error error;
    size_t count = eb_address_resolve(text, addresses, &error);
    if (count == 0) {
        eb_log_fail_start(text, error.text, "give --listen HOST:PORT, [V6]:PORT or unix:PATH");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!(use->loops ? listen_on : try_address)(use, &addresses[i])) {
            return false;
        }
    }
    return true;
}

static bool visit_addresses(struct eb_ports *ports, struct eb_loop *const *loops)
{
    const struct eb_config *config = ports->config;
    struct use data = {ports, loops, false};
    struct use admin = {ports, loops, true};
    for (size_t i = 0; i < config->listen_count && !ports->is_data_passed; i++) {
        if (!visit_text(&data, config->listen[i])) {
            return false;
        }
    }
    return !config->admin_listen || ports->is_admin_passed ||
           visit_text(&admin, config->admin_listen);
}

/* ---- sockets that were passed ---- */

static void log_bad_socket(const struct eb_listener *listener, const char *why)
{
    char text[EB_ADDRESS_TEXT_BYTES] = "unknown";
    if (listener->address.size > 0) {
        eb_address_format(&listener->address, text);
    }
    eb_log(EB_LOG_ERROR, "start_failed", eb_log_text("what", "passed sockets"),
        eb_log_text("address", text), eb_log_text("reason", why),
        eb_log_text("remedy",
            "correct the socket unit: ListenStream=, which must be a path for "
            "FileDescriptorName=embag-admin, with SocketMode=0600 and SocketUser=embag"));
}

static bool adopt(struct eb_ports *ports, const struct eb_passed_socket *passed)
{
    struct eb_listener *listener = &ports->passed[ports->passed_count];
    struct eb_failure failure;
    int rc = eb_listener_adopt(listener, passed->socket, passed->is_admin, &failure);
    if (rc < 0) {
        log_bad_socket(listener, failure.text);
        return false;
    }
    ports->passed_count++;
    ports->is_data_passed |= !passed->is_admin;
    ports->is_admin_passed |= passed->is_admin;
    return true;
}

static bool take_passed(struct eb_ports *ports)
{
    struct eb_passed_socket passed[EB_PASSED_SOCKETS_MAX];
    struct eb_failure failure;
    size_t count;
    bool taken = eb_service_manager_take_sockets(passed, &count, &failure);
    if (!taken) {
        eb_log_fail_start("passed sockets", failure.text,
            "set FileDescriptorName=embag-data, or embag-admin, in the socket unit");
    }
    for (size_t i = 0; i < count; i++) {
        if (taken) {
            taken = adopt(ports, &passed[i]);
        } else {
            close(passed[i].socket);
        }
    }
    return taken;
}

static bool listen_passed(struct eb_ports *ports, struct eb_loop *first)
{
    bool is_shared = true;
    for (size_t i = 0; i < ports->passed_count; i++) {
        struct eb_listener *listener = &ports->passed[i];
        int rc = eb_loop_listen(first, listener, is_shared);
        if (rc < 0) {
            log_no_address(&listener->address, uv_strerror(rc));
            return false;
        }
        listener->socket = -1;
        log_listening(listener);
    }
    return true;
}

/* ---- life ---- */

bool eb_ports_open(struct eb_ports *ports, const struct eb_config *config)
{
    *ports = (struct eb_ports){.config = config};
    return take_passed(ports) && visit_addresses(ports, NULL);
}

bool eb_ports_listen(struct eb_ports *ports, struct eb_loop *const *loops)
{
    return listen_passed(ports, loops[0]) && visit_addresses(ports, loops);
}

void eb_ports_close(struct eb_ports *ports)
{
    for (size_t i = 0; i < ports->passed_count; i++) {
        eb_listener_close(&ports->passed[i]);
    }
    ports->passed_count = 0;
}
