#include "server/contents/file_name.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void tells_kinds_and_bases(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum eb_file_kind kind;
        size_t base_bytes;
    } cases[] = {
        {"t.npy", EB_FILE_NPY, 1},
        {"t.keys.npy", EB_FILE_KEYS, 1},
        {"keys.npy", EB_FILE_NPY, 4},
        {".keys.npy", EB_FILE_KEYS, 0},
        {"a.b.embag", EB_FILE_PACKED, 3},
        {"m.safetensors", EB_FILE_SAFETENSORS, 1},
        {"m.safetensors.index.json", EB_FILE_SAFETENSORS_INDEX, 1},
        {"index.json", EB_FILE_OTHER, 0},
        {"t.NPY", EB_FILE_OTHER, 0},
        {"npy", EB_FILE_OTHER, 0},
        {"", EB_FILE_OTHER, 0},
        {"t.npy.tmp", EB_FILE_OTHER, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_file_name parsed = eb_file_name_parse(cases[i].name);
        assert_int_equal(parsed.kind, cases[i].kind);
        assert_int_equal(parsed.base_bytes, cases[i].base_bytes);
        assert_false(parsed.is_split);
    }
}

static void tells_parts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool is_split;
        size_t base_bytes;
        uint32_t part;
        uint32_t parts;
    } cases[] = {
        {"t-00003-of-00016.npy", true, 1, 3, 16},
        {"t-00003-of-00016.keys.npy", true, 1, 3, 16},
        {"-99999-of-00000.embag", true, 0, 99999, 0},
        {"m-00001-of-00002.safetensors", true, 1, 1, 2},
        {"-0003-of-00016.npy", false, 14, 0, 0},
        {"t-0003-of-000016.npy", false, 16, 0, 0},
        {"t-00003-of-0001x.npy", false, 16, 0, 0},
        {"t_00003-of-00016.npy", false, 16, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_file_name parsed = eb_file_name_parse(cases[i].name);
        assert_int_equal(parsed.is_split, cases[i].is_split);
        assert_int_equal(parsed.base_bytes, cases[i].base_bytes);
        assert_int_equal(parsed.piece, cases[i].part);
        assert_int_equal(parsed.pieces, cases[i].parts);
    }
}

static void tells_how_other_formats_are_converted(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *how;
    } cases[] = {
        {"model.pt", "embag-import FILE"},
        {"model.pth", "embag-import FILE"},
        {"pytorch_model.bin", "if torch.save wrote it: embag-import FILE"},
        {"last.ckpt", "embag-import FILE"},
        {"arrays.npz", "numpy.load(FILE)"},
        {"model.onnx", "onnx.load(FILE).graph.initializer"},
        {"vectors.parquet", "embag-import FILE"},
        {"vectors.arrow", "embag-import FILE"},
        {"vectors.feather", "embag-import FILE"},
        {"model.ckpt-7.index", "embag-import FILE"},
        {"__0_0.distcp", "embag-import DIRECTORY_OF_FILE"},
        {"saved_model.pb", "embag-import DIRECTORY_OF_FILE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *how = eb_file_name_find_conversion(cases[i].name);
        assert_non_null(how);
        assert_non_null(strstr(how, cases[i].how));
    }
    static const char *const others[] = {
        "README", "t.npy", "model.safetensors.index.json", "other.pb", ""};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_null(eb_file_name_find_conversion(others[i]));
    }
}

EB_TEST_GROUP(file_name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_kinds_and_bases),
        cmocka_unit_test(tells_parts),
        cmocka_unit_test(tells_how_other_formats_are_converted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
