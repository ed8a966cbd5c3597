/* Where the server is called: the addresses of listen and admin_listen, or in place of either the
 * sockets for it that the service manager has passed.
 * Thread: main's. Memory: inside the struct. */
#pragma once

#include "server/config.h"
#include "server/net/loop.h"
#include "server/service_manager.h"

struct eb_ports {
    const struct eb_config *config;
    size_t passed_count;
    struct eb_listener passed[EB_PASSED_SOCKETS_MAX]; /* until they are a loop's */
    bool is_data_passed;                              /* so that nothing of listen is opened */
    bool is_admin_passed;                             /* nor of admin_listen */
};

/* Takes what was passed and sees whether all else can be had: before the models are loaded, which
 * may take minutes. false: one log line has said what cannot. `config` is borrowed. */
bool eb_ports_open(struct eb_ports *ports, const struct eb_config *config);
/* Opens all ports on their loops, of which there are config->loops: a TCP address on every one; a
 * unix socket, and one that was passed, on the first, which hands its connections round. false: one
 * log line has said what failed. */
bool eb_ports_listen(struct eb_ports *ports, struct eb_loop *const *loops);
/* Closes what was passed and is no loop's. Accepts a zeroed struct. */
void eb_ports_close(struct eb_ports *ports);
