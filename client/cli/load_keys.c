#include "client/cli/load_keys.h"

#include "client/cli/output.h"

#include <stdio.h>

static bool read_packed(
    struct eb_pack_keys *keys, struct eb_source_file *source, struct eb_file_fault *fault)
{
    return source->reader.format.sections[EB_PACKED_KEYS].bytes > 0
               ? eb_pack_keys_unpack(keys, &source->reader, fault)
               : eb_file_fault_set(fault, "it has no keys");
}

static bool read_any(struct eb_pack_keys *keys, const char *path, struct eb_file_fault *fault)
{
    struct eb_source_file source;
    if (!eb_source_file_open(&source, path, fault)) {
        return false;
    }
    bool is_good =
        source.is_packed ? read_packed(keys, &source, fault) : eb_pack_keys_read(keys, path, fault);
    eb_source_file_close(&source);
    return is_good;
}

bool eb_load_keys_read(struct eb_pack_keys *keys, const char *path)
{
    struct eb_file_fault fault = {.text = ""};
    *keys = (struct eb_pack_keys){0};
    if (read_any(keys, path, &fault)) {
        return true;
    }
    fprintf(
        stderr, "embag-load: --keys-file %s: %s\n", path, eb_output_printable(fault.text).bytes);
    return false;
}
