#include "server/formats/file_digest.h"

#include "server/formats/packed_reader.h"

#include <stdlib.h>
#include <xxhash.h>

#define PORTION_BYTES (UINT64_C(1) << 20)

static void advance_progress(const struct eb_file_digest_progress *progress, uint64_t bytes)
{
    if (progress) {
        progress->advance(progress->context, bytes);
    }
}

static bool digest_packed(struct eb_table_file *file, bool is_checked,
    const struct eb_file_digest_progress *progress, uint64_t *digest, struct eb_failure *failure)
{
    struct eb_packed_reader reader;
    if (!eb_packed_reader_open(&reader, file, failure)) {
        return false;
    }
    uint64_t count = is_checked ? eb_packed_format_block_count(&reader.format) : 0;
    bool is_good = true;
    for (uint64_t block = 0; is_good && block < count; block++) {
        is_good = eb_packed_reader_check(&reader, block, failure);
        advance_progress(progress, eb_packed_format_block_bytes(&reader.format, block));
    }
    *digest = reader.format.digest;
    eb_packed_reader_close(&reader);
    return is_good;
}

/* Adds all bytes of the file to the hash. */
static bool hash_file(struct eb_table_file *file, uint8_t *portion, XXH3_state_t *state,
    const struct eb_file_digest_progress *progress, struct eb_failure *failure)
{
    (void)XXH3_64bits_reset(state);
    for (uint64_t done = 0; done < file->bytes; done += PORTION_BYTES) {
        uint64_t left = file->bytes - done;
        uint64_t bytes = left < PORTION_BYTES ? left : PORTION_BYTES;
        if (!eb_table_file_read(file, done, portion, bytes, failure)) {
            return false;
        }
        (void)XXH3_64bits_update(state, portion, bytes);
        advance_progress(progress, bytes);
    }
    return true;
}

bool eb_file_digest_read(struct eb_table_file *file, bool is_packed, bool is_checked,
    const struct eb_file_digest_progress *progress, uint64_t *digest, struct eb_failure *failure)
{
    if (is_packed) {
        return digest_packed(file, is_checked, progress, digest, failure);
    }
    uint8_t *portion = malloc(PORTION_BYTES);
    XXH3_state_t *state = XXH3_createState();
    bool is_good = (portion && state) || eb_failure_set(failure, "out of memory");
    is_good = is_good && hash_file(file, portion, state, progress, failure);
    *digest = is_good ? XXH3_64bits_digest(state) : 0;
    (void)XXH3_freeState(state);
    free(portion);
    return is_good;
}
