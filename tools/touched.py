#!/usr/bin/env python3
"""tools/touched.py REV - stages that a change since REV can have touched: of tools/stages, by the paths of
each row.

tools/touched.py REV BUILD STAGE - tests of a built stage that the change cannot have touched, as a regular
expression for ctest -E; nothing when that is unknown. A program of tests/test_*.c is touched when an object
in it was compiled from a changed file: objects in it by symbols (nm), what an object was compiled from by
ninja's own records. So no list is kept by hand. A pytest file runs the whole program and counts as touched,
unless only code of GPU kernels has changed, which no stage but theirs runs.

tools/test --since asks both. A change is what differs from REV, and files that git does not know.
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
EVERY = r"CMakeLists|CMakePresets|cmake/|tests/CMakeLists|tests/timed|tools/(test|touched|stages|setup)"

PAGES = r"(.*\.md|docs/.*|findings/.*|LICENSE)$"       # no C program reads them
CODE = r"(include|core|cpu|backends|apps|bench)/.*\.[ch]$|core/model/specs/|tests/[^/]*\.[ch]$|tests/fuzz/"
PYTEST = r"tests/(test|check)_\w+\.py$"
KERNELS = r"kernels_(hip|cl)/|tests/hip_host/"
# What is compiled in from files that are no C: (those files, the object that has them).
EMBEDDED = [(r"core/model/specs/", "core/model/"), (r"kernels_cl/", "backends/opencl/"),
            (r"kernels_hip/", "backends/hip/")]


def output(*command, cwd=ROOT):
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def changed_files(revision):
    names = output("git", "diff", "--name-only", revision, "--")
    return (names + output("git", "ls-files", "--others", "--exclude-standard")).splitlines()


def rows():
    for line in (ROOT / "tools/stages").read_text().splitlines():
        if line and line[0] != "#":
            yield line.split(";")


def touched_stages(changed):
    for name, default, *_, paths in rows():
        patterns = [EVERY, *paths.split()]
        if default == "yes" and any(re.match(p, path) for path in changed for p in patterns):
            yield name


def objects_by_source(build):
    """{source or header: objects that are compiled from it}, paths from the root and from the build folder."""
    found, made, root = {}, None, f"{ROOT}/"
    for line in output("ninja", "-t", "deps", cwd=build).splitlines():
        if line[:1] not in ("", " "):
            made = line.partition(":")[0]
        elif line and made and not line.startswith("    /usr/"):
            path = os.path.normpath(os.path.join(build, line.strip()))
            if path.startswith(root):
                found.setdefault(path[len(root):], set()).add(made)
    return found


def symbols(build, *files):
    """{file: names that it defines for others}"""
    found = {}
    for line in output("nm", "-A", "-g", "--defined-only", *files, cwd=build).splitlines():
        path, _, rest = line.partition(":")
        found.setdefault(path, set()).add(rest.split()[-1])
    return found


def untouched_programs(changed, build):
    """Names of test programs in which no object is of a changed file."""
    sources = objects_by_source(build)
    touched = set().union(*(sources.get(path, set()) for path in changed))
    library = sorted({o for of in sources.values() for o in of if o.startswith("CMakeFiles/godwit_lib.dir/")})
    for pattern, where in EMBEDDED:
        if any(re.match(pattern, path) for path in changed):
            touched |= {o for o in library if o.startswith("CMakeFiles/godwit_lib.dir/" + where)}
    programs = [p for p in sorted((build / "tests").glob("test_*")) if p.is_file() and p.suffix == ""]
    if not library or not programs:
        return []
    defined = symbols(build, *library)
    wrong = set().union(*(defined.get(o, set()) for o in touched))
    within = symbols(build, *(p.relative_to(build).as_posix() for p in programs))
    own = {p.name: {o for of in sources.values() for o in of if o.startswith(f"tests/CMakeFiles/{p.name}.dir/")}
           for p in programs}
    return [p.name for p in programs if own[p.name] and not own[p.name] & touched
            and not within.get(f"tests/{p.name}", set()) & wrong]


def untouched(changed, build, stage):
    changed = [path for path in changed if not re.match(PAGES, path)]
    known = "|".join((CODE, PYTEST, KERNELS))
    if not all(re.match(known, path) and (ROOT / path).is_file() for path in changed):
        return []
    kernels = all(re.match(KERNELS, path) for path in changed)
    names = untouched_programs(changed, build)
    scripts = [p.stem for p in (ROOT / "tests").glob("test_*.py")]
    if kernels and stage == "release" and changed:  # texts of kernels are but bytes in these programs
        programs = [p.name for p in (build / "tests").glob("test_*") if p.is_file()]
        names = [name for name in programs + scripts if not re.match("test_(hip|opencl|build|library)", name)]
    if stage == "opencl" and any(path.startswith("kernels_cl/") for path in changed):
        names = [name for name in names if not re.match("test_(opencl|offload)", name)]
    if stage == "hip" and any(re.match("kernels_hip/|tests/hip_host/", path) for path in changed):
        names = [name for name in names if not name.startswith("test_hip")]
    return sorted(set(names))


def main(revision, build=None, stage=None):
    try:
        changed = changed_files(revision)
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr)
    if build is None:
        print(*touched_stages(changed))
        return
    try:
        names = untouched(changed, pathlib.Path(build).resolve(), stage)
    except (OSError, subprocess.CalledProcessError):  # no ninja, no nm, no build: nothing is known
        names = []
    if names:
        print(f"^({'|'.join(names)})$")


if __name__ == "__main__":
    main(*sys.argv[1:])
