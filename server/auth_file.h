/* Reads the file of the setting auth_file: who may call, and what they may do.
 *
 *   principals:                      # all keys but `name` are optional
 *     - name: ranking                # for people; unique
 *       token_file: /run/secrets/a   # holds the bearer token, alone or with a line break; a
 *                                    # relative path starts at this file's directory
 *       token_sha256: 9f86d081...    # or its digest, 64 digits
 *       client_name: ranking.example # a DNS name, URI or common name of the client's certificate
 *       models: [dlrm-v2]            # models that it may look up, or ["*"]; absent: none. No name
 *                                    # is empty or has a * in it
 *       admin: true                  # may also use ModelAdmin and list all models; absent: false
 *       router: true                 # may also claim versions (WatchModels); absent: false
 *
 *   end: true                        # optional; must be the last line
 *
 * A principal has a token, a client_name or both. If it has both, each is enough by itself. No two
 * have the same token or client_name. Unknown keys and aliases are refused.
 * Thread: any one. Memory: the principals are on the heap; tokens are wiped, digests kept. */
#pragma once

#include "proto/net/file_watch.h"
#include "server/base/failure.h"
#include "server/rpc/auth.h"

/* Limits. A file that exceeds one of them is refused. */
#define EB_AUTH_FILE_BYTES_MAX (1 << 20)
#define EB_AUTH_PRINCIPALS_MAX 4096
#define EB_AUTH_MODELS_MAX 4096 /* most models of one principal */

/* Reads the file. Returns rules with one hold, which is the caller's; the caller also sets their
 * generation. Returns NULL with *failure set, whose text contains no secrets. Logs token files that
 * others can read. A file that was truncated between two principals is still valid YAML; has_end
 * lets the caller notice that. Adds the file and each token file to `files`, with the stamps that
 * they had before they were read, even if they cannot be read. Files after the first one with an
 * error are not added. */
struct eb_auth *eb_auth_file_read(
    const char *path, struct eb_file_list *files, struct eb_failure *failure);
