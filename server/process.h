/* Starts, runs and stops the server: repository, executor, loops and listeners.
 * Thread: main's. Memory: owns everything until eb_process_close. */
#pragma once

#include "server/config.h"

#include <stdbool.h>

struct eb_process; /* opaque */

/* Loads the models, starts the executor and opens the ports: all or nothing. Returns NULL if that
 * fails; one log line has said why and what to do. `config` is borrowed for the process's life. */
struct eb_process *eb_process_open(const struct eb_config *config);
/* Serves until SIGTERM or SIGINT, then drains; a second signal cuts the drain short. The caller's
 * handlers for both stay in force until this function replaces them, so that no signal is lost. A
 * load that waits for its disk is given up when the longest time for the drain is over. Returns
 * false if the loops' threads could not be started; a log line has said so. */
bool eb_process_run(struct eb_process *process);
/* Frees the process. Accepts NULL and a partly made process. Returns false if some work was given
 * up. Threads may then use the process and its config for ever, so neither is freed, and the caller
 * must end with _exit(). Everything has been logged by then. */
bool eb_process_close(struct eb_process *process);
