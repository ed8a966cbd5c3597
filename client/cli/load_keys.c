#include "client/cli/load_keys.h"

#include "client/cli/output.h"

#include <stdio.h>

static bool read_packed(
    struct eb_pack_keys *keys, struct eb_source_file *source, struct eb_failure *failure)
{
    return source->reader.format.sections[EB_PACKED_KEYS].bytes > 0
               ? eb_pack_keys_unpack(keys, &source->reader, failure)
               : eb_failure_set(failure, "it has no keys");
}

static bool read_any(struct eb_pack_keys *keys, const char *path, struct eb_failure *failure)
{
    struct eb_source_file source;
    if (!eb_source_file_open(&source, path, failure)) {
        return false;
    }
    bool is_good = source.is_packed ? read_packed(keys, &source, failure)
                                    : eb_pack_keys_read(keys, path, failure);
    eb_source_file_close(&source);
    return is_good;
}

bool eb_load_keys_read(struct eb_pack_keys *keys, const char *path)
{
    struct eb_failure failure = {.text = ""};
    *keys = (struct eb_pack_keys){0};
    if (read_any(keys, path, &failure)) {
        return true;
    }
    fprintf(
        stderr, "embag-load: --keys-file %s: %s\n", path, eb_output_printable(failure.text).bytes);
    return false;
}
