/* Parses bytes as a manifest. An accepted one is sorted, and reads back as it is written. */
#include "server/formats/manifest.h"

#include "tests/fuzz/input.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_equal(const struct eb_manifest *a, const struct eb_manifest *b)
{
    require(a->count == b->count);
    for (size_t i = 0; i < a->count; i++) {
        const struct eb_manifest_file *file = &a->files[i];
        require(strcmp(file->name, b->files[i].name) == 0);
        require(file->bytes == b->files[i].bytes && file->digest == b->files[i].digest);
        require(eb_manifest_find(a, file->name) == file);
        require(!strchr(file->name, '/') && file->name[0] != '.' && file->name[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_manifest manifest;
    struct eb_manifest back;
    struct eb_failure failure = {.text = ""};
    size_t text_bytes;
    if (!eb_manifest_parse(data, size, &manifest, &failure)) {
        require(failure.text[0] != '\0' && manifest.count == 0);
        return 0;
    }
    char *text = eb_manifest_write(&manifest, &text_bytes, &failure);
    require(text);
    require(eb_manifest_parse((const uint8_t *)text, text_bytes, &back, &failure));
    require_equal(&manifest, &back);
    eb_manifest_deinit(&back);
    eb_manifest_deinit(&manifest);
    free(text);
    return 0;
}
