/* `embag check`: what table files hold, whether they are sound, and the memory they will need.
 * Thread: main. Memory: none of its own. */
#pragma once

/* Returns the exit status: 0, 1 where a file is not sound, 2 for a usage error. */
int eb_check_command_main(int argument_count, char **arguments);
