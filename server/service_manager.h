/* Talks to the service manager that has started the process, systemd, and takes the sockets that it
 * passes on. If there is none, nothing is reported and no socket is passed.
 * Thread: main's. Memory: none. */
#pragma once

#include "server/base/failure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eb_snapshot;

#define EB_PASSED_SOCKETS_MAX 32

/* A socket that listens already. */
struct eb_passed_socket {
    int socket;
    bool is_admin; /* true if FileDescriptorName is embag-admin, false if it is embag-data */
};

/* Takes the sockets that were passed; call it once. The caller owns them. Returns false with all
 * sockets closed and *count 0 if one has a name other than these two, or if there are too many;
 * *failure says which. */
bool eb_service_manager_take_sockets(
    struct eb_passed_socket out[EB_PASSED_SOCKETS_MAX], size_t *count, struct eb_failure *failure);

/* Reports the progress of a load. Extends the time that the start may take. */
void eb_service_manager_loading(const char *path, uint64_t done_bytes, uint64_t total_bytes);
/* Reports what is served from now on, for people who ask for the service's status. */
void eb_service_manager_serving(const struct eb_snapshot *snapshot);
/* Reports that the start, or a reload, is over. */
void eb_service_manager_ready(void);
/* Reports that settings are being read again. eb_service_manager_ready must follow. */
void eb_service_manager_reloading(void);
/* Reports that the shutdown has begun and may take `timeout_ms`. */
void eb_service_manager_stopping(uint64_t timeout_ms);

/* Returns how long the process may go without eb_service_manager_alive before it is killed because
 * it hangs. 0 means for ever. */
uint64_t eb_service_manager_silence_ms(void);
void eb_service_manager_alive(void);
