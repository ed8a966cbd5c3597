/* The file of the setting auth_file: who may call, and what.
 *
 *   principals:                      # all keys but `name` are optional
 *     - name: ranking                # for people, no two alike
 *       token_file: /run/secrets/a   # holds the bearer token, alone or with a line's end; a
 *                                    # relative path is one from this file's folder
 *       token_sha256: 9f86d081...    # or its digest, 64 digits
 *       client_name: ranking.example # a DNS name, URI or common name of the client's certificate
 *       models: [dlrm-v2]            # that it may look up, or ["*"]; absent: none. No name is
 *                                    # empty or has a * in it
 *       admin: true                  # ModelAdmin too, and all models are listed; absent: false
 *
 *   end: true                        # optional; must be the last line
 *
 * A principal has a token, a client_name or both: then each is enough by itself. No two have the
 * same token or client_name. Unknown keys and aliases are refused.
 * Thread: any one. Memory: what is read is on the heap; tokens are wiped, digests kept. */
#pragma once

#include "server/base/failure.h"
#include "server/rpc/auth.h"

/* Caps: what is larger is another file. */
#define EB_AUTH_FILE_BYTES_MAX (1 << 20)
#define EB_AUTH_PRINCIPALS_MAX 4096
#define EB_AUTH_MODELS_MAX 4096 /* of one principal */

/* The hold is the caller's; generation is for it to set. NULL: *failure, which has no secrets.
 * Files of tokens that others can read are logged. A file that was truncated between two principals
 * is still valid YAML; has_end lets the caller notice. */
struct eb_auth *eb_auth_file_read(const char *path, struct eb_failure *failure);
