#include "server/net/secret.h"

#include "server/base/log.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>

static_assert(EB_SECRET_DIGEST_BYTES == SHA256_DIGEST_LENGTH, "digests are SHA-256's");

void eb_secret_digest(const void *secret, size_t secret_bytes, struct eb_secret_digest *out)
{
    (void)SHA256(secret, secret_bytes, out->bytes);
}

bool eb_secret_is_same(const struct eb_secret_digest *a, const struct eb_secret_digest *b)
{
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void eb_secret_check_file(const char *path)
{
    struct stat status;
    if (stat(path, &status) == 0 && (status.st_mode & S_IROTH)) {
        eb_log(EB_LOG_WARN, "secret_exposed", eb_log_text("file", path),
            eb_log_text("reason", "every user of this machine can read it"),
            eb_log_text("remedy", "chmod o-r"));
    }
}
