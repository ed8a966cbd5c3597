/* Opens the addresses that the server listens on: those of listen and admin_listen. If the service
 * manager has passed sockets for one of these settings, they replace its addresses.
 * Thread: main's. Memory: inside the struct. */
#pragma once

#include "server/config.h"
#include "server/net/loop.h"
#include "server/service_manager.h"

struct eb_ports {
    const struct eb_config *config;
    size_t passed_count;
    struct eb_listener passed[EB_PASSED_SOCKETS_MAX]; /* until a loop takes them */
    bool is_data_passed;  /* passed sockets replace the addresses of listen */
    bool is_admin_passed; /* a passed socket replaces admin_listen */
};

/* Takes the passed sockets and tries all other addresses. Called before the models are loaded,
 * which may take minutes. Returns false if one cannot be used; one log line has said which.
 * `config` is borrowed. */
bool eb_ports_open(struct eb_ports *ports, const struct eb_config *config);
/* Opens all ports on the config->loops loops: a TCP address on every loop; a unix socket and a
 * passed socket on the first, which hands out its connections to all. Returns false if that fails;
 * one log line has said why. */
bool eb_ports_listen(struct eb_ports *ports, struct eb_loop *const *loops);
/* Closes the passed sockets that no loop has taken. Accepts a zeroed struct. */
void eb_ports_close(struct eb_ports *ports);
