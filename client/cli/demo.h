/* The command `embag demo`: what quickstart shows. It answers the specification's examples over
 * the network beside their published values, or times lookups of the dlrm-v2 model and compares
 * each answer with the published hash.
 * Thread: main. Memory: everything is freed before it returns. */
#pragma once

/* `arguments[0]` is the command's name. Returns the exit status: 0, 1 where the server or an answer
 * is at fault, 2 for a usage error. */
int eb_demo_main(int argument_count, char **arguments);
