/* A sweep: open loads of rising rates, until the server is saturated.
 * Thread: main. Memory: on the heap while it runs. */
#pragma once

#include "client/cli/load_report.h"

/* Runs every step, each with a fresh window. Ends early if answers no longer keep up with the rate,
 * or if a signal has come. Prints a table to stdout during the sweep, or JSON at its end, and draws
 * the curve into the file that the options name. That file is opened before the first step; if it
 * cannot be opened, no step is run. Returns the exit status. */
int eb_load_sweep_run(const struct eb_load_run *run, const struct eb_load_subject *subject);

/* Returns whether the server did not keep up: fewer than 95 % of the due requests were answered in
 * time. */
bool eb_load_sweep_is_saturated(const struct eb_load_result *result);
