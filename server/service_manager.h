/* What the service manager that has started the process, systemd, is told of it, and the sockets
 * that it passes on. Where none has, nothing is told and nothing passed.
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
    bool is_admin; /* FileDescriptorName=embag-admin; false: embag-data */
};

/* Takes the sockets that were passed, once: they are the caller's. false: one has another name than
 * these two, or there are too many, as *failure says; all are closed and *count is 0. */
bool eb_service_manager_take_sockets(
    struct eb_passed_socket out[EB_PASSED_SOCKETS_MAX], size_t *count, struct eb_failure *failure);

/* A version is being loaded and has come so far: the start is given time to go on. */
void eb_service_manager_loading(const char *path, uint64_t done_bytes, uint64_t total_bytes);
/* What is served from now on, for people who ask for the service's status. */
void eb_service_manager_serving(const struct eb_snapshot *snapshot);
/* The start, or reading again, is over. */
void eb_service_manager_ready(void);
/* Settings are being read again: eb_service_manager_ready follows. */
void eb_service_manager_reloading(void);
/* The end has begun, and may take so long. */
void eb_service_manager_stopping(uint64_t timeout_ms);

/* How long the process may say nothing of eb_service_manager_alive before it is ended as one that
 * hangs. 0: for ever. */
uint64_t eb_service_manager_silence_ms(void);
void eb_service_manager_alive(void);
