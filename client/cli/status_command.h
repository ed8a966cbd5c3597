/* The command `embag models status`: the versions that a server has, how they came and what became
 * of them.
 * Thread: main. Memory: everything is freed before it returns. */
#pragma once

/* `arguments[0]` is the command's name. Returns the exit status: 0, 1 where the server or the
 * network says no, 2 for a usage error. */
int eb_status_command_main(int argument_count, char **arguments);
