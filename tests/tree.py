# tests/tree.py - what the check_*.py scripts share: the files of the tree and how results print.
# Each check prints one line "ok NAME", "FAIL NAME" (with the places) or "SKIP NAME: why".
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = ("include", "core", "cpu", "backends", "apps", "tests", "bench")
KERNELS = ("kernels_hip", "kernels_cl")
LIBRARY = ("include", "core", "cpu", "backends")

_failed = 0


def report(name, problems):
    """problems: places, one line each; none means the check holds."""
    global _failed
    problems = list(problems)
    _failed += bool(problems)
    for problem in problems:
        print("    " + problem)
    print(("FAIL " if problems else "ok ") + name)


def skip(name, why):
    print(f"SKIP {name}: {why}")


def finish():
    sys.exit(1 if _failed else 0)


def rel(path):
    return path.relative_to(ROOT).as_posix()


def files(folders, suffixes):
    """Sorted paths below the folders that end in one of the suffixes."""
    for folder in folders:
        base = ROOT / folder
        for path in sorted(base.rglob("*")) if base.is_dir() else []:
            if path.is_file() and path.name.endswith(suffixes) and "__pycache__" not in path.parts:
                yield path


def all_text():
    """Every text file that belongs to the repository (build folders and data excluded)."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if not path.is_file() or parts[0].startswith("build") or parts[0] in (".git", ".cache"):
            continue
        if "__pycache__" in parts or path.suffix in (".pyc", ".gguf", ".safetensors"):
            continue
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


_STRING_OR_COMMENT = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def without_comments(text, strings=False):
    """C text with comments (and string contents) blanked; line numbers stay."""
    def blank(match):
        found = match.group(0)
        if found[0] == "/":
            return re.sub(r"[^\n]", " ", found)
        return found if not strings else found[0] + " " * (len(found) - 2) + found[0]
    return _STRING_OR_COMMENT.sub(blank, text)
