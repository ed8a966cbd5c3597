/* The running server: repository, executor, loops and listeners, put together and taken apart.
 * Thread: main's. Memory: owns everything until eb_process_close. */
#pragma once

#include "server/config.h"

#include <stdbool.h>

struct eb_process; /* opaque */

/* Loads the models, starts the executor, opens the ports: all or nothing. NULL: one log line has
 * said what failed and what to do. `config` is borrowed for the process's life. */
struct eb_process *eb_process_open(const struct eb_config *config);
/* Serves until SIGTERM or SIGINT and until the drain that follows is over; a second signal cuts it
 * short. Handlers of the caller's for both hold until they are replaced, so that none is lost.
 * A load that waits for its disk is waited for as long as the drain may last, and then given up.
 * false: the loops' threads could not be started, as a log line has said. */
bool eb_process_run(struct eb_process *process);
/* Accepts NULL and a half-made process. false: something was given up, so that threads may run for
 * ever which use the process and its config: both stay, and the caller ends by _exit(). All is
 * logged by then. */
bool eb_process_close(struct eb_process *process);
