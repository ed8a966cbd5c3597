"""Checks what a program can check of the house rules. Run by tests/tidy.sh.

Every rule is a function from the tree (a dict from path to text) to findings; the tree has to pass
all of RULES. tidy_cases.py shows each rule text that breaks it and text that does not.
"""

import functools
import io
import os
import re
import statistics
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict, namedtuple

Finding = namedtuple("Finding", "path line text")
Function = namedtuple("Function", "path line name parameters lines head body static")

FUNCTION_LINES_MAX = 80
FUNCTION_LINES_MEDIAN = 12
PARAMETERS_MAX = 6
NESTING_MAX = 3
FILE_LINES_MAX = {".c": 1000, ".h": 400}
COLUMNS_MAX = 100

LAYERS = ("proto", "kernels", "server", "client")
C_FILES = (".c", ".h")
CODE_FILES = (".c", ".h", ".cc", ".proto", ".py", ".sh", ".js", ".cmake", "CMakeLists.txt", "run")
SKIPPED_FOLDERS = {"build", "node_modules", "__pycache__", "Testing"}
# Base names that every folder may have.
SHARED_NAMES = {"main.c"}

# The server's layers, as far as a folder may see them; DESIGN.md has the order.
FORMATS = ("server/base/", "server/formats/")
TABLES = (*FORMATS, "server/contents/", "server/tables/")
MODELS = (*TABLES, "server/models/")

# What a file may include of the project: the row is the file's own, else its folder's. "a/" means
# the files directly in a, "a/*" those of its folders too.
PROJECT_INCLUDES = {
    "proto/": ("proto/",),
    "proto/net/": ("proto/", "proto/net/"),
    "kernels/": ("kernels/",),
    "server/": ("proto/", "proto/net/", "kernels/", "server/*"),
    "server/base/": ("proto/", "server/base/"),
    "server/formats/": ("proto/", "kernels/", *FORMATS),
    "server/contents/": ("proto/", "kernels/", *FORMATS, "server/contents/"),
    "server/tables/": ("proto/", "kernels/", *TABLES),
    "server/models/": ("proto/", "kernels/", *MODELS),
    "server/publish/": ("proto/", "proto/net/", *MODELS, "server/publish/"),
    "server/net/": ("proto/", "proto/net/", "server/base/", "server/net/"),
    "server/work/": ("proto/", "kernels/", "server/base/", "server/work/"),
    # Models for the counters of each table.
    "server/stats/": ("proto/", "proto/net/", "kernels/", *MODELS, "server/work/", "server/stats/"),
    "server/rpc/": ("proto/", "proto/net/", "kernels/", *MODELS, "server/publish/", "server/net/",
                    "server/work/", "server/stats/", "server/rpc/"),
    "server/admin/": ("proto/", "proto/net/", "server/base/", "server/net/", "server/work/",
                      "server/stats/", "server/admin/"),
    "client/": ("proto/", "proto/net/", "client/"),
    # The public headers stand side by side wherever they are installed.
    "client/embag.h": ("embag_models.h", "embag_types.h"),
    "client/embag_models.h": ("embag_types.h",),
    "client/embag_types.h": (),
    "client/embag_admin.h": ("embag.h",),
    "client/embag_async.h": ("embag.h",),
    "client/cli/": ("proto/", "proto/net/", "client/", "client/cli/", "kernels/", *TABLES),
    "client/examples/": ("client/embag.h", "client/embag_async.h"),
    # What has no sockets is tested without them.
    "tests/unit/proto/": ("proto/", "tests/lib/", "tests/unit/proto/"),
    "tests/unit/grpc/": ("proto/", "tests/lib/", "tests/unit/proto/", "tests/unit/grpc/"),
    "tests/*": ("proto/*", "kernels/*", "server/*", "client/*", "tests/*"),
}
# A folder of one-file programs that its parent's CMakeLists.txt builds.
NO_TARGET_OF_THEIR_OWN = {"client/examples"}

# Which files may use a library (written as above): by header, by what it is called in CMake.
LIBRARIES = {
    "nghttp2": (r"nghttp2/", ("proto/",)),
    "protobuf": (r"protobuf-c/|.*\.(pb-c|fields)\.h$", ("proto/", "server/rpc/")),
    "zlib": (r"zlib\.h$", ("proto/",)),
    "uv": (r"uv\.h$", ("proto/net/", "server/", "server/publish/", "server/net/", "server/work/",
                       "server/stats/", "server/rpc/", "server/admin/", "client/")),
    "microhttpd": (r"microhttpd\.h$", ("server/admin/",)),
    "openssl": (r"openssl/", ("proto/net/", "server/net/", "client/")),
    "jansson": (r"jansson\.h$", ("server/formats/", "client/cli/")),
    "cyaml": (r"cyaml/", ("server/", "server/base/", "server/contents/")),
    "numa": (r"numa(if)?\.h$", ("server/tables/",)),
    "xxhash": (r"xxhash\.h$", ("server/formats/", "server/tables/")),
    "openmp": (r"omp\.h$", ("kernels/bag_parallel.c",)),
    "jemalloc": (r"jemalloc/", ("server/main.c",)),
    "systemd": (r"systemd/", ("server/service_manager.c",)),
    "intrinsics": (r"([a-z0-9]*intrin|arm_neon|arm_sve)\.h$", ("kernels/*",)),
    "threads": (r"(pthread|threads|semaphore)\.h$",
                ("kernels/bag_parallel.c", "server/base/", "server/tables/", "client/cli/")),
    "sockets": (r"(sys/socket|netinet/.*|netdb|sys/epoll|poll)\.h$",
                ("proto/net/", "server/base/", "server/net/", "server/admin/", "client/")),
}

# What a target may link, by the words that name a library in CMake.
TARGET_LINKS = {
    "embag_kernels": ("openmp",),
    "embag_proto_generated": ("protobuf",),
    "embag_proto": ("embag_proto_generated", "nghttp2", "protobuf", "zlib"),
    "embag_net": ("embag_proto", "uv", "openssl"),
    "embag_base": ("embag_proto", "cyaml"),
    "embag_formats": ("embag_base", "embag_kernels", "jansson", "xxhash"),
    "embag_contents": ("embag_formats", "cyaml"),
    "embag_tables": ("embag_contents", "numa", "xxhash"),
    "embag_models": ("embag_tables",),
    "embag_publish": ("embag_models", "embag_net"),
    "embag_server_net": ("embag_base", "embag_net", "openssl"),
    "embag_work": ("embag_base", "embag_kernels", "uv"),
    "embag_stats": ("embag_models", "embag_net", "embag_work"),
    "embag_rpc": ("embag_publish", "embag_server_net", "embag_stats", "embag_work",
                  "embag_proto_generated"),
    "embag_admin": ("embag_server_net", "embag_stats", "microhttpd"),
    "embag_server": ("embag_rpc", "embag_admin", "cyaml", "systemd"),
    "embagd": ("embag_server", "jemalloc"),
    "embag_client": ("embag_proto", "embag_net", "uv", "openssl"),
    "embag_shared": ("embag_proto", "embag_net", "uv", "openssl"),
    "embag_cli_parts": ("embag_client", "embag_kernels", "embag_tables", "jansson"),
    "embag_cli": ("embag_cli_parts",),
    "embag_load_parts": ("embag_cli_parts", "embag_kernels", "jansson"),
    "embag_load": ("embag_load_parts",),
}
LINK_WORDS = (*TARGET_LINKS, "nghttp2", "protobuf", "zlib", "uv", "openssl", "jansson", "cyaml",
              "numa", "xxhash", "microhttpd", "openmp", "jemalloc", "systemd")

# GLOSSARY.md has the words to use instead.
RETIRED_WORDS = ("census", "wish", "tally", "roster", "inquiry", "desk", "crowded", "sated",
                 "parked", "uncalled", "moment", "fault", "remedy", "crew", "passage", "talk",
                 "news")
RETIRED_FORMS = {form for word in RETIRED_WORDS
                 for form in (word, word + "s", word + "es", re.sub("y$", "ies", word))}
# Parts of a name that are allowed. Page fault is the field's word, and tests inject faults (the
# n-th malloc fails): the second pattern holds in tests/ only, at the start of an identifier or of
# a file's or folder's name.
NAMES_APART = re.compile(r"(?<![A-Za-z])(page|minor|major)_faults?(?![a-z])", re.I)
TEST_NAMES_APART = re.compile(
    r"\b(eb_faults?_?|faults(?=[_./])|disarm_faults)|fault_injection", re.I)

# Static functions that may stand in several files of a folder. In kernels: what a template needs
# from each instruction set's file (vec_*.h with its own helpers; what key_take.h is given). In
# tests: what cmocka calls around each test.
STATICS_APART = {
    "kernels": r"vec_\w+|mask_of|(load|store)_(bytes|words)|narrow_bf16|round_to_odd|sum_up|"
               r"widen_(bf16|e4m3|e5m2|int2|int4|int8)|hash_group|match_slots",
    "tests": r"(set_up|tear_down)(_group)?",
}
# The file that defines EB_CONTAINER_OF, and the only one that wakes another thread's loop.
CONTAINER_OF = "proto/list.h"
MAILBOX = "proto/net/mailbox.c"

COMMENT_OR_LITERAL = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([\"<])([^\">]+)[\">]", re.M)


def read_tree(root):
    """All files of the tree but what is built or fetched, by path from the root."""
    tree = {}
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders
                            if f not in SKIPPED_FOLDERS and (f == ".ci" or f[0] != "."))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if path.endswith(CODE_FILES) or path.endswith(".md"):
                with open(path, encoding="utf-8") as file:
                    tree[path] = file.read()
    return tree


def spaces_for(text):
    return re.sub(r"[^\n]", " ", text)


@functools.cache
def without_comments(text):
    return COMMENT_OR_LITERAL.sub(
        lambda m: spaces_for(m[0]) if m[0][0] == "/" else m[0], text)


@functools.cache
def without_literals(text):
    """The text with comments and literals blanked; every position stays."""
    return COMMENT_OR_LITERAL.sub(
        lambda m: spaces_for(m[0]) if m[0][0] == "/"
        else m[0][0] + spaces_for(m[0][1:-1]) + m[0][-1], text)


@functools.cache
def code_of(text):
    """The text with comments, literals and directives blanked; every position stays."""
    return DIRECTIVE.sub(lambda m: spaces_for(m[0]), without_literals(text))


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def c_files(tree, *folders):
    for path, text in tree.items():
        if path.endswith(C_FILES) and (not folders or path.startswith(folders)):
            yield path, text


def layer_files(tree):
    return c_files(tree, *(layer + "/" for layer in LAYERS))


def matches(pattern, files, text, blank=code_of):
    """A finding for each match of the pattern in the code of the files."""
    for path, content in files:
        content = blank(content)
        for match in re.finditer(pattern, content):
            yield Finding(path, line_of(content, match.start()), text)


# Functions.

def matching_close(code, opened):
    """Where the bracket closes that code[opened] opens; the end of the code where it does not."""
    depth = 0
    for position in range(opened, len(code)):
        depth += (code[position] == "(") - (code[position] == ")")
        if depth == 0:
            return position
    return len(code)


def matching_open(code, close):
    """Where the bracket opens that code[close] closes; -1 where it does not."""
    depth = 0
    for position in range(close, -1, -1):
        if code[position] == ")":
            depth += 1
        elif code[position] == "(":
            depth -= 1
            if depth == 0:
                return position
    return -1


def split_parameters(text):
    depth, count = 0, 1
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        count += char == "," and depth == 0
    return 0 if text.strip() in ("", "void") else count


def parse_signature(head):
    """(name, parameter count) where the head is that of a function, else None."""
    head = re.sub(r"__attribute__\s*\(\(.*?\)\)\s*", "", head, flags=re.S).rstrip()
    if not head.endswith(")") or "=" in head:
        return None
    opened = matching_open(head, len(head) - 1)
    name = re.search(r"([A-Za-z_]\w*)\s*$", head[:max(opened, 0)])
    if not name or not head[:name.start(1)].strip():
        return None
    return name[1], split_parameters(head[opened + 1:-1])


@functools.cache
def parse_functions(path, text):
    return tuple(each_function(path, text))


def each_function(path, text):
    """Yields definitions (with a body) and declarations (body None) at file scope."""
    code = code_of(text)
    statics = set(re.findall(r"^#define (\w+) .*\bstatic\b", text, re.M)) | {"static"}
    depth, head_start, opened = 0, 0, 0
    for match in re.finditer(r"[{};]", code):
        if match[0] == "{":
            if depth == 0:
                opened = match.start()
                if re.search(r"extern\s+\"\s*\"\s*$", code[head_start:opened]):
                    head_start = match.end()
                    continue
            depth += 1
            continue
        if match[0] == "}" and depth > 0:
            depth -= 1
        if depth > 0:
            continue
        end = opened if match[0] == "}" else match.start()
        head = code[head_start:end]
        signature = parse_signature(head)
        if signature:
            name, parameters = signature
            called = max(m.start() for m in re.finditer(rf"\b{name}\s*\(", head))
            line = line_of(code, head_start + called)
            body = code[opened:match.end()] if match[0] == "}" else None
            yield Function(path, line, name, parameters, line_of(code, match.start()) - line + 1,
                           head, body, bool(statics & set(re.findall(r"\w+", head))))
            head_start = match.end()
        elif match[0] == ";" or opened < head_start:
            head_start = match.end()


def definitions(tree, *folders):
    for path, text in c_files(tree, *folders):
        for function in parse_functions(path, text):
            if function.body is not None:
                yield function


def opens_block(code, brace):
    """Whether the brace opens a block and not an initializer."""
    before = code[:brace].rstrip()
    if not before:
        return True
    if before[-1] in "{};:":
        return True
    if before[-1] == ")":
        word = re.search(r"([A-Za-z_]\w*)\s*$", before[:matching_open(before, len(before) - 1)])
        return bool(word) and word[1] not in ("return", "sizeof", "case")
    return bool(re.search(r"\b(else|do)$", before))


def nesting_of(body):
    """How many blocks lie in each other inside a body."""
    stack, deepest = [], 0
    for match in re.finditer(r"[{}]", body):
        if match[0] == "{":
            # Braces inside an initializer are part of it.
            stack.append((not stack or stack[-1]) and opens_block(body, match.start()))
            deepest = max(deepest, sum(stack))
        elif stack:
            stack.pop()
    return deepest - 1


# Rules. Each yields findings.

def covers(entries, path):
    """Whether an entry names the file, its folder ("a/") or a folder above it ("a/*")."""
    folder = os.path.dirname(path) + "/"
    return any(path.startswith(e[:-1]) if e.endswith("*") else e in (path, folder) for e in entries)


def allowed_includes(path):
    """The row of PROJECT_INCLUDES that holds for a file; None where there is none."""
    for row in (path, os.path.dirname(path) + "/", path.split("/")[0] + "/*"):
        if row in PROJECT_INCLUDES:
            return PROJECT_INCLUDES[row]
    return None


def check_project_includes(tree):
    """a folder includes only what DESIGN.md's table of layers lets it"""
    for path, text in c_files(tree):
        allowed = allowed_includes(path) or ()
        text = without_comments(text)
        for match in INCLUDE.finditer(text):
            if match[1] == '"' and not match[2].endswith((".pb-c.h", ".fields.h")):
                if not covers(allowed, match[2]):
                    yield Finding(path, line_of(text, match.start()),
                                  f'may not include "{match[2]}" (written from the root?)')


def check_folders(tree):
    """each folder of C files has a row in the table of layers and a CMake target of its own"""
    for folder in sorted({os.path.dirname(path) for path, _ in layer_files(tree)}):
        if folder + "/" not in PROJECT_INCLUDES:
            yield Finding(folder + "/", 1, "no row in PROJECT_INCLUDES")
        cmake = tree.get(folder + "/CMakeLists.txt", "")
        has_source = any(p.endswith(".c") for p in tree if os.path.dirname(p) == folder)
        if has_source and folder not in NO_TARGET_OF_THEIR_OWN:
            if not re.search(r"^\s*add_(library|executable)\(", cmake, re.M):
                yield Finding(folder + "/", 1, "no target of its own in CMake")


def may_use(path, library):
    if path.startswith("tests/"):
        return library != "openmp"
    return covers(LIBRARIES[library][1], path)


def check_library_includes(tree):
    """a library's header is included only where its layer is"""
    for path, text in c_files(tree):
        text = without_comments(text)
        for match in INCLUDE.finditer(text):
            for library, (pattern, _) in LIBRARIES.items():
                if re.match(pattern, match[2]) and not may_use(path, library):
                    line = line_of(text, match.start())
                    yield Finding(path, line, f"<{match[2]}> has no place here")


# Cycles of includes.

def module_of(path):
    return os.path.splitext(path)[0]


def include_graph(tree, unit_of):
    """Which units include which others; a unit is what unit_of makes of a path."""
    graph = defaultdict(set)
    for path, text in c_files(tree):
        graph[unit_of(path)] |= set()
        for match in INCLUDE.finditer(without_comments(text)):
            beside = os.path.join(os.path.dirname(path), match[2])
            # What is in neither place is generated or a library's.
            included = match[2] if match[2] in tree else beside
            if match[1] == '"' and included in tree and unit_of(path) != unit_of(included):
                graph[unit_of(path)].add(unit_of(included))
    return graph


def reachable(graph, start):
    seen, to_visit = set(), [start]
    while to_visit:
        for unit in graph[to_visit.pop()] - seen:
            seen.add(unit)
            to_visit.append(unit)
    return seen


def cycles_of(graph):
    """The sets of units that all include each other, directly or not, each sorted."""
    graph = dict(graph)
    # A unit that includes nothing, or only units left out already, lies in no cycle.
    while leaves := {unit for unit, included in graph.items() if not included}:
        graph = {u: included - leaves for u, included in graph.items() if u not in leaves}
    reached = {unit: reachable(graph, unit) for unit in graph}
    cycles = {tuple(sorted(other for other in reached[unit] if unit in reached[other]))
              for unit in graph if unit in reached[unit]}
    return sorted(cycles)


def check_folder_cycles(tree):
    """no include cycles between folders"""
    for cycle in cycles_of(include_graph(tree, os.path.dirname)):
        yield Finding(cycle[0] + "/", 1, f"a cycle of {len(cycle)} folders: {' '.join(cycle)}")


def check_module_cycles(tree):
    """no include cycles between modules"""
    for cycle in cycles_of(include_graph(tree, module_of)):
        path = next(p for p in (cycle[0] + ".h", cycle[0] + ".c") if p in tree)
        yield Finding(path, 1, f"a cycle of {len(cycle)} modules: {' '.join(cycle)}")


def link_words(item):
    """The library an item of target_link_libraries names, such as PkgConfig::LIBUV."""
    return [w for w in LINK_WORDS
            if re.search(rf"(?:^|::)(?:lib)?{w}(?:_c)?(?:$|::)", item.lower())]


def check_links(tree):
    """a target links only what its layer may use"""
    for path, text in tree.items():
        if not path.endswith("CMakeLists.txt") or not path.startswith(LAYERS):
            continue
        text = re.sub(r"#[^\n]*", "", text)
        for match in re.finditer(r"target_link_libraries\(\s*(\w+)([^)]*)\)", text):
            allowed = TARGET_LINKS.get(match[1])
            if allowed is None:
                line = line_of(text, match.start())
                yield Finding(path, line, f"{match[1]} has no row in TARGET_LINKS")
                continue
            for item in match[2].split():
                if not set(link_words(item)) <= set(allowed):
                    line = line_of(text, match.start())
                    yield Finding(path, line, f"{match[1]} may not link {item}")


def check_openmp(tree):
    """OpenMP lives in kernels/bag_parallel.c"""
    files = ((p, t) for p, t in c_files(tree) if p != "kernels/bag_parallel.c")
    return matches(r"#\s*pragma\s+omp\b", files, "#pragma omp outside kernels/bag_parallel.c",
                   without_comments)


def check_exit(tree):
    """exit() is called in main.c only"""
    files = ((p, t) for p, t in layer_files(tree) if os.path.basename(p) != "main.c")
    return matches(r"\b_?exit\s*\(", files, "exit() outside main.c")


def check_kernels_pure(tree):
    """kernels neither log nor read the environment nor, outside start-up, allocate"""
    yield from matches(r"\b(getenv|printf|fprintf|fputs|puts|perror)\s*\(",
                       c_files(tree, "kernels/"), "kernels neither log nor read the environment")
    files = ((p, t) for p, t in c_files(tree, "kernels/") if not p.endswith("bag_parallel.c"))
    yield from matches(r"\b(malloc|calloc|realloc|aligned_alloc|posix_memalign)\s*\(", files,
                       "kernels do not allocate")


def check_mailbox(tree):
    """threads reach loops through the mailbox"""
    files = ((p, t) for p, t in c_files(tree, "server/", "proto/", "client/")
             if p != MAILBOX)
    return matches(r"\buv_async_send\s*\(", files, "uv_async_send outside the mailbox")


def check_function_lines(tree):
    """a function has at most 80 lines"""
    for function in definitions(tree):
        if function.lines > FUNCTION_LINES_MAX:
            yield Finding(function.path, function.line, f"{function.name}: {function.lines} lines")


def check_median(tree):
    """half of all functions have at most 12 lines"""
    lines = [f.lines for f in definitions(tree, *(layer + "/" for layer in LAYERS))]
    if lines and statistics.median(lines) > FUNCTION_LINES_MEDIAN:
        yield Finding(".", 1, f"median {statistics.median(lines):g}")


def check_macro_lines(tree):
    """a macro does not hide a function longer than 80 lines"""
    for path, text in c_files(tree):
        for match in DIRECTIVE.finditer(text):
            lines = match[0].count("\n") + 1
            if lines > FUNCTION_LINES_MAX:
                yield Finding(path, line_of(text, match.start()), f"a macro of {lines} lines")


def check_parameters(tree):
    """a function has at most 6 parameters, callbacks apart whose type a library fixes"""
    for path, text in c_files(tree):
        for function in parse_functions(path, text):
            # Of callbacks and of functions that a linker puts in a library's place, the library
            # fixes the type.
            fixed = function.name.startswith(("on_", "__wrap_", "__real_"))
            if function.parameters > PARAMETERS_MAX and not fixed:
                yield Finding(path, function.line,
                              f"{function.name}: {function.parameters} parameters")


def check_nesting(tree):
    """blocks nest at most 3 deep in a function"""
    for function in definitions(tree):
        nesting = nesting_of(function.body)
        if nesting > NESTING_MAX:
            yield Finding(function.path, function.line, f"{function.name}: nesting {nesting}")


def check_recursion(tree):
    """no function calls itself"""
    for function in definitions(tree, *(layer + "/" for layer in LAYERS)):
        if re.search(rf"(?<![\w.>]){function.name}\s*\(", function.body):
            yield Finding(function.path, function.line, f"{function.name} calls itself")


def check_file_lines(tree):
    """a .c has at most 1000 lines, a .h 400"""
    for path, text in c_files(tree):
        lines, most = text.count("\n"), FILE_LINES_MAX[os.path.splitext(path)[1]]
        if lines > most:
            yield Finding(path, lines, f"{lines} lines, at most {most}")


def code_files(tree):
    return ((p, t) for p, t in tree.items() if not p.endswith(".md"))


def check_columns(tree):
    """a line has at most 100 columns"""
    for path, text in code_files(tree):
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > COLUMNS_MAX:
                yield Finding(path, number, f"{len(line)} columns")


def check_blanks(tree):
    """no tabs, no blanks at the end of a line, one newline at the end of a file"""
    for path, text in code_files(tree):
        for match in re.finditer(r"\t|[ \r]+$", text, re.M):
            yield Finding(path, line_of(text, match.start()), "tab or trailing blank")
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            yield Finding(path, text.count("\n"), "end of file")


def check_base_names(tree):
    """base names are unique; a module's .h and .c lie together"""
    seen = {}
    for path, _ in c_files(tree):
        folder, name = os.path.split(path)
        if name in SHARED_NAMES:
            continue
        stem = os.path.splitext(name)[0]
        if seen.setdefault(stem, folder) != folder:
            yield Finding(path, 1, f"{seen[stem]}/ has a {stem} too")


def check_folder_names(tree):
    """nothing is called util, common, helpers, misc or internal"""
    for path in tree:
        for part in path.split("/"):
            if re.fullmatch(r"(utils?|common|helpers?|misc|internal)(\.\w+)?", part):
                yield Finding(path, 1, f"{part} says nothing")


def check_header_start(tree):
    """a header begins with what it is, its thread and its memory, then #pragma once"""
    for path, text in c_files(tree):
        if not path.endswith(".h"):
            continue
        comment = re.match(r"/\*.*?\*/", text, re.S)
        if not comment:
            yield Finding(path, 1, "no comment at the head")
        elif not path.startswith("tests/"):
            for word in ("thread", "memory"):
                if word not in comment[0].lower():
                    yield Finding(path, 1, f"the comment at the head says nothing of {word}")
        if not re.search(r"^#pragma once$", text, re.M):
            yield Finding(path, 1, "no #pragma once")


def check_typedefs(tree):
    """no typedef for structs and enums; function types end in _cb or _fn"""
    for path, text in c_files(tree):
        code = code_of(text)
        for match in re.finditer(r"\btypedef\b([^;{]*)", code):
            line, kind = line_of(code, match.start()), match[1].split()[0]
            if kind in ("struct", "enum", "union") and not match[1].rstrip().endswith(")"):
                yield Finding(path, line, f"typedef of {kind}")
            function = re.search(r"(\w+)\s*\)?\s*\((?:[^()]|\([^()]*\))*\)\s*$", match[1])
            if function and not function[1].endswith(("_cb", "_fn")):
                yield Finding(path, line, f"{function[1]} should end in _cb or _fn")


def check_public_names(tree):
    """what other files see begins with eb_ or embag_; statics of a .c do not"""
    for function in definitions(tree, *(layer + "/" for layer in LAYERS)):
        prefixed = function.name.startswith(("eb_", "embag_"))
        # A name in capitals is a macro's, set by whoever includes the file.
        free = function.name == "main" or function.name.isupper()
        if not function.static and not prefixed and not free:
            wrong = f"{function.name} is neither static nor eb_"
            yield Finding(function.path, function.line, wrong)
        if function.static and prefixed and function.path.endswith(".c"):
            yield Finding(function.path, function.line, f"{function.name} is static: no prefix")


@functools.cache
def has_retired_word(name):
    """Whether a word of a name is retired, in the plural too; words end at _, . and capitals."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return any(word.lower() in RETIRED_FORMS for word in words)


def python_names(text):
    """The text with all but names and ends of lines blanked."""
    lines = [""] * (text.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            lines[token.start[0] - 1] += token.string + " "
    return "\n".join(lines)


def check_retired_words(tree):
    """no name holds a word that GLOSSARY.md retires"""
    for path, text in code_files(tree):
        in_tests = path.startswith("tests/")
        apart = [NAMES_APART, TEST_NAMES_APART] if in_tests else [NAMES_APART]
        names = ""
        if path.endswith((*C_FILES, ".cc")):
            names = without_literals(text)
        elif path.endswith(".py"):
            names = python_names(text)
        counts = Counter(re.findall(r"[A-Za-z_]\w*", names))
        for name in [path, *counts]:
            kept = name
            for pattern in apart:
                kept = pattern.sub("", kept)
            if has_retired_word(kept):
                at = re.search(rf"\b{name}\b", names) if name != path else None
                times = f" ({counts[name]} times)" if counts[name] > 1 else ""
                yield Finding(path, line_of(names, at.start()) if at else 1, name + times)


def check_statics(tree):
    """a static function's name stands in one file of a folder"""
    files = defaultdict(dict)
    for function in definitions(tree):
        folder = os.path.dirname(function.path)
        apart = STATICS_APART.get(folder.split("/")[0], "")
        if function.static and not re.fullmatch(apart, function.name):
            files[folder, function.name].setdefault(function.path, function.line)
    for (_, name), lines in files.items():
        if len(lines) > 1:
            path, *others = lines
            names = ", ".join(map(os.path.basename, others))
            yield Finding(path, lines[path], f"{name} stands in {names} too")


def check_null(tree):
    """a pointer is tested as p or !p"""
    return matches(r"[=!]=\s*NULL\b|\bNULL\s*[=!]=", c_files(tree), "compared with NULL",
                   without_literals)


def is_type(text):
    """Whether what stands in sizeof(...) is a type; macros' names and generated types are."""
    base = r"(void|_?[Bb]ool|char|short|int|long|float|double|DIR|FILE|\w+_(t|cb|fn)|[A-Z]\w*)"
    start = r"(struct|enum|union|const|volatile|unsigned|signed|long|short)\b"
    return bool(re.match(rf"\s*({start}|{base}[\s*]*(const[\s*]*)?(\[[^]]*\]\s*)*$)", text))


def check_sizeof(tree):
    """sizeof takes an expression without brackets: sizeof x"""
    for path, text in c_files(tree):
        code = code_of(text)
        for match in re.finditer(r"\bsizeof\s*\(", code):
            operand = code[match.end():matching_close(code, match.end() - 1)]
            # A cast or a compound literal at its start needs the brackets.
            if not is_type(operand) and not operand.startswith("("):
                yield Finding(path, line_of(code, match.start()), f"sizeof({operand})")


def check_increments(tree):
    """++ and -- stand behind their operand if the value is not used: x++"""
    change = r"\s*((?:\+\+|--)(?:->|[\w.*()\[\] +-])*)"
    statement = rf"(?:[;{{}}:]\s*\n|\)\s|\b(?:else|do)\b){change};"
    last_in_for = rf";(?:[^;{{}}()=]*,)?{change}[,)]"
    for path, text in c_files(tree):
        code = code_of(text)
        for pattern in (statement, last_in_for):
            for match in re.finditer(pattern, code):
                yield Finding(path, line_of(code, match.start(1)), match[1])


def check_containers(tree):
    """the struct around a member is found by EB_CONTAINER_OF"""
    files = [(p, t) for p, t in c_files(tree) if p != CONTAINER_OF]
    yield from matches(r"\((?:const )?(?:(?:un)?signed )?(?:char|u?int8_t) \*\)[^;]*?-\s*offsetof",
                       files, "a container found by hand", without_literals)
    for function in definitions(tree):
        if function.path.startswith("kernels/"):
            continue
        yield from cast_members(function)


def cast_members(function):
    """Finds (struct x *)p where p is declared in the function as another struct's or a handle."""
    code = function.head + function.body
    pattern = r"\((?:const )?struct (\w+) \*\)(?:\(void \*\))?(\w+)\b(?!\s*(?:->|[.(\[]))"
    for cast in re.finditer(pattern, function.body):
        declared = re.search(rf"\b(?:struct (\w+)|(uv_\w+_t)) \*{cast[2]}\b", code)
        # The C library's addresses are made to be cast.
        apart = declared and (declared[1] == cast[1] or "sockaddr" in cast[1])
        if declared and not apart:
            # The body ends where the function does.
            line = function.line + function.lines - 1 - function.body.count("\n", cast.start())
            yield Finding(function.path, line, f"{cast[0]} of {declared[0]}")


def check_stack(tree):
    """no alloca"""
    return matches(r"\balloca\s*\(", c_files(tree), "alloca")


def check_marks(tree):
    """no notes to be done later, no licence text"""
    pattern = r"\b(TO" r"DO|FIX" r"ME|X" r"XX|Copy" r"right|SPDX" r"-License)\b"
    return matches(pattern, code_files(tree), "a note for later, or licence text", str)


def lists_source(text, path):
    """Whether a CMakeLists.txt names a file, or a test by its module: "bag" for test_bag.c."""
    module = re.fullmatch(r"test_(\w+)\.c", path)
    names = [path, module[1]] if module and re.search(r"\btest_\$\{", text) else [path]
    return any(re.search(rf"(?<![\w./]){re.escape(name)}(?![\w.])", text) for name in names)


def check_sources_listed(tree):
    """every .c is named in a CMakeLists.txt; none is globbed"""
    lists = {os.path.dirname(p): t for p, t in tree.items() if p.endswith("CMakeLists.txt")}
    for path, _ in c_files(tree):
        if path.endswith(".c"):
            folder, found = os.path.dirname(path), False
            while folder and not found:
                found = lists_source(lists.get(folder, ""), os.path.relpath(path, folder))
                folder = os.path.dirname(folder)
            if not found and not any("${PROJECT_SOURCE_DIR}/" + path in t for t in lists.values()):
                yield Finding(path, 1, "in no CMakeLists.txt")
    for folder, text in lists.items():
        if re.search(r"file\s*\(\s*GLOB", text):
            yield Finding(f"{folder}/CMakeLists.txt", 1, "sources are listed, not globbed")


CONST_LOCAL = re.compile(
    r"^(?: {4})+const (?:(?:struct|enum|union) \w+|unsigned (?:long long|long|char|int)|long long|"
    r"(?!(?:struct|enum|union|char|volatile)\b)\w+) \w+(?:;| =|,)", re.M)


def check_const(tree):
    """const stands on pointers to what is not changed, and on no other local"""
    for path, text in c_files(tree):
        for match in CONST_LOCAL.finditer(without_literals(text)):
            line = text[match.start():].split("\n", 1)[0]
            is_in_macro = line.endswith("\\") or text[:match.start()].endswith("\\\n")
            if not is_in_macro and not path.startswith("client/examples/"):
                yield Finding(path, line_of(text, match.start()), "a const local")


def check_walks(tree):
    """the files and functions that ARCHITECTURE.md names are there"""
    guide = "server/ARCHITECTURE.md"
    text = tree.get(guide, "")
    for match in re.finditer(r"`((?:proto|kernels|server|client)/[\w/.]+\.[ch])(?::(\w+))?`", text):
        path, name = match.groups()
        if path not in tree:
            yield Finding(guide, line_of(text, match.start()), f"no file {path}")
        elif name and name not in {f.name for f in parse_functions(path, tree[path])}:
            yield Finding(guide, line_of(text, match.start()), f"no function {name} in {path}")


RULES = [
    check_project_includes, check_folders, check_folder_cycles, check_module_cycles,
    check_library_includes,
    check_links, check_openmp, check_exit, check_kernels_pure, check_mailbox,
    check_function_lines, check_median, check_macro_lines, check_parameters, check_nesting,
    check_recursion, check_file_lines, check_columns, check_blanks, check_base_names,
    check_folder_names, check_header_start, check_typedefs, check_public_names, check_stack,
    check_marks, check_sources_listed, check_retired_words, check_null, check_const, check_walks,
    check_statics, check_sizeof, check_increments, check_containers,
]


def check_format(tree):
    """clang-format would change nothing"""
    files = [p for p in tree if p.endswith((".c", ".h", ".cc"))]
    run = subprocess.run(["clang-format", "--dry-run", "-Werror", *files],
                         capture_output=True, text=True)
    places = {}
    for path, line in re.findall(r"^([^:\n]+):(\d+):\d+: error:", run.stderr, re.M):
        places.setdefault(path, set()).add(int(line))
    for path, lines in places.items():
        yield Finding(path, min(lines), f"clang-format would change {len(lines)} lines")
    if run.returncode != 0 and "error:" not in run.stderr:
        yield Finding(".clang-format", 1, run.stderr.strip())


def print_sizes(tree):
    for folder in (*LAYERS, "tests"):
        functions = list(definitions(tree, folder + "/"))
        if functions:
            longest = max(functions, key=lambda f: f.lines)
            median = statistics.median(f.lines for f in functions)
            print(f"{folder + '/':<9} {len(functions):4d} functions, median {median:g} lines, "
                  f"longest {longest.lines} ({longest.name})")


def print_shape(tree):
    """Prints figures that no rule bounds, and the number of include cycles."""
    sources = {path: text for path, text in layer_files(tree)}
    files, total = defaultdict(set), Counter()
    for function in definitions(sources):
        files[function.name].add(function.path)
        total[function.name] += 1
    shared = sum(total[name] for name in files if len(files[name]) > 1)
    users = defaultdict(set)
    for path, text in sources.items():
        for match in INCLUDE.finditer(without_comments(text)):
            if module_of(path) != module_of(match[2]):
                users[match[2]].add(module_of(path))
    headers = [path for path in sources if path.endswith(".h")]
    single = sum(len(users[header]) == 1 for header in headers)
    print(f"definitions whose name stands in several files: {shared} of {total.total()} "
          f"({100 * shared / max(total.total(), 1):.1f} %)")
    print(f"headers that one module uses: {single} of {len(headers)} "
          f"({100 * single / max(len(headers), 1):.1f} %)")
    folders = len(cycles_of(include_graph(tree, os.path.dirname)))
    modules = len(cycles_of(include_graph(tree, module_of)))
    print(f"include cycles: {folders} between folders, {modules} between modules")


def main():
    tree = read_tree(".")
    failed = 0
    rules = [*RULES, check_format]
    for rule in rules:
        findings = list(rule(tree))
        failed += bool(findings)
        if findings:
            print(f"broken: {rule.__doc__}")
        for finding in findings:
            print(f"  {finding.path}:{finding.line}: {finding.text}")
    print_sizes(tree)
    print_shape(tree)
    print(f"{len(rules) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
