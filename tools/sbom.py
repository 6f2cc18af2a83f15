#!/usr/bin/env python3
# tools/sbom.py BUILD [FILE ...] - a bill of materials (CycloneDX 1.5, JSON) of a portable build on standard output:
# what the linker took into the program by its map (BUILD/godwit.map), what libgodwit.so needs, the model inside,
# and the SHA-256 of the files that are released. Versions are those of the packages that the libraries come from:
# Debian 11's in the root of tools/old-root, this machine's for what the compiler brings.
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
LICENSES = {  # Debian's source package: what its debian/copyright says of the library, in SPDX's words
    "jansson": "MIT", "pcre2": "BSD-3-Clause", "utf8proc": "MIT AND Unicode-DFS-2015", "libevent": "BSD-3-Clause",
    "libjpeg-turbo": "IJG AND BSD-3-Clause AND Zlib", "libpng1.6": "libpng-2.0", "zlib": "Zlib",
    "libwebp": "BSD-3-Clause", "libedit": "BSD-3-Clause", "libbsd": "BSD-3-Clause AND ISC", "libmd": "BSD-3-Clause AND ISC",
    "ncurses": "X11", "glibc": "LGPL-2.1-or-later",
    "gcc": "GPL-3.0-or-later WITH GCC-exception-3.1", "gcc-mingw-w64": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "mingw-w64": "ZPL-2.1 AND MIT AND BSD-3-Clause"}


def owner(path, root):
    """(source package, version) of a library's file."""
    path = pathlib.Path(os.path.realpath(path))
    if path.is_relative_to(root):
        name = path.relative_to(root).as_posix()
        for line in (root / ".packages").read_text().splitlines():
            source, version, file = line.split(" ", 2)
            if file == name:
                return source, version
        sys.exit(f"tools/sbom.py: no package of {root} has {name}")
    for name in (str(path), str(path).removeprefix("/usr")):
        done = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True)
        if done.returncode == 0:
            package = done.stdout.split(":")[0]
            said = subprocess.run(["dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package],
                                  capture_output=True, text=True, check=True).stdout
            return tuple(said.split("\n")[0].split(" "))
    sys.exit(f"tools/sbom.py: no package has {path}")


def of_program(build):
    """Archives of which the linker took a member."""
    text = (build / "godwit.map").read_text(errors="replace")
    taken = text[text.index("Archive member included"):text.index("\nMemory Configuration")]
    return {m for m in re.findall(r"^(/\S+\.a)\(", taken, re.M)}


def of_library(build, root):
    """What libgodwit.so needs, and what that needs."""
    found, wanted = {}, [build / "libgodwit.so.0"]
    while wanted:
        said = subprocess.run(["readelf", "-d", wanted.pop()], capture_output=True, text=True, check=True).stdout
        for name in set(re.findall(r"\(NEEDED\).*\[(.*)\]", said)) - set(found):
            path = next((p for p in sorted(root.rglob(name))), None)
            if path is None:
                sys.exit(f"tools/sbom.py: {root} has no {name}")
            found[name] = path
            wanted.append(path)
    return found


def component(source, version, where):
    upstream = re.sub(r"^\d+:|(-[^-]*)?$", "", version)
    base = re.sub(r"^gcc(-\d+)?$", "gcc", source)
    if base not in LICENSES:
        sys.exit(f"tools/sbom.py: the licence of {source} {version} is not in LICENSES; its debian/copyright says it")
    return {"type": "library", "bom-ref": f"pkg:deb/debian/{source}@{version}", "name": source, "version": upstream,
            "licenses": [{"expression": LICENSES[base]}], "purl": f"pkg:deb/debian/{source}@{version}",
            "properties": [{"name": "godwit:in", "value": ", ".join(sorted(where))}]}


def of_other_systems(files):
    """(source, version) of what tools/cross-libraries has put into the archives of other processors and systems."""
    if not any(re.search(r"windows|musl|riscv64|ppc64le", pathlib.Path(f).name) for f in files):
        return []
    versions = pathlib.Path(os.environ.get("GODWIT_CROSS_VERSIONS", ROOT / "build/cross-libraries/sources/versions"))
    return [tuple(line.split(" ")) for line in versions.read_text().splitlines() if not line.startswith("cmocka ")]


def of_windows(files):
    """(source, version) of what the linker takes from mingw-w64: its C run time and winpthreads, libgcc."""
    if not any("windows" in pathlib.Path(f).name for f in files):
        return []
    said = os.environ.get("GODWIT_MINGW_VERSIONS") or subprocess.run(
        ["dpkg-query", "-W", "-f", "${source:Package} ${source:Version}\n", "mingw-w64-x86-64-dev",
         "gcc-mingw-w64-x86-64-posix"], capture_output=True, text=True).stdout
    found = [tuple(line.split(" ")) for line in said.splitlines()]
    if len(found) != 2:
        sys.exit("tools/sbom.py: the archive for Windows has parts of mingw-w64, which is not installed: tools/setup cross")
    return found


def compiler():
    """zig brings the C library of the static programs (musl) and its own run-time functions."""
    version = re.search(r"ziglang==([0-9.]+)", (ROOT / "tools/setup").read_text()).group(1)
    return {"type": "library", "bom-ref": f"pkg:pypi/ziglang@{version}", "name": "ziglang", "version": version,
            "licenses": [{"expression": "MIT"}], "purl": f"pkg:pypi/ziglang@{version}",
            "properties": [{"name": "godwit:in", "value": "static programs: musl and compiler-rt"}]}


def main():
    build, files = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    root = pathlib.Path(re.search(r"^GODWIT_OLD_ROOT:PATH=(.*)$", (build / "CMakeCache.txt").read_text(), re.M).group(1)).resolve()
    version = re.search(r'GW_VERSION "(.*)"', (ROOT / "include/godwit.h").read_text()).group(1)
    parts = {}
    for path in of_program(build):
        if not pathlib.Path(path).resolve().is_relative_to(build):
            parts.setdefault(owner(path, root), set()).add("program")
    for name, path in of_library(build, root).items():
        source = owner(path, root)
        parts.setdefault(source, set()).add("wheel's library, of the system" if source[0] == "glibc" else "wheel's library")
    others = of_other_systems(files)
    for source in others:
        parts.setdefault(source, set()).add("other processors and systems")
    model = ROOT / "models/tales-21m-q4_k_m.gguf"
    sha = {name: hashlib.sha256(pathlib.Path(name).read_bytes()).hexdigest() for name in [*files, str(model)]}
    for source in of_windows(files):
        parts.setdefault(source, set()).add("Windows: run time of C, threads, libgcc")
    components = [component(*source, where) for source, where in sorted(parts.items())]
    components += [compiler()] if others else []
    components.append({"type": "machine-learning-model", "bom-ref": model.name, "name": model.stem, "version": version,
                       "licenses": [{"expression": "MIT"}], "hashes": [{"alg": "SHA-256", "content": sha[str(model)]}],
                       "properties": [{"name": "godwit:in", "value": "program"}]})
    components += [{"type": "file", "bom-ref": pathlib.Path(f).name, "name": pathlib.Path(f).name,
                    "hashes": [{"alg": "SHA-256", "content": sha[f]}]} for f in files]
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
           "metadata": {"component": {"type": "application", "bom-ref": "godwit", "name": "godwit", "version": version,
                                      "licenses": [{"expression": "MIT"}]}},
           "components": components,
           "dependencies": [{"ref": "godwit", "dependsOn": [c["bom-ref"] for c in components if c["type"] != "file"]}]}
    name = hashlib.sha256(json.dumps(bom, sort_keys=True).encode()).hexdigest()
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name)}"
    json.dump(bom, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
