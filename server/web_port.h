/* The operators' port of a running server. It is opened before models are loaded, gets its sources
 * of stats after that, and is closed last.
 * Thread: main. Memory: on the heap from open to close. */
#pragma once

#include "server/config.h"
#include "server/publish/publisher.h"
#include "server/stats/stats_collector.h"

#include <stdbool.h>

struct eb_web_port; /* opaque; NULL if http_listen is none: all functions below accept it */

/* The sources of the port's stats. */
struct eb_web_port_source {
    struct eb_loop *const *loops;
    size_t loop_count;
    struct eb_executor *executor;
    struct eb_snapshot *snapshot; /* the current snapshot, which all readers already have */
};

/* Listens, and answers that it is loading. Returns false with nothing open if that fails; one log
 * line has said why and what to do. `isa` is borrowed until close. */
bool eb_web_port_open(struct eb_web_port **port, const struct eb_config *config, const char *isa);
/* Lets the port take stats. The loops must be running. */
void eb_web_port_attach(struct eb_web_port *port, const struct eb_web_port_source *source);
/* Switches to serving; call it once, after attach and before drain. */
void eb_web_port_serve(struct eb_web_port *port);
/* Passes facts that main knows to the port. Call it before detach, or if the start has failed. */
void eb_web_port_tell(struct eb_web_port *port, const struct eb_process_facts *facts);
/* Passes on what a router knows, and takes it over. Call it before detach. */
void eb_web_port_tell_route(struct eb_web_port *port, struct eb_route_facts *facts);
/* Fills in the reader through which the publisher reaches the port. Returns false if there is no
 * port. */
bool eb_web_port_reader(struct eb_web_port *port, struct eb_publisher_reader *reader);
/* Switches to draining; call it once. */
void eb_web_port_drain(struct eb_web_port *port);
/* Stops requesting stats from the loops. Call it before they end. */
void eb_web_port_detach(struct eb_web_port *port);
/* Closes the port. No mail from the publisher may be on its way to it. */
void eb_web_port_close(struct eb_web_port *port);
