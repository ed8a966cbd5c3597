/* Ctrl-C and SIGTERM end a run, not the program: what was measured is still reported. A second one
 * ends the program.
 * Thread: any may ask. Memory: none. */
#pragma once

#include <stdbool.h>

void eb_load_interrupt_init(void);
/* Whether a signal has come since then. */
bool eb_load_interrupt_has_come(void);
