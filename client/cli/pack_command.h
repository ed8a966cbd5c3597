/* `embag pack`: a table becomes a packed file, quantised or as it is.
 * Thread: main. Memory: none of its own. */
#pragma once

/* Returns the exit status: 0, 1 where the table cannot be packed, 2 for a usage error. */
int eb_pack_command_main(int argument_count, char **arguments);
