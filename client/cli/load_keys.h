/* The keys of the keyed tables that a load asks for: requests are drawn from them.
 * Thread: one at a time. Memory: all keys of one table on the heap, until deinit. */
#pragma once

#include "client/cli/pack_keys.h"

/* Reads those of TABLE.keys.npy, or of a packed table. false: said on stderr; *keys is empty. */
bool eb_load_keys_read(struct eb_pack_keys *keys, const char *path);
