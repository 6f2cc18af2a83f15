#!/usr/bin/env python3
# tests/check_tree.py - house rules that a compiler does not see: nothing that can end the process,
# sizes of functions and files, no unfinished words, every test registered, docs that name what is
# there. An exception is one row below, with its reason.
import fnmatch
import os
import re

import tree

FUNCTION_LINES, FILE_LINES, COLUMNS = 120, 1000, 100

MAY_STOP = {  # "file": reason why it may call something of STOPS; empty is the goal
    "core/text/template/memory.c": "longjmp: an error inside a rendering goes back to its one entry, "
                                   "which releases all of it (core/text/template/value.h)",
    **dict.fromkeys(("core/image/jpeg.c", "core/image/png.c"),
                    "longjmp: the library's error calls must not return; they go back to the one setjmp "
                    "of the file, within the call that reads a picture"),
    "backends/mpi/worker.c": "ends the processes that it forked for clients, and they themselves",
    "backends/mpi/link.c": "kill with signal 0, which asks whether a process is there"}
# "file:function": reason. A name is the first one behind which a parenthesis stands at the left margin: in
# templates that of the struct or macro. These of kernels are to be split; no new row without a reason.
LONG_FUNCTIONS = dict.fromkeys((
    "kernels_hip/attention/attend_prompt.hip:attend_run", "kernels_hip/linear/linear_float.hip:hold",
    "kernels_hip/linear/linear_four.h:first_x", "kernels_hip/linear/linear_quant.h:hold",
    "kernels_hip/linear/linear_pieces.h:gw_product_in_pieces",
    "kernels_cl/attention/attention_team.cl:KERNEL"), "older than the check, to be split")
LONG_FILES = {}  # "file": reason
WIDE_FILES = dict.fromkeys((  # "file": reason why it has lines beyond COLUMNS
    "kernels_hip/gemm/gemm_group.hip", "kernels_hip/linear/strip_read.h", "kernels_hip/strip.h",
    "kernels_cl/common.cl",
    "kernels_cl/gemm/linear_matrix.cl", "kernels_cl/rows/rows.cl", "kernels_cl/walk.cl"),
    "older than the check, to be wrapped")
OF_OPTIONS = {  # test: why a plain build leaves it out
    "test_opencl_ops": "needs GODWIT_OPENCL_TESTS", "test_opencl": "needs GODWIT_OPENCL_TESTS",
    "test_opencl_faults": "needs GODWIT_OPENCL_TESTS",
    "test_opencl_next": "needs GODWIT_OPENCL_TESTS", "test_hip_next": "needs GODWIT_HIP_EMULATOR",
    "test_opencl_sleep": "needs GODWIT_OPENCL_TESTS", "test_hip_sleep": "needs GODWIT_HIP_EMULATOR",
    "test_opencl_simulator": "needs GODWIT_OPENCL_TESTS",
    "test_hip_ops": "needs GODWIT_HIP_EMULATOR", "test_hip_faults": "needs GODWIT_HIP_EMULATOR",
    "test_hip_emulator": "needs GODWIT_HIP_EMULATOR", "test_hip_compile": "needs GODWIT_HIP_EMULATOR",
}

STOPS = re.compile(r"\b(assert|GW_ASSERT|abort|exit|_exit|_Exit|quick_exit|raise|kill|longjmp|"
                   r"__builtin_trap|__builtin_unreachable|__assert_fail|errx?|error)\s*\(")
# Words of a workplace; the brackets keep this file from finding itself.
PRIVATE = re.compile(r"/w[o]rk/|/f[a]rm/|/h[o]me/|/r[o]ot/|/tmp/br[i]ef|the C[E]O\b|devel[o]per session|"
                     r"device t[o]ol|lent mach[i]ne|bef[o]re-stop|\bAnthr[o]pic\b|\bCl[a]ude\b|"
                     r"\bChat[G]PT\b|\bCop[i]lot\b|AI assist[a]nt", re.I)
# "file": why it may name products: they are clients of the server.
NAMES_CLIENTS = {
    "apps/serve/route_messages.c": "a line that a client puts before its instructions",
    "tests/test_serve_clients.py": "runs published clients",
}
UNFINISHED = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b|not impl[e]mented yet|^\s*#\s*if\s+0\b", re.M)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def stops():
    for path in tree.files(tree.LIBRARY, (".c", ".h")):
        me = tree.rel(path)
        text = tree.without_comments(path.read_text(), strings=True)
        for found in STOPS.finditer(text):
            if me not in MAY_STOP:
                yield f"{me}:{line_of(text, found.start())}: calls {found.group(1)}"


def functions(text):
    """(name, first line, lines) of every function body that starts in column 0."""
    lines = text.splitlines()
    head, start = "", None
    for number, line in enumerate(lines, 1):
        if start is None:
            if re.match(r"[A-Za-z_]", line):
                head = line
            elif line and not line.startswith((" ", "{", "}", "#", "/")):
                head = ""
            else:
                head += line if head and line.startswith(" ") else ""
            if line.endswith("{") and "(" in head and not re.search(r"=\s*\{$|^(struct|enum|union|typedef)\b[^(]*\{", head):
                name = re.search(r"(\w+)\s*\(", head)
                start = (name.group(1) if name else "?", number)
        elif line.startswith("}"):
            yield start[0], start[1], number - start[1] + 1
            start, head = None, ""


def sources(suffixes=(".c", ".h", ".py", ".hip", ".cl")):
    """The code that people read; tests/data holds tables."""
    return (p for p in tree.files((*tree.CODE, *tree.KERNELS), suffixes) if "data" not in p.parts)


def long_things():
    for path in sources():
        me = tree.rel(path)
        text = path.read_text()
        count = text.count("\n")
        if count > FILE_LINES and me not in LONG_FILES:
            yield f"{me}: {count} lines, more than {FILE_LINES}"
        if path.suffix == ".py":
            continue
        for name, first, size in functions(tree.without_comments(text)):
            if size > FUNCTION_LINES and f"{me}:{name}" not in LONG_FUNCTIONS:
                yield f"{me}:{first}: {name} has {size} lines, more than {FUNCTION_LINES}"


def dead_exceptions():
    for row in [*MAY_STOP, *LONG_FILES, *LONG_FUNCTIONS, *WIDE_FILES, *NAMES_CLIENTS]:
        if not (tree.ROOT / row.split(":")[0]).is_file():
            yield f"{row}: listed as an exception, but not there"


def layout():
    for path in sources():
        me = tree.rel(path)
        text = path.read_text()
        head = text.split("\n", 3)
        if not any(me in line or path.name in line for line in head[:2]):
            yield f"{me}:1: does not begin with its name"
        for number, line in enumerate(text.splitlines(), 1):
            wide = path.suffix == ".py" or me in WIDE_FILES or "clang-format off" in text
            if len(line) > COLUMNS and not wide:
                yield f"{me}:{number}: {len(line)} columns"
            if line.endswith((" ", "\t")) or "\t" in line:
                yield f"{me}:{number}: a tab, or blanks at the end"


def words(pattern):
    for path, text in tree.all_text():
        for found in pattern.finditer(text):
            if pattern is PRIVATE and tree.rel(path) in NAMES_CLIENTS and found.group(0).isalpha():
                continue
            yield f"{tree.rel(path)}:{line_of(text, found.start())}: {found.group(0).strip()}"


def tests_registered():
    listed = os.path.join(os.environ.get("GODWIT_BUILD", ""), "tests", "CTestTestfile.cmake")
    if not os.path.isfile(listed):
        return None
    with open(listed) as file:
        text = file.read()
    missing = []
    for path in sorted((tree.ROOT / "tests").iterdir()):
        if path.stem not in OF_OPTIONS and re.match(r"(test_.*\.(c|py)|check_.*\.py)$", path.name):
            if not re.search(r"add_test\(\[=\[" + path.stem + r"\]=\]|add_test\(" + path.stem + r"\b", text):
                missing.append(f"tests/{path.name} is no ctest entry of this build; configure again")
    return missing


def kernels_found():
    """Kernels of HIP that would be compiled at run time from another file than has them. Variants of
    products are found by their suffix instead, those of tests by the tests."""
    listed = tree.ROOT / "backends/hip/places.c"
    table = re.findall(r'\{"(gw_[\w*]+)",\s*\w+,\s*"(kernels_hip/[\w/.]+)"\}', listed.read_text())
    if len(table) < 40:
        yield f"{tree.rel(listed)}: the table of kernels is not read"
    for path in sources((".hip",)):
        for made in re.findall(r"GW_KERNEL\(\s*([\w#]+)", path.read_text()):
            name = re.sub(r"##\w+", "x", made)
            found = next((file for glob, file in table if fnmatch.fnmatch(name, glob)), "no file")
            if found != tree.rel(path) and not re.match(r"gw_(linear|glu|test)_", name):
                yield f"{tree.rel(path)}: {made} would be compiled from {found}"


def subcommands():
    """Names of the app_command structs in apps/."""
    return {name for path in tree.files(["apps"], (".c",)) for name in
            re.findall(r'const app_command \w+ = \{\s*\.name = "([a-z]+)"', path.read_text())}


def docs_complete():
    readme = (tree.ROOT / "README.md").read_text()
    names = subcommands()
    if not names:
        yield "no subcommand found in apps/"
    for name in sorted(names):
        if f"godwit {name}" not in readme:
            yield f"README.md does not show `godwit {name}`"
    for path, text in tree.all_text():
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target and not (path.parent / target).exists():
                yield f"{tree.rel(path)}: links to {target}, which is not there"


# The first lines of findings/NAME.sh (findings/README.md); name: its path and the finding.
FINDING = re.compile(r"""\A#!/bin/(?:ba)?sh
# findings/(?P<name>[\w.-]+\.sh) - \S.*
# packages: (?P<packages>\S.*)
# seen: 20\d\d-\d\d-\d\d
# what: \S.*
# instead: \S.*
""")


def findings():
    folder = tree.ROOT / "findings"
    page = (folder / "README.md").read_text()
    for path in sorted(folder.iterdir()):
        me, text = tree.rel(path), path.read_text()
        if path.name == "README.md":
            continue
        head = FINDING.match(text)
        if path.suffix != ".sh" or not os.access(path, os.X_OK):
            yield f"{me}: is no script NAME.sh that can be run"
        elif head is None or head["name"] != path.name:
            yield f"{me}:1: does not begin with name, packages, seen, what and instead (findings/README.md)"
        else:
            for package in head["packages"].split():
                if not re.fullmatch(r"[\w.+-]+==[\w.+:~-]+", package):
                    yield f"{me}:3: {package} is not pinned with =="
            if "mktemp" not in text or "exit 77" not in text or "godwit" in text:
                yield f"{me}: has no temporary folder, no exit 77, or runs godwit"
        if path.name not in page:
            yield f"findings/README.md does not list {path.name}"


def main():
    tree.report("findings say what was seen, where and when", findings())
    tree.report("nothing in the library ends the process", stops())
    tree.report("functions and files keep their size", long_things())
    tree.report("no exception for what is gone", dead_exceptions())
    tree.report("files begin with their name; columns, blanks", layout())
    tree.report("no word of a workplace", words(PRIVATE))
    tree.report("nothing unfinished", words(UNFINISHED))
    tree.report("kernels are compiled from the file that has them", kernels_found())
    tree.report("README shows every subcommand; links lead somewhere", docs_complete())
    missing = tests_registered()
    if missing is None:
        tree.skip("every test is registered", "GODWIT_BUILD names no build folder")
    else:
        tree.report("every test is registered", missing)
    tree.finish()


main()
