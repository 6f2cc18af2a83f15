#!/usr/bin/env python3
# tests/check_abi.py [--write] - the binary interface of libgodwit.so against tests/abi.txt: functions with the
# types that they take, fields of structs with their places, values of enums, as libabigail reads them out of what
# a compiler makes of include/*.h. What is in the list stays as it is while the soname and, before 1.0, the second
# number of the version do: fields and values may be added at the end of a struct or an enum, functions anywhere.
# --write takes down what was added; what is gone or different it takes down with a new version only.
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

import tree

LIST = tree.ROOT / "tests/abi.txt"
HEADERS = sorted((tree.ROOT / "include").glob("*.h"))
NAME = "the binary interface is that of tests/abi.txt"
TEXT = "".join(h.read_text() for h in HEADERS)
VERSION = re.search(r'^#define GW_VERSION "(.*)"$', TEXT, re.M).group(1)


def series(version):
    """What programs that were linked against one of these versions go on running with."""
    major, minor, _ = version.split(".")
    return major if major != "0" else f"0.{minor}"


def corpus(folder):
    """What abidw says of pointers to all functions; constants without a type are sizes of arrays."""
    bare = tree.without_comments(TEXT)
    functions = sorted(set(re.findall(r"^(?!static inline)[a-z][^\n(;{}]*[ *](gw_[a-z0-9_]+)\(", bare, re.M)))
    constants = [c for body in re.findall(r"^enum \{([^}]*)\}", bare, re.M)
                 for c in re.findall(r"\b(GW_[A-Z0-9_]+)\s*(?:=|,|$)", re.sub(r"=[^,]*", "=", body), re.M)]
    source, made = os.path.join(folder, "abi.c"), os.path.join(folder, "abi.so")
    with open(source, "w") as out:
        out.write("".join(f'#include "{tree.rel(h)}"\n' for h in HEADERS))
        out.write("".join(f"__typeof__({f}) *f_{f};\n" for f in functions))
        out.write("".join(f"char c_{c}[{c} + 1];\n" for c in constants))
    compiler = os.environ.get("GODWIT_CC", "cc")
    subprocess.run([compiler, "-std=gnu11", "-g", "-shared", "-fPIC", f"-I{tree.ROOT}", "-o", made, source], check=True)
    return xml.fromstring(subprocess.run(["abidw", made], check=True, capture_output=True, text=True).stdout)


class Names:
    """Spelling of abidw's types."""

    def __init__(self, root):
        self.types = {e.get("id"): e for e in root.iter() if e.get("id") and "size-in-bits" in e.attrib or
                      e.tag in ("qualified-type-def", "typedef-decl", "function-type", "enum-decl", "class-decl")}

    def of(self, number):
        e = self.types.get(number)
        if e is None or e.get("name"):
            return e.get("name") if e is not None else "void"
        inner = self.of(e.get("type-id")) if e.get("type-id") else ""
        if e.tag == "pointer-type-def":
            return f"{inner} *".replace("* *", "**")
        if e.tag == "qualified-type-def":
            words = " ".join(w for w in ("const", "volatile") if e.get(w) == "yes")
            return f"{inner}{words}" if inner.endswith("*") else f"{words} {inner}"
        if e.tag == "array-type-def":
            return inner + "".join(f"[{s.get('length')}]" for s in e.iter("subrange"))
        if e.tag == "function-type":
            return self.function(e)
        return e.tag

    def function(self, e):
        takes = ", ".join(self.of(p.get("type-id")) for p in e.iter("parameter")) or "void"
        gives = e.find("return")
        return f"{self.of(gives.get('type-id')) if gives is not None else 'void'} ({takes})"


def interface():
    """{name: [parts]}: a name with what comes first, then what is added."""
    with tempfile.TemporaryDirectory() as folder:
        root = corpus(folder)
    names, found = Names(root), {}
    for e in root.iter("elf-symbol"):
        if e.get("name").startswith("c_"):
            found[f"constant {e.get('name')[2:]}"] = [str(int(e.get("size")) - 1)]
    for e in root.iter("var-decl"):
        if e.get("name", "").startswith("f_"):
            pointer = names.types[e.get("type-id")]
            found[f"function {e.get('name')[2:]}"] = [names.of(pointer.get("type-id"))]
    for e in root.iter("enum-decl"):
        found[f"enum {e.get('name')}"] = [f"{v.get('name')}={v.get('value')}" for v in e.iter("enumerator")
                                          if not v.get("name").endswith("_COUNT")]
    for e in root.iter("class-decl"):
        if e.get("name", "").startswith("gw_") and e.get("is-declaration-only") != "yes":
            found[f"struct {e.get('name')}"] = [
                f"{m.find('var-decl').get('name')}@{int(m.get('layout-offset-in-bits')) // 8} {names.of(m.find('var-decl').get('type-id'))}"
                for m in e.iter("data-member")]
    found["typedefs"] = sorted(f"{e.get('name')} = {names.of(e.get('type-id'))}" for e in root.iter("typedef-decl")
                               if e.get("name").startswith("gw_") and e.get("name").endswith("_fn"))
    return found


def listed():
    """The version of the list, and what it has."""
    lines = LIST.read_text().splitlines()
    rows = (line.partition(": ") for line in lines if line and line[0] != "#")
    return lines[0].split()[-1], {name: parts.split("; ") for name, _, parts in rows}


def problems(old, new):
    for name, parts in old.items():
        now = new.get(name)
        if now is None:
            yield f"{name} is gone"
        elif name == "typedefs" and not set(parts) <= set(now) or name != "typedefs" and now[:len(parts)] != parts:
            was, becomes = next(((a, b) for a, b in zip(parts, now) if a != b), (parts[-1], "gone"))
            yield f"{name}: was {was}, is {becomes}"


def main():
    write = "--write" in sys.argv[1:]
    if shutil.which("abidw") is None:
        tree.skip(NAME, "no abidw (abigail-tools has it)")
        return
    new, (version, old) = interface(), listed() if LIST.exists() else ("0.0.0", {})
    wrong = list(problems(old, new))
    if wrong and series(version) == series(VERSION):
        wrong.append(f"programs that run with {version} would not with {VERSION}: put it back, or raise GW_VERSION")
    elif write:
        wrong = []
        LIST.write_text(f"# tests/abi.txt - written by tests/check_abi.py --write: the binary interface of godwit {VERSION}\n" +
                        "".join(f"{name}: {'; '.join(new[name])}\n" for name in sorted(new)))
    elif not wrong:
        wrong = [f"{name} is new: tests/check_abi.py --write" for name in new if new[name] != old.get(name)]
    tree.report(NAME, wrong)


main()
tree.finish()
