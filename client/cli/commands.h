/* The commands of `embag`. `arguments[0]` is the command's name. Each returns the exit status: 0; 1
 * if a server, the network or a file says no; 2 for a usage error.
 * Thread: main. Memory: each frees everything before it returns. */
#pragma once

#include "server/base/failure.h"

/* `embag lookup`: looks bags up in one table and prints the pooled rows. */
int eb_lookup_command_main(int argument_count, char **arguments);
/* `embag models`: lists the models of a server, or with `status`, `load`, `unload` or `serve`
 * behind it tells about versions and commands them. */
int eb_models_command_main(int argument_count, char **arguments);
/* `embag pack`: makes a packed file of a table, quantised or as it is. */
int eb_pack_command_main(int argument_count, char **arguments);
/* `embag check`: checks files of tables and keys, and prints the memory they will need. */
int eb_check_command_main(int argument_count, char **arguments);
/* `embag make-model`: writes the model of a workload, or of an example, into a model repository,
 * with values that anyone can verify (client/cli/workload.h). */
int eb_make_model_main(int argument_count, char **arguments);
/* `embag demo`: answers the specification's examples over the network beside their published
 * values, or times lookups of the dlrm-v2 model and compares each answer with the published hash.
 */
int eb_demo_main(int argument_count, char **arguments);

/* ---- a part of `embag check`, for its tests ---- */

/* Checks everything in one file that can be checked without another file, and prints one line for
 * each table: headers; every byte of a packed table; that its index leads every key to its row;
 * that no two keys are the same. Keys and their index are on the heap for the call. Returns false
 * if something is not sound, or out of memory; *failure says what, without the path. */
bool eb_check_file(const char *path, struct eb_failure *failure);
