/* The commands of `embag`. `arguments[0]` is the command's name. Each returns the exit status: 0; 1
 * if a server, the network or a file causes an error; 2 for a usage error.
 * Thread: main. Memory: each frees everything before it returns. */
#pragma once

#include "server/base/failure.h"

/* `embag lookup`: looks bags up in one table and prints the pooled rows. */
int eb_lookup_command_main(int argument_count, char **arguments);
/* `embag models`: lists the models of a server. With `status` it describes versions; with `load`,
 * `unload` or `serve` it sends a command. */
int eb_models_command_main(int argument_count, char **arguments);
/* `embag publish`: loads a version on several servers and, when all have it, serves it on each.
 * SIGINT, SIGTERM and SIGHUP are blocked when it returns, because the process ends then. */
int eb_publish_command_main(int argument_count, char **arguments);
/* `embag settings`: lists the settings of a server; with `reload` it makes the server read them
 * again. */
int eb_settings_command_main(int argument_count, char **arguments);
/* `embag pack`: makes a packed file of a table, quantised or as it is. */
int eb_pack_command_main(int argument_count, char **arguments);
/* `embag split`: divides a version among part servers. */
int eb_split_command_main(int argument_count, char **arguments);
/* `embag check`: checks files of tables and keys, and prints the memory they will need. */
int eb_check_command_main(int argument_count, char **arguments);
/* `embag manifest`: writes the list of a version's files with their digests, or checks it. */
int eb_manifest_command_main(int argument_count, char **arguments);
/* `embag resident`: lists, checks or deletes the tables in a server's resident_dir. */
int eb_resident_command_main(int argument_count, char **arguments);
/* `embag make-model`: writes the model of a workload or of an example into a model repository.
 * Anyone can verify its values (client/cli/workload.h). */
int eb_make_model_main(int argument_count, char **arguments);
/* `embag demo`: answers the specification's examples over the network and prints their published
 * values beside the answers, or times lookups of the dlrm-v2 model and compares each answer with
 * the published hash. */
int eb_demo_main(int argument_count, char **arguments);

/* ---- part of `embag check`, public for its tests ---- */

/* Checks everything about a file that can be checked without another file, and prints one line for
 * each table. Checks headers and every byte of a packed table. Checks that the table's index leads
 * every key to its row, and that no key occurs twice. Keys and their index are on the heap during
 * the call. Returns false if an error is found or out of memory; *failure says what, without the
 * path. */
bool eb_check_file(const char *path, struct eb_failure *failure);
