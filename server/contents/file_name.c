#include "server/contents/file_name.h"

#include "server/formats/piece_name.h"

#include <string.h>

/* The first suffix that matches decides. */
static const struct {
    const char *suffix;
    enum eb_file_kind kind;
} kinds[] = {
    {".keys.npy", EB_FILE_KEYS},
    {".npy", EB_FILE_NPY},
    {".embag", EB_FILE_PACKED},
    {".safetensors", EB_FILE_SAFETENSORS},
    {".safetensors.index.json", EB_FILE_SAFETENSORS_INDEX},
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

/* A command of the Python package (client/python/IMPORT.md). */
#define IMPORT "embag-import FILE --out REPOSITORY/MODEL"

/* The first suffix that matches decides. */
static const struct {
    const char *suffix;
    const char *how;
} conversions[] = {
    {".pt", IMPORT},
    {".pth", IMPORT},
    {".ckpt", IMPORT},
    {".bin", "if torch.save wrote it: " IMPORT},
    {".npz", "for name, array in numpy.load(FILE).items(): numpy.save(name + \".npy\", array)"},
    {".onnx", "for t in onnx.load(FILE).graph.initializer: numpy.save(t.name + \".npy\", "
              "onnx.numpy_helper.to_array(t))"},
    {".parquet", IMPORT},
    {".arrow", IMPORT},
    {".feather", IMPORT},
    {".index", IMPORT},
    {".distcp", "embag-import DIRECTORY_OF_FILE --out REPOSITORY/MODEL"},
    {"saved_model.pb", "embag-import DIRECTORY_OF_FILE --out REPOSITORY/MODEL"},
};
#define CONVERSION_COUNT (sizeof conversions / sizeof conversions[0])

static bool has_file_suffix(const char *name, const char *suffix)
{
    size_t bytes = strlen(name);
    size_t suffix_bytes = strlen(suffix);
    return bytes >= suffix_bytes && strcmp(name + bytes - suffix_bytes, suffix) == 0;
}

const char *eb_file_name_find_conversion(const char *name)
{
    for (size_t i = 0; i < CONVERSION_COUNT; i++) {
        if (has_file_suffix(name, conversions[i].suffix)) {
            return conversions[i].how;
        }
    }
    return NULL;
}

struct eb_file_name eb_file_name_parse(const char *name)
{
    struct eb_file_name out = {.kind = EB_FILE_OTHER};
    size_t bytes = strlen(name);
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (has_file_suffix(name, kinds[i].suffix)) {
            out.kind = kinds[i].kind;
            out.base_bytes = bytes - strlen(kinds[i].suffix);
            out.is_split =
                eb_piece_name_split(name, out.base_bytes, &out.base_bytes, &out.piece, &out.pieces);
            return out;
        }
    }
    return out;
}
