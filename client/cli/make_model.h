/* The command `embag make-model`: writes the model of a workload, or of an example, into a model
 * repository, with values that anyone can verify (client/cli/workload.h).
 * Thread: main. Memory: everything is freed before it returns. */
#pragma once

/* `arguments[0]` is the command's name. Returns the exit status: 0, 1 where the model is there
 * already or cannot be written, 2 for a usage error. */
int eb_make_model_main(int argument_count, char **arguments);
