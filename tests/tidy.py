"""Checks the house rules that a program can check. tests/tidy.sh runs it.

Every rule is a function that takes the tree (a dict from path to text) and yields findings. Its
docstring states the rule. The tree must pass all of RULES. tidy_cases.py tests each rule with text
that breaks it and text that does not.
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
# File names that may be in several folders.
SHARED_NAMES = {"main.c"}

# The server's layers that a folder may include, from the lowest up. DESIGN.md has the order.
FORMATS = ("server/base/", "server/formats/")
TABLES = (*FORMATS, "server/contents/", "server/tables/")
MODELS = (*TABLES, "server/models/")

# Headers of the project that a file may include. The file's own row applies if it has one, and the
# row of its folder otherwise. "a/" means the files directly in a, "a/*" also those in its folders.
PROJECT_INCLUDES = {
    "proto/": ("proto/",),
    "proto/net/": ("proto/", "proto/net/"),
    "proto/link/": ("proto/", "proto/net/", "proto/link/"),
    "kernels/": ("kernels/",),
    "kernels/x86/": ("kernels/", "kernels/x86/"),
    "kernels/arm/": ("kernels/", "kernels/arm/"),
    "server/": ("proto/", "proto/net/", "proto/link/", "kernels/", "server/*"),
    "server/base/": ("proto/", "server/base/"),
    "server/formats/": ("proto/", "kernels/", *FORMATS),
    "server/contents/": ("proto/", "kernels/", *FORMATS, "server/contents/"),
    "server/tables/": ("proto/", "kernels/", *TABLES),
    "server/models/": ("proto/", "kernels/", *MODELS),
    "server/publish/": ("proto/", "proto/net/", *MODELS, "server/publish/"),
    "server/net/": ("proto/", "proto/net/", "server/base/", "server/net/"),
    "server/work/": ("proto/", "kernels/", "server/base/", "server/work/"),
    "server/route/": ("proto/", "proto/net/", "proto/link/", "kernels/", *FORMATS,
                      "server/models/", "server/route/"),
    # server/stats/ includes the models because it counts per table.
    "server/stats/": ("proto/", "proto/net/", "kernels/", *MODELS, "server/work/", "server/stats/"),
    "server/rpc/": ("proto/", "proto/net/", "proto/link/", "kernels/", *MODELS, "server/publish/",
                    "server/net/", "server/work/", "server/route/", "server/stats/",
                    "server/rpc/"),
    "server/admin/": ("proto/", "proto/net/", "server/base/", "server/net/", "server/work/",
                      "server/stats/", "server/admin/"),
    "client/": ("proto/", "proto/net/", "proto/link/", "client/"),
    # The public headers are installed in one folder.
    "client/embag.h": ("embag_models.h", "embag_types.h"),
    "client/embag_models.h": ("embag_types.h",),
    "client/embag_types.h": (),
    "client/embag_admin.h": ("embag.h",),
    "client/embag_async.h": ("embag.h",),
    "client/embag_local.h": ("embag.h",),
    "client/embag_servers.h": ("embag.h",),
    "client/local/": ("proto/", "client/embag_local.h", "client/embag_types.h",
                      "client/lookup_layout.h", "client/local/", "kernels/", *TABLES),
    "client/cli/": ("proto/", "proto/net/", "proto/link/", "client/", "client/cli/", "kernels/",
                    *TABLES),
    "client/examples/": ("client/embag.h", "client/embag_async.h"),
    # Code without sockets is tested without sockets.
    "tests/unit/proto/": ("proto/", "tests/lib/", "tests/unit/proto/"),
    "tests/unit/grpc/": ("proto/", "tests/lib/", "tests/unit/proto/", "tests/unit/grpc/"),
    "tests/*": ("proto/*", "kernels/*", "server/*", "client/*", "tests/*"),
}
# Folders of one-file programs, which the CMakeLists.txt of the parent folder builds.
NO_TARGET_OF_THEIR_OWN = {"client/examples"}

# For each library, by its name in CMake: its headers, and the files that may include them (written
# as above).
LIBRARIES = {
    "nghttp2": (r"nghttp2/", ("proto/",)),
    "protobuf": (r"protobuf-c/|.*\.(pb-c|fields)\.h$", ("proto/", "server/rpc/")),
    "zlib": (r"zlib\.h$", ("proto/",)),
    "uv": (r"uv\.h$", ("proto/net/", "proto/link/", "server/", "server/publish/", "server/net/",
                       "server/work/", "server/route/", "server/stats/", "server/rpc/",
                       "server/admin/", "client/")),
    "microhttpd": (r"microhttpd\.h$", ("server/admin/",)),
    "openssl": (r"openssl/", ("proto/net/", "proto/link/", "server/net/")),
    "jansson": (r"jansson\.h$", ("client/cli/", "server/tables/")),
    "cyaml": (r"cyaml/", ("server/", "server/base/", "server/formats/",
                         "server/contents/", "client/cli/")),
    "numa": (r"numa(if)?\.h$", ("server/tables/",)),
    "xxhash": (r"xxhash\.h$", ("server/formats/", "server/tables/")),
    "openmp": (r"omp\.h$", ("kernels/bag_parallel.c",)),
    "jemalloc": (r"jemalloc/", ("server/main.c",)),
    "systemd": (r"systemd/", ("server/service_manager.c",)),
    "intrinsics": (r"([a-z0-9]*intrin|arm_neon|arm_sve)\.h$", ("kernels/*",)),
    "threads": (r"(pthread|threads|semaphore)\.h$",
                ("kernels/bag_parallel.c", "server/base/", "server/tables/", "client/cli/",
                 "client/local/")),
    "sockets": (r"(sys/socket|netinet/.*|netdb|sys/epoll|poll)\.h$",
                ("proto/net/", "proto/link/", "server/base/", "server/net/", "server/admin/",
                 "client/cli/http_get.c", "client/local/")),
}

# For each target, the targets and libraries that it may link, by their names in CMake.
TARGET_LINKS = {
    "embag_kernels": ("openmp",),
    "embag_kernels_x86": (),
    "embag_kernels_arm": (),
    "embag_proto_generated": ("protobuf",),
    "embag_proto": ("embag_proto_generated", "nghttp2", "protobuf", "zlib"),
    "embag_net": ("embag_proto", "uv", "openssl"),
    "embag_link": ("embag_net", "uv", "openssl"),
    "embag_base": ("embag_proto", "cyaml"),
    "embag_formats": ("embag_base", "embag_kernels", "cyaml", "xxhash"),
    "embag_contents": ("embag_formats", "cyaml"),
    "embag_tables": ("embag_contents", "jansson", "numa", "xxhash"),
    "embag_models": ("embag_tables",),
    "embag_publish": ("embag_models", "embag_net"),
    "embag_server_net": ("embag_base", "embag_net", "openssl"),
    "embag_work": ("embag_base", "embag_kernels", "uv"),
    "embag_route": ("embag_formats", "embag_link", "embag_proto", "uv"),
    "embag_stats": ("embag_models", "embag_net", "embag_work"),
    "embag_rpc": ("embag_publish", "embag_route", "embag_server_net", "embag_stats", "embag_work",
                  "embag_proto_generated"),
    "embag_admin": ("embag_server_net", "embag_stats", "microhttpd"),
    "embag_server": ("embag_rpc", "embag_admin", "cyaml", "systemd"),
    "embagd": ("embag_server", "jemalloc"),
    "embag_client": ("embag_proto", "embag_net", "embag_link", "uv", "openssl"),
    "embag_shared": ("embag_proto", "embag_net", "embag_link", "uv", "openssl"),
    "embag_local_parts": ("embag_client", "embag_kernels", "embag_tables"),
    "embag_local": ("embag_client", "embag_kernels", "embag_tables"),
    "embag_cli_parts": ("embag_client", "embag_kernels", "embag_tables", "cyaml", "jansson"),
    "embag_cli": ("embag_cli_parts",),
    "embag_load_parts": ("embag_cli_parts", "embag_kernels", "jansson"),
    "embag_load": ("embag_load_parts",),
}
LINK_WORDS = (*TARGET_LINKS, "nghttp2", "protobuf", "zlib", "uv", "openssl", "jansson", "cyaml",
              "numa", "xxhash", "microhttpd", "openmp", "jemalloc", "systemd")

# Words that names must not contain. GLOSSARY.md has the words to use instead.
RETIRED_WORDS = ("census", "wish", "tally", "roster", "inquiry", "desk", "crowded", "sated",
                 "parked", "uncalled", "moment", "fault", "remedy", "crew", "passage", "talk",
                 "news")
RETIRED_FORMS = {form for word in RETIRED_WORDS
                 for form in (word, word + "s", word + "es", re.sub("y$", "ies", word))}
# Parts of names that are allowed nevertheless. "Page fault" is the field's term, and tests inject
# faults (the n-th malloc fails). The second pattern applies in tests/ only, at the start of an
# identifier or of the name of a file or folder.
NAMES_APART = re.compile(r"(?<![A-Za-z])(page|minor|major)_faults?(?![a-z])", re.I)
TEST_NAMES_APART = re.compile(
    r"\b(eb_faults?_?|faults(?=[_./])|disarm_faults)|fault_injection", re.I)

# Static functions that may be defined in several files of a folder. In kernels: those that a
# template needs from the file of each instruction set (vec_*.h with its own helpers; the parameters
# of key_take_tmpl.c). In tests: those that cmocka calls before and after each test.
STATICS_APART = {
    "kernels": r"vec_\w+|mask_of|(load|store)_(bytes|words)|narrow_bf16|round_to_odd|sum_up|"
               r"widen_(bf16|e4m3|e5m2|int2|int4|int8)|hash_group|match_slots",
    "tests": r"(set_up|tear_down)(_group)?",
}
# The only file that defines EB_CONTAINER_OF, and the only one that wakes another thread's loop.
CONTAINER_OF = "proto/list.h"
MAILBOX = "proto/net/mailbox.c"

COMMENT_OR_LITERAL = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([\"<])([^\">]+)[\">]", re.M)


def read_tree(root):
    """Returns the texts of all files that are not built or downloaded, by path from the root."""
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
    """Returns the text with comments and literals blanked. Positions do not change."""
    return COMMENT_OR_LITERAL.sub(
        lambda m: spaces_for(m[0]) if m[0][0] == "/"
        else m[0][0] + spaces_for(m[0][1:-1]) + m[0][-1], text)


@functools.cache
def code_of(text):
    """Returns the text with comments, literals and directives blanked. Positions do not change."""
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
    """Yields a finding for each match of the pattern in the code of the files."""
    for path, content in files:
        content = blank(content)
        for match in re.finditer(pattern, content):
            yield Finding(path, line_of(content, match.start()), text)


# Functions.

def matching_close(code, opened):
    """Returns the position of the bracket that closes code[opened], or the end of the code."""
    depth = 0
    for position in range(opened, len(code)):
        depth += (code[position] == "(") - (code[position] == ")")
        if depth == 0:
            return position
    return len(code)


def matching_open(code, close):
    """Returns the position of the bracket that opens code[close], or -1."""
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
    """Returns (name, number of parameters) if the head is that of a function, otherwise None."""
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
    """Yields definitions (with a body) and declarations (body None) at file scope.

    The name of OF_TYPE(f)(x), where a template's macro completes the name, is f.
    """
    code = re.sub(r"\b[A-Z][A-Z0-9_]*\((\w+)\)(?=\()", r"\1", code_of(text))
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
    """Returns whether the brace opens a block, not an initializer."""
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
    """Returns the nesting depth of blocks inside a function body."""
    stack, deepest = [], 0
    for match in re.finditer(r"[{}]", body):
        if match[0] == "{":
            # Braces inside an initializer belong to it.
            stack.append((not stack or stack[-1]) and opens_block(body, match.start()))
            deepest = max(deepest, sum(stack))
        elif stack:
            stack.pop()
    return deepest - 1


# Rules. Each yields findings.

def covers(entries, path):
    """Returns whether an entry is the file, its folder ("a/") or a folder above it ("a/*")."""
    folder = os.path.dirname(path) + "/"
    return any(path.startswith(e[:-1]) if e.endswith("*") else e in (path, folder) for e in entries)


def allowed_includes(path):
    """Returns the row of PROJECT_INCLUDES that applies to a file, or None."""
    for row in (path, os.path.dirname(path) + "/", path.split("/")[0] + "/*"):
        if row in PROJECT_INCLUDES:
            return PROJECT_INCLUDES[row]
    return None


def check_project_includes(tree):
    """a folder includes only what DESIGN.md's table of layers allows"""
    for path, text in c_files(tree):
        allowed = allowed_includes(path) or ()
        text = without_comments(text)
        for match in INCLUDE.finditer(text):
            if match[1] == '"' and not match[2].endswith((".pb-c.h", ".fields.h")):
                if not covers(allowed, match[2]):
                    yield Finding(path, line_of(text, match.start()),
                                  f'must not include "{match[2]}" (is the path from the root?)')


def check_folders(tree):
    """each folder of C files has a row in the table of layers and a CMake target of its own"""
    for folder in sorted({os.path.dirname(path) for path, _ in layer_files(tree)}):
        if folder + "/" not in PROJECT_INCLUDES:
            yield Finding(folder + "/", 1, "the folder has no row in PROJECT_INCLUDES")
        cmake = tree.get(folder + "/CMakeLists.txt", "")
        has_source = any(p.endswith(".c") for p in tree if os.path.dirname(p) == folder)
        if has_source and folder not in NO_TARGET_OF_THEIR_OWN:
            if not re.search(r"^\s*add_(library|executable)\(", cmake, re.M):
                yield Finding(folder + "/", 1, "the folder has no CMake target of its own")


def may_use(path, library):
    if path.startswith("tests/"):
        return library != "openmp"
    return covers(LIBRARIES[library][1], path)


def check_library_includes(tree):
    """a library's header is included only by the layers that may use it"""
    for path, text in c_files(tree):
        text = without_comments(text)
        for match in INCLUDE.finditer(text):
            for library, (pattern, _) in LIBRARIES.items():
                if re.match(pattern, match[2]) and not may_use(path, library):
                    line = line_of(text, match.start())
                    yield Finding(path, line, f"must not include <{match[2]}>")


# Cycles of includes.

def module_of(path):
    return os.path.splitext(path)[0]


def include_graph(tree, unit_of):
    """Returns, for each unit, the units that it includes. unit_of returns the unit of a path."""
    graph = defaultdict(set)
    for path, text in c_files(tree):
        graph[unit_of(path)] |= set()
        for match in INCLUDE.finditer(without_comments(text)):
            beside = os.path.join(os.path.dirname(path), match[2])
            # A header in neither place is generated or belongs to a library.
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
    """Returns the sets of units that all include each other, directly or indirectly, sorted."""
    graph = dict(graph)
    # A unit that includes nothing, or only units already removed, is in no cycle.
    while leaves := {unit for unit, included in graph.items() if not included}:
        graph = {u: included - leaves for u, included in graph.items() if u not in leaves}
    reached = {unit: reachable(graph, unit) for unit in graph}
    cycles = {tuple(sorted(other for other in reached[unit] if unit in reached[other]))
              for unit in graph if unit in reached[unit]}
    return sorted(cycles)


def check_folder_cycles(tree):
    """there are no include cycles between folders"""
    for cycle in cycles_of(include_graph(tree, os.path.dirname)):
        yield Finding(cycle[0] + "/", 1, f"a cycle of {len(cycle)} folders: {' '.join(cycle)}")


def check_module_cycles(tree):
    """there are no include cycles between modules"""
    for cycle in cycles_of(include_graph(tree, module_of)):
        path = next(p for p in (cycle[0] + ".h", cycle[0] + ".c") if p in tree)
        yield Finding(path, 1, f"a cycle of {len(cycle)} modules: {' '.join(cycle)}")


def link_words(item):
    """Returns the libraries that an item of target_link_libraries names, like PkgConfig::LIBUV."""
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
                    yield Finding(path, line, f"{match[1]} must not link {item}")


def check_openmp(tree):
    """only kernels/bag_parallel.c uses OpenMP"""
    files = ((p, t) for p, t in c_files(tree) if p != "kernels/bag_parallel.c")
    return matches(r"#\s*pragma\s+omp\b", files, "#pragma omp outside kernels/bag_parallel.c",
                   without_comments)


def check_exit(tree):
    """only main.c calls exit()"""
    files = ((p, t) for p, t in layer_files(tree) if os.path.basename(p) != "main.c")
    return matches(r"\b_?exit\s*\(", files, "exit() outside main.c")


def check_kernels_pure(tree):
    """kernels do not log, read the environment or, after start-up, allocate"""
    yield from matches(r"\b(getenv|printf|fprintf|fputs|puts|perror)\s*\(",
                       c_files(tree, "kernels/"), "kernels must not log or read the environment")
    files = ((p, t) for p, t in c_files(tree, "kernels/") if not p.endswith("bag_parallel.c"))
    yield from matches(r"\b(malloc|calloc|realloc|aligned_alloc|posix_memalign)\s*\(", files,
                       "kernels must not allocate")


def check_mailbox(tree):
    """threads reach the loops of other threads through the mailbox"""
    files = ((p, t) for p, t in c_files(tree, "server/", "proto/", "client/")
             if p != MAILBOX)
    return matches(r"\buv_async_send\s*\(", files, "uv_async_send outside the mailbox")


def check_function_lines(tree):
    """a function has at most 80 lines"""
    for function in definitions(tree):
        if function.lines > FUNCTION_LINES_MAX:
            yield Finding(function.path, function.line,
                          f"{function.name} has {function.lines} lines")


def check_median(tree):
    """at least half of all functions have at most 12 lines"""
    lines = [f.lines for f in definitions(tree, *(layer + "/" for layer in LAYERS))]
    if lines and statistics.median(lines) > FUNCTION_LINES_MEDIAN:
        yield Finding(".", 1, f"the median function has {statistics.median(lines):g} lines")


def check_macro_lines(tree):
    """a macro does not hide a function longer than 80 lines"""
    for path, text in c_files(tree):
        for match in DIRECTIVE.finditer(text):
            lines = match[0].count("\n") + 1
            if lines > FUNCTION_LINES_MAX:
                yield Finding(path, line_of(text, match.start()), f"a macro of {lines} lines")


def check_parameters(tree):
    """a function has at most 6 parameters, except a callback whose type a library defines"""
    for path, text in c_files(tree):
        for function in parse_functions(path, text):
            # The library defines the types of callbacks and of functions that replace its own.
            fixed = function.name.startswith(("on_", "__wrap_", "__real_"))
            if function.parameters > PARAMETERS_MAX and not fixed:
                yield Finding(path, function.line,
                              f"{function.name} has {function.parameters} parameters")


def check_nesting(tree):
    """blocks nest at most 3 deep in a function"""
    for function in definitions(tree):
        nesting = nesting_of(function.body)
        if nesting > NESTING_MAX:
            yield Finding(function.path, function.line,
                          f"{function.name} nests blocks {nesting} deep")


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
    """there are no tabs, no trailing blanks, and one newline at the end of a file"""
    for path, text in code_files(tree):
        for match in re.finditer(r"\t|[ \r]+$", text, re.M):
            yield Finding(path, line_of(text, match.start()), "a tab or a trailing blank")
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            yield Finding(path, text.count("\n"), "the file must end with exactly one newline")


def check_base_names(tree):
    """base names are unique; a module's .h and .c are in the same folder"""
    seen = {}
    for path, _ in c_files(tree):
        folder, name = os.path.split(path)
        if name in SHARED_NAMES:
            continue
        stem = os.path.splitext(name)[0]
        if seen.setdefault(stem, folder) != folder:
            yield Finding(path, 1, f"{seen[stem]}/ also has a module {stem}")


def check_folder_names(tree):
    """no file or folder is called util, common, helpers, misc or internal"""
    for path in tree:
        for part in path.split("/"):
            if re.fullmatch(r"(utils?|common|helpers?|misc|internal)(\.\w+)?", part):
                yield Finding(path, 1, f"the name {part} does not say what it holds")


def check_header_start(tree):
    """a header begins with a comment (what it is, threads, memory), then #pragma once"""
    for path, text in c_files(tree):
        if not path.endswith(".h"):
            continue
        comment = re.match(r"/\*.*?\*/", text, re.S)
        if not comment:
            yield Finding(path, 1, "the header does not begin with a comment")
        elif not path.startswith("tests/"):
            for word in ("thread", "memory"):
                if word not in comment[0].lower():
                    yield Finding(path, 1, f"the first comment does not mention {word}")
        if not re.search(r"^#pragma once$", text, re.M):
            yield Finding(path, 1, "no #pragma once")


def check_typedefs(tree):
    """structs and enums have no typedef; function types end in _cb or _fn"""
    for path, text in c_files(tree):
        code = code_of(text)
        for match in re.finditer(r"\btypedef\b([^;{]*)", code):
            line, kind = line_of(code, match.start()), match[1].split()[0]
            if kind in ("struct", "enum", "union") and not match[1].rstrip().endswith(")"):
                yield Finding(path, line, f"a typedef of {kind}")
            function = re.search(r"(\w+)\s*\)?\s*\((?:[^()]|\([^()]*\))*\)\s*$", match[1])
            if function and not function[1].endswith(("_cb", "_fn")):
                yield Finding(path, line, f"{function[1]} must end in _cb or _fn")


def check_public_names(tree):
    """functions that other files see begin with eb_ or embag_; static functions do not"""
    for function in definitions(tree, *(layer + "/" for layer in LAYERS)):
        prefixed = function.name.startswith(("eb_", "embag_"))
        # A name in capitals is a macro, which the including file defines.
        free = function.name == "main" or function.name.isupper()
        if not function.static and not prefixed and not free:
            wrong = f"{function.name} is not static and has no prefix eb_ or embag_"
            yield Finding(function.path, function.line, wrong)
        if function.static and prefixed and function.path.endswith(".c"):
            yield Finding(function.path, function.line,
                          f"{function.name} is static and must have no prefix")


@functools.cache
def has_retired_word(name):
    """Returns whether a name contains a retired word or its plural.

    Words end at underscores, dots and capitals.
    """
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return any(word.lower() in RETIRED_FORMS for word in words)


def python_names(text):
    """Returns the names in a Python text, on their lines."""
    lines = [""] * (text.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            lines[token.start[0] - 1] += token.string + " "
    return "\n".join(lines)


def check_retired_words(tree):
    """no name contains a word that GLOSSARY.md retires"""
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
    """a static function's name is defined in only one file of a folder"""
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
            yield Finding(path, lines[path], f"{name} is also defined in {names}")


def check_null(tree):
    """a pointer is tested as p or !p"""
    return matches(r"[=!]=\s*NULL\b|\bNULL\s*[=!]=", c_files(tree), "a comparison with NULL",
                   without_literals)


def is_type(text):
    """Returns whether the operand of sizeof(...) is a type.

    Names of macros and of generated types count as types.
    """
    base = r"(void|_?[Bb]ool|char|short|int|long|float|double|DIR|FILE|\w+_(t|cb|fn)|[A-Z]\w*)"
    start = r"(struct|enum|union|const|volatile|unsigned|signed|long|short)\b"
    return bool(re.match(rf"\s*({start}|{base}[\s*]*(const[\s*]*)?(\[[^]]*\]\s*)*$)", text))


def check_sizeof(tree):
    """the expression after sizeof has no brackets: sizeof x"""
    for path, text in c_files(tree):
        code = code_of(text)
        for match in re.finditer(r"\bsizeof\s*\(", code):
            operand = code[match.end():matching_close(code, match.end() - 1)]
            # An operand that begins with a cast or a compound literal needs the brackets.
            if not is_type(operand) and not operand.startswith("("):
                yield Finding(path, line_of(code, match.start()), f"sizeof({operand})")


def check_increments(tree):
    """++ and -- follow their operand if the value is not used: x++"""
    change = r"\s*((?:\+\+|--)(?:->|[\w.*()\[\] +-])*)"
    statement = rf"(?:[;{{}}:]\s*\n|\)\s|\b(?:else|do)\b){change};"
    last_in_for = rf";(?:[^;{{}}()=]*,)?{change}[,)]"
    for path, text in c_files(tree):
        code = code_of(text)
        for pattern in (statement, last_in_for):
            for match in re.finditer(pattern, code):
                yield Finding(path, line_of(code, match.start(1)), match[1])


def check_containers(tree):
    """EB_CONTAINER_OF finds the struct that contains a member"""
    files = [(p, t) for p, t in c_files(tree) if p != CONTAINER_OF]
    yield from matches(r"\((?:const )?(?:(?:un)?signed )?(?:char|u?int8_t) \*\)[^;]*?-\s*offsetof",
                       files, "offsetof instead of EB_CONTAINER_OF", without_literals)
    for function in definitions(tree):
        if function.path.startswith("kernels/"):
            continue
        yield from cast_members(function)


def cast_members(function):
    """Yields casts (struct x *)p of a p that is declared as another struct or as a handle."""
    code = function.head + function.body
    pattern = r"\((?:const )?struct (\w+) \*\)(?:\(void \*\))?(\w+)\b(?!\s*(?:->|[.(\[]))"
    for cast in re.finditer(pattern, function.body):
        declared = re.search(rf"\b(?:struct (\w+)|(uv_\w+_t)) \*{cast[2]}\b", code)
        # Socket addresses of the C library are meant to be cast.
        apart = declared and (declared[1] == cast[1] or "sockaddr" in cast[1])
        if declared and not apart:
            # The body ends on the last line of the function.
            line = function.line + function.lines - 1 - function.body.count("\n", cast.start())
            yield Finding(function.path, line, f"the cast {cast[0]} of {declared[0]}")


def check_stack(tree):
    """alloca is not used"""
    return matches(r"\balloca\s*\(", c_files(tree), "a call of alloca")


def check_marks(tree):
    """there are no notes about later work and no licence texts"""
    pattern = r"\b(TO" r"DO|FIX" r"ME|X" r"XX|Copy" r"right|SPDX" r"-License)\b"
    return matches(pattern, code_files(tree), "a note about later work, or a licence text", str)


def lists_source(text, path):
    """Returns whether a CMakeLists.txt names a file, or a test by its module (bag: test_bag.c)."""
    module = re.fullmatch(r"test_(\w+)\.c", path)
    names = [path, module[1]] if module and re.search(r"\btest_\$\{", text) else [path]
    return any(re.search(rf"(?<![\w./]){re.escape(name)}(?![\w.])", text) for name in names)


def check_sources_listed(tree):
    """every .c but templates is listed in a CMakeLists.txt, without file(GLOB)"""
    lists = {os.path.dirname(p): t for p, t in tree.items() if p.endswith("CMakeLists.txt")}
    for path, _ in c_files(tree):
        if path.endswith(".c") and not path.endswith("_tmpl.c"):
            folder, found = os.path.dirname(path), False
            while folder and not found:
                found = lists_source(lists.get(folder, ""), os.path.relpath(path, folder))
                folder = os.path.dirname(folder)
            if not found and not any("${PROJECT_SOURCE_DIR}/" + path in t for t in lists.values()):
                yield Finding(path, 1, "no CMakeLists.txt lists this file")
    for folder, text in lists.items():
        if re.search(r"file\s*\(\s*GLOB", text):
            yield Finding(f"{folder}/CMakeLists.txt", 1, "file(GLOB): list the sources instead")


CONST_LOCAL = re.compile(
    r"^(?: {4})+const (?:(?:struct|enum|union) \w+|unsigned (?:long long|long|char|int)|long long|"
    r"(?!(?:struct|enum|union|char|volatile)\b)\w+) \w+(?:;| =|,)", re.M)


def check_const(tree):
    """locals are not const, except pointers to const"""
    for path, text in c_files(tree):
        for match in CONST_LOCAL.finditer(without_literals(text)):
            line = text[match.start():].split("\n", 1)[0]
            is_in_macro = line.endswith("\\") or text[:match.start()].endswith("\\\n")
            if not is_in_macro and not path.startswith("client/examples/"):
                yield Finding(path, line_of(text, match.start()), "a local that is const")


def check_walks(tree):
    """the files and functions that ARCHITECTURE.md names exist"""
    guide = "server/ARCHITECTURE.md"
    text = tree.get(guide, "")
    for match in re.finditer(r"`((?:proto|kernels|server|client)/[\w/.]+\.[ch])(?::(\w+))?`", text):
        path, name = match.groups()
        if path not in tree:
            yield Finding(guide, line_of(text, match.start()), f"there is no file {path}")
        elif name and name not in {f.name for f in parse_functions(path, tree[path])}:
            yield Finding(guide, line_of(text, match.start()),
                          f"there is no function {name} in {path}")


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
    """C files are formatted as clang-format formats them"""
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
    """Prints figures that have no limit, and the number of include cycles."""
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
    print(f"definitions with a name that several files define: {shared} of {total.total()} "
          f"({100 * shared / max(total.total(), 1):.1f} %)")
    print(f"headers that only one module includes: {single} of {len(headers)} "
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
            print(f"broken rule: {rule.__doc__}")
        for finding in findings:
            print(f"  {finding.path}:{finding.line}: {finding.text}")
    print_sizes(tree)
    print_shape(tree)
    print(f"{len(rules) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
