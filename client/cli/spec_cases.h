/* The specification's examples as data: a JSON array of cases for the table of model `spec`
 * (fields: tests/conformance/spec_examples.json), asked of a server and compared.
 * Thread: the client's. Memory: everything is freed before it returns. */
#pragma once

#include "client/embag.h"

#include <stdbool.h>

/* Asks every case of the file and prints bag by bag what was expected and what came. Returns
 * whether the file could be read and every case was answered within its tolerance; what went wrong
 * is on stderr. */
bool eb_spec_cases_run(struct embag_client *client, const char *path);
