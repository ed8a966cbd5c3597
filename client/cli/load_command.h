/* The program embag-load, from its arguments to its exit status.
 * Thread: main. Memory: everything is freed before it returns. */
#pragma once

/* Returns the exit status: 0; 1 where the server was not reached, no request was answered or an
 * answer was wrong; 2 for a usage error. */
int eb_load_command_main(int argument_count, char **arguments);
