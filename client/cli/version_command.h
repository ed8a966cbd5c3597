/* The commands `embag models load`, `unload` and `serve`: which versions a server has and serves.
 * Thread: main. Memory: everything is freed before it returns. */
#pragma once

/* `arguments[0]` is one of the three names. Returns the exit status: 0, 1 where the server or the
 * network says no, 2 for a usage error. */
int eb_version_command_main(int argument_count, char **arguments);
