#include "server/web_port.h"

#include "server/admin/web.h"
#include "server/base/log.h"
#include "server/rpc/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Longer than the minute between two scrapes, so that connections of Prometheus and probes stay
 * open. */
#define IDLE_MS 75000
#define REQUEST_MS 10000
#define STATS_MS 5000
/* At most fifty stats requests a second, so that clients cannot take the loops' time. */
#define INTERVAL_MS 20

struct eb_web_port {
    struct eb_stats_collector *collector;
    struct eb_web *web;
};

static bool fail_web_port(const struct eb_config *config, const char *why)
{
    eb_log(EB_LOG_ERROR, "start_failed", eb_log_text("what", "http_listen"),
        eb_log_text("address", config->http_listen), eb_log_text("reason", why),
        eb_log_text("remedy",
            "make this address available, or set --http-listen to another one or to none"));
    return false;
}

static void log_addresses(const struct eb_web *web)
{
    const struct eb_address *address;
    for (size_t i = 0; (address = eb_web_address(web, i)); i++) {
        char text[EB_ADDRESS_TEXT_BYTES];
        eb_address_format(address, text);
        eb_log(EB_LOG_INFO, "http_listening", eb_log_text("address", text));
    }
}

static bool open_web(struct eb_web_port *port, const struct eb_config *config, const char *isa,
    struct eb_failure *failure)
{
    struct eb_address addresses[EB_ADDRESS_RESOLVED_MAX];
    struct eb_error error;
    size_t count = eb_address_resolve(config->http_listen, addresses, &error);
    if (count == 0) {
        return eb_failure_set(failure, "%s", error.text);
    }
    struct eb_web_options options = {
        .facts = {.version = EMBAG_VERSION, .build = eb_config_build(), .isa = isa},
        .times = {.request_ms = REQUEST_MS,
            .idle_ms = IDLE_MS,
            .stats_ms = STATS_MS,
            .interval_ms = INTERVAL_MS},
        .address_count = count,
        .addresses = addresses,
        .collector = port->collector,
    };
    port->web = eb_web_open(&options, failure);
    return port->web;
}

bool eb_web_port_open(struct eb_web_port **out, const struct eb_config *config, const char *isa)
{
    struct eb_failure failure;
    *out = NULL;
    if (strcmp(config->http_listen, EB_CONFIG_NONE) == 0) {
        return true;
    }
    struct eb_web_port *port = calloc(1, sizeof *port);
    if (port) {
        port->collector = eb_stats_collector_create(&eb_service_stats);
    }
    if (!port || !port->collector) {
        free(port);
        return fail_web_port(config, strerror(ENOMEM));
    }
    if (!open_web(port, config, isa, &failure)) {
        eb_web_port_close(port);
        return fail_web_port(config, failure.text);
    }
    log_addresses(port->web);
    *out = port;
    return true;
}

void eb_web_port_attach(struct eb_web_port *port, const struct eb_web_port_source *source)
{
    if (port) {
        eb_stats_collector_attach(
            port->collector, source->loops, source->loop_count, source->executor, source->snapshot);
    }
}

void eb_web_port_serve(struct eb_web_port *port)
{
    if (port) {
        eb_stats_collector_set_phase(port->collector, EB_STATS_SERVING);
    }
}

static struct eb_snapshot *swap_snapshot(void *collector, struct eb_snapshot *snapshot)
{
    return eb_stats_collector_swap(collector, snapshot);
}

bool eb_web_port_reader(struct eb_web_port *port, struct eb_publisher_reader *reader)
{
    if (port) {
        *reader =
            (struct eb_publisher_reader){eb_web_mailbox(port->web), swap_snapshot, port->collector};
    }
    return port;
}

void eb_web_port_tell(struct eb_web_port *port, const struct eb_process_facts *facts)
{
    if (port) {
        eb_stats_collector_set_facts(port->collector, facts);
    }
}

void eb_web_port_tell_route(struct eb_web_port *port, struct eb_route_facts *facts)
{
    if (port) {
        eb_stats_collector_set_route(port->collector, facts);
    } else {
        eb_route_facts_drop(facts);
    }
}

void eb_web_port_drain(struct eb_web_port *port)
{
    if (port) {
        eb_stats_collector_set_phase(port->collector, EB_STATS_DRAINING);
    }
}

void eb_web_port_detach(struct eb_web_port *port)
{
    if (port) {
        eb_stats_collector_detach(port->collector);
    }
}

void eb_web_port_close(struct eb_web_port *port)
{
    if (port) {
        eb_web_close(port->web);
        eb_stats_collector_destroy(port->collector);
        free(port);
    }
}
