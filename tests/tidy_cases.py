"""Shows every rule of tidy.py text that breaks it and text that does not.
Run by tests/tidy.sh --self-test."""

import sys

import tidy

HEAD = "/* What. Thread: any. Memory: none. */\n#pragma once\n"
LONG = "static void f(void)\n{\n" + "    g();\n" * 78 + "}\n"
DEEP = "static void f(void)\n{\n    if (a) {\n        for (;;) {\n            while (b) {\n"

# (rule, what is wrong, path, text). An empty second entry: the rule must be silent.
CASES = [
    ("project_includes", "upwards", "kernels/a.c", '#include "server/config.h"\n'),
    ("project_includes", "not from the root", "proto/a.c", '#include "guard.h"\n'),
    ("project_includes", "server from the library", "client/a.c", '#include "server/config.h"\n'),
    ("project_includes", "tests from outside", "server/a.c", '#include "tests/lib/a.h"\n'),
    ("project_includes", "", "client/cli/a.c", '#include "server/formats/npy.h"\n'),
    ("project_includes", "", "server/a.c", '/* #include "x/a.h" */\n#include "kernels/bag.h"\n'),
    ("library_includes", "loops in proto", "proto/a.c", "#include <uv.h>\n"),
    ("library_includes", "OpenMP", "kernels/bag.c", "#include <omp.h>\n"),
    ("library_includes", "intrinsics", "server/work/a.c", "#include <immintrin.h>\n"),
    ("library_includes", "generated types", "server/net/a.c", '#include "x.pb-c.h"\n'),
    ("library_includes", "loops among files", "server/formats/npy.c", "#include <uv.h>\n"),
    ("library_includes", "", "server/rpc/a.c", '#include "x.pb-c.h"\n#include <uv.h>\n'),
    ("links", "upwards", "kernels/CMakeLists.txt",
     "target_link_libraries(embag_kernels PRIVATE embag_server)\n"),
    ("links", "loops in proto", "proto/CMakeLists.txt",
     "target_link_libraries(embag_proto PUBLIC PkgConfig::UV)\n"),
    ("links", "", "server/CMakeLists.txt",
     "target_link_libraries(embag_server PUBLIC embag_proto PkgConfig::LIBUV m)\n"),
    ("openmp", "a second file", "kernels/bag.c", "#pragma omp parallel\n"),
    ("openmp", "", "kernels/bag_parallel.c", "#pragma omp parallel\n"),
    ("exit", "in a module", "server/config.c", "void f(void)\n{\n    exit(1);\n}\n"),
    ("exit", "", "server/main.c", "void f(void)\n{\n    exit(1);\n}\n"),
    ("exit", "", "server/a.c", "void f(void)\n{\n    on_exit_of(1); /* exit(1) */\n}\n"),
    ("kernels_pure", "environment", "kernels/a.c", "void f(void)\n{\n    getenv(x);\n}\n"),
    ("kernels_pure", "memory", "kernels/a.c", "void f(void)\n{\n    malloc(1);\n}\n"),
    ("kernels_pure", "", "kernels/a.c", "void f(void)\n{\n    snprintf(x);\n}\n"),
    ("mailbox", "around it", "server/work/a.c", "void f(void)\n{\n    uv_async_send(x);\n}\n"),
    ("function_lines", "81 lines", "proto/a.c", LONG.replace("g();", "g();\n", 1)),
    ("function_lines", "", "proto/a.c", LONG.replace("    g();\n", "", 1)),
    ("median", "13 lines", "proto/a.c", "static void f(void)\n{\n" + "    g();\n" * 10 + "}\n"),
    ("median", "", "proto/a.c", "static void f(void)\n{\n" + "    g();\n" * 9 + "}\n"),
    ("macro_lines", "a long macro", "proto/a.c", "#define F \\\n" + "    g(); \\\n" * 80 + "\n"),
    ("parameters", "seven", "proto/a.c",
     "void f(int a, int b, int c, int d, int e, int f, int g)\n{\n}\n"),
    ("parameters", "seven declared", "proto/a.h",
     "void f(int a, int b, int c, int d, int e, int f, int g);\n"),
    ("parameters", "", "proto/a.c",
     "static int on_data(int a, int b, int c, int d, int e, int f, int g)\n"
     "{\n    h(1, 2, 3, 4, 5, 6, 7);\n}\n"),
    ("parameters", "", "proto/a.c", "void f(int a, int (*b)(int, int, int), int c, int d)\n{\n}\n"),
    ("nesting", "four", "proto/a.c", DEEP + "if (c) {\n}\n}\n}\n}\n}\n"),
    ("nesting", "a loop made by a macro", "proto/a.c", DEEP + "EACH(c) {\n}\n}\n}\n}\n}\n"),
    ("nesting", "", "proto/a.c", DEEP + "int x[] = {{1}, {2}};\n}\n}\n}\n}\n"),
    ("nesting", "", "proto/a.c", DEEP + "h(&(struct x){.a = {1}});\nreturn (struct x){0};\n}}}}\n"),
    ("recursion", "itself", "proto/a.c", "static void f(int a)\n{\n    f(a);\n}\n"),
    ("recursion", "", "proto/a.c", "static void f(int a)\n{\n    x->f(a);\n    gf(a);\n}\n"),
    ("file_lines", "1001", "proto/a.c", "int a;\n" * 1001),
    ("file_lines", "401", "proto/a.h", "int a;\n" * 401),
    ("file_lines", "", "proto/a.c", "int a;\n" * 1000),
    ("columns", "101", "tests/a.py", "a" * 101 + "\n"),
    ("columns", "", "tests/a.py", "a" * 100 + "\n"),
    ("blanks", "tab", "proto/a.c", "\tint a;\n"),
    ("blanks", "trailing", "tests/a.sh", "true \n"),
    ("blanks", "no newline", "tests/a.sh", "true"),
    ("blanks", "", "tests/a.sh", "true\n"),
    ("folder_names", "a drawer", "server/util.c", ""),
    ("folder_names", "", "server/utility_rate.c", ""),
    ("header_start", "no comment", "proto/a.h", "#pragma once\n"),
    ("header_start", "no thread", "proto/a.h", "/* What. Memory: none. */\n#pragma once\n"),
    ("header_start", "no pragma", "proto/a.h", "/* Thread: any. Memory: none. */\n"),
    ("header_start", "", "proto/a.h", HEAD),
    ("typedefs", "a struct", "proto/a.h", "typedef struct x {\n    int a;\n} x_t;\n"),
    ("typedefs", "an enum", "proto/a.h", "typedef enum x x_t;\n"),
    ("typedefs", "name", "proto/a.h", "typedef void (*eb_done)(int a);\n"),
    ("typedefs", "", "proto/a.h", "typedef struct x *(*eb_make_fn)(int a, void (*b)(int));\n"),
    ("public_names", "no prefix", "proto/a.c", "int f(void)\n{\n    return 1;\n}\n"),
    ("public_names", "prefix on a static", "proto/a.c", "static int eb_a_f(void)\n{\n}\n"),
    ("public_names", "", "proto/a.c", "EB_LIST(X)\nint eb_a_f(void)\n{\n    return 1;\n}\n"),
    ("public_names", "", "kernels/a.h", "#define F static inline\nF int f(void)\n{\n}\n"),
    ("public_names", "", "client/a.h",
     'extern "C" {\nint embag_f(void);\n}\nint eb_g(void)\n{\n}\n'),
    ("stack", "alloca", "proto/a.c", "void f(void)\n{\n    alloca(1);\n}\n"),
    ("marks", "a note", "proto/a.c", "/* TO" "DO: more */\n"),
    ("marks", "", "proto/a.c", 'char name[] = "/tmp/aXXXXXX";\n'),
    ("sources_listed", "nowhere", "proto/a.c", "int a;\n"),
    ("sources_listed", "globbed", "proto/CMakeLists.txt", "file(GLOB sources *.c)\n"),
]

# Rules about several files at once: (rule, what is wrong, tree).
TREES = [
    ("base_names", "a twin", {"proto/a.c": "", "server/net/a.h": ""}),
    ("base_names", "", {"proto/a.c": "", "proto/a.h": ""}),
    ("base_names", "", {"server/main.c": "", "client/cli/main.c": ""}),
    ("sources_listed", "a longer name", {"proto/a.c": "", "proto/CMakeLists.txt": "xa.c b/a.c"}),
    ("sources_listed", "", {"server/net/a.c": "", "server/CMakeLists.txt": "  net/a.c\n"}),
    ("sources_listed", "", {"tests/test_a.c": "", "tests/CMakeLists.txt": "IN a b\ntest_${m}.c"}),
    ("sources_listed", "no such module", {"tests/test_a.c": "", "tests/CMakeLists.txt": "a b"}),
]


def main():
    trees = [(rule, wrong, {path: text}) for rule, wrong, path, text in CASES] + TREES
    failed = 0
    for rule, wrong, tree in trees:
        findings = list(getattr(tidy, "check_" + rule)(tree))
        if bool(findings) != bool(wrong):
            failed += 1
            print(f"{rule}: {'silent about: ' + wrong if wrong else 'speaks without cause'}: "
                  f"{findings or tree}")
    for rule in tidy.RULES:
        if not any("check_" + name == rule.__name__ and wrong for name, wrong, _ in trees):
            failed += 1
            print(f"{rule.__name__}: no text that breaks it")
    print(f"{len(trees) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
