/* A sweep: open loads of rising rates, up to where the server is saturated.
 * Thread: main. Memory: heap while it runs. */
#pragma once

#include "client/cli/load_report.h"

/* Runs every step, each with a fresh window, and ends early where answers no longer keep up with
 * the rate or a signal has come. Prints a table to stdout while it runs, or JSON at its end, and
 * draws the curve into the options' file, which is opened before the first step: no step is run
 * where it cannot be. Returns the exit status. */
int eb_load_sweep_run(const struct eb_load_run *run, const struct eb_load_subject *subject);

/* Whether the server has not kept up with what was due: fewer than 95 % were answered in time. */
bool eb_load_sweep_is_saturated(const struct eb_load_result *result);
