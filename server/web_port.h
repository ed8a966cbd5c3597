/* The operators' port of a running server: opened before models are loaded, told what there is to
 * be counted once they are, closed last.
 * Thread: main. Memory: on the heap from open to close. */
#pragma once

#include "server/config.h"
#include "server/publish/publisher.h"
#include "server/stats/stats_collector.h"

#include <stdbool.h>

struct eb_web_port; /* opaque; NULL where http_listen is none: all below accept it */

/* What the port is to tell of. */
struct eb_web_port_source {
    struct eb_loop *const *loops;
    size_t loop_count;
    struct eb_executor *executor;
    struct eb_snapshot *snapshot; /* that all readers have */
};

/* Listens and answers, that it is loading. false: one log line has said what failed and what to do,
 * and nothing is open. `isa` is borrowed until close. */
bool eb_web_port_open(struct eb_web_port **port, const struct eb_config *config, const char *isa);
/* From now on it is serving. The loops run. */
void eb_web_port_attach(struct eb_web_port *port, const struct eb_web_port_source *source);
/* What main knows from now on; before detach, or where the start has failed. */
void eb_web_port_tell(struct eb_web_port *port, const struct eb_process_facts *facts);
/* For the publisher, among whose readers the port is. false: there is none. */
bool eb_web_port_reader(struct eb_web_port *port, struct eb_publisher_reader *reader);
/* From now on it is draining; once. */
void eb_web_port_drain(struct eb_web_port *port);
/* Before the loops end: they are asked no more. */
void eb_web_port_detach(struct eb_web_port *port);
/* When nothing is on its way to it from the publisher. */
void eb_web_port_close(struct eb_web_port *port);
